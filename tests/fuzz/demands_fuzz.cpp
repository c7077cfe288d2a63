// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or demands each of which reads back alone and comes to an
// answer on a run that has nothing.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/demands.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> known{"MASK-NOLEAK", "ORACLE-O", "A"};
  const auto demands = parse_demands(text, known);
  if (!demands) {
    require_refusal(demands);
    return 0;
  }
  require(!demands->empty());
  for (const Demand& demand : *demands) {
    const auto alone = parse_demands(demand.line, known);
    require(alone && alone->size() == 1 && alone->front().line == demand.line &&
            alone->front().kind == demand.kind && alone->front().first == demand.first &&
            alone->front().last == demand.last && alone->front().word == demand.word);
  }
  static const Declaration declaration = *parse_declaration("dtype=f32");
  Record record;
  record.scope.head_dims = {"1-8", "64"};
  check_demands(*demands, declaration, record);
  require(record.demands.size() == demands->size());
  for (const DemandResult& result : record.demands) require(result.met == result.detail.empty());
  return 0;
}
