// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or a declaration that prints and reads back as itself.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attest/declaration.hpp"
#include "attest/text.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto declaration = parse_declaration(text);
  if (!declaration) {
    require_refusal(declaration);
    return 0;
  }
  not_declared(*declaration, AttentionProblem{});
  const std::string printed = print_declaration(*declaration);
  if (printed.size() > kMostTextBytes) return 0;
  const auto again = parse_declaration(printed);
  require(static_cast<bool>(again));
  require(print_declaration(*again) == printed);
  require(again->features == declaration->features && again->profile == declaration->profile);
  require(again->head_dims == declaration->head_dims &&
          again->v_head_dims == declaration->v_head_dims);
  return 0;
}
