// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or a problem that prints and reads back as itself.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"
#include "attest/text.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto problem = parse_case(text);
  if (!problem) {
    require_refusal(problem);
    return 0;
  }
  require(!problem_error(*problem));
  require(tensor_bytes(*problem) <= std::int64_t{1} << 62);
  features_of(*problem);
  const std::string line = print_case(*problem);
  // A number can print longer than it was read (0x1p-9 becomes 0.001953125), and outgrow the limit.
  if (line.size() > kMostTextBytes) return 0;
  const auto again = parse_case(line);
  require(static_cast<bool>(again));
  require(print_case(*again) == line);
  require(*again == *problem || line.find("nan") != std::string::npos);
  return 0;
}
