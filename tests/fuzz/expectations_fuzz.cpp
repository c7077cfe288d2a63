// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or entries each of which reads back alone. The first half
// of the bytes as a pattern on the second half: the matcher against the textbook recurrence.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/expectations.hpp"
#include "tests/fuzz/require.hpp"

namespace {

/// matches[t]: pattern[0, p) matches text[0, t), for one p after the other.
bool matches_by_table(std::string_view pattern, std::string_view text) {
  std::vector<bool> matches(text.size() + 1, false);
  matches[0] = true;
  for (char c : pattern) {
    std::vector<bool> next(text.size() + 1, false);
    next[0] = c == '*' && matches[0];
    for (std::size_t t = 1; t <= text.size(); ++t)
      next[t] =
          c == '*' ? matches[t] || next[t - 1] : matches[t - 1] && (c == '?' || c == text[t - 1]);
    matches = next;
  }
  return matches.back();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> known{"MASK-NOLEAK", "AGREE-O", "A"};
  const auto entries = parse_expectations(text, known);
  if (!entries) {
    require_refusal(entries);
  } else {
    for (const Expectation& entry : *entries) {
      const auto alone = parse_expectations(entry.line, known);
      require(alone && alone->size() == 1 && alone->front().why == entry.why &&
              alone->front().pattern == entry.pattern && alone->front().line == entry.line);
    }
  }
  const std::size_t most = std::min<std::size_t>(size, 256);
  const std::string_view pattern = text.substr(0, most / 2);
  const std::string_view subject = text.substr(most / 2, most - most / 2);
  require(glob_match(pattern, subject) == matches_by_table(pattern, subject));
  return 0;
}
