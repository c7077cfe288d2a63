// SPDX-License-Identifier: Apache-2.0
// Any bytes: either one line of refusal, or a model or a cost that reads back as itself; a cost can
// be shown.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "reports/cost.hpp"
#include "tests/fuzz/require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto model = read_model(text);
  if (model)
    require(model_json(*read_model(model_json(*model))) == model_json(*model));
  else
    require_plain_refusal(model);
  const auto cost = read_cost(text);
  if (!cost) {
    require_plain_refusal(cost);
    return 0;
  }
  require(cost_json(*read_cost(cost_json(*cost))) == cost_json(*cost));
  require(!cost_screen(*cost, false).empty() && !cost_markdown(*cost, true).empty());
  require(!cost_csv(*cost).empty());
  return 0;
}
