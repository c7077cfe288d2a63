// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: looking into texts, and changing one place of them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace attest {

/// How often `word` stands in `text`.
inline std::size_t count(const std::string& text, const std::string& word) {
  std::size_t seen = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
    ++seen;
  return seen;
}

/// `text` with the first `from` in it, which must be there, as `to`.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

}  // namespace attest
