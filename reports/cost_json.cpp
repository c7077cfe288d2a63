// SPDX-License-Identifier: Apache-2.0
// Models, machines and costs as JSON.
#include <fmt/format.h>

#include <cmath>

#include "attest/dtype.hpp"
#include "reports/cost.hpp"
#include "reports/cost_fields.hpp"
#include "reports/json_document.hpp"
#include "reports/json_writer.hpp"

namespace attest {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr json::DocumentKind kModel{kModelSchema, "model", kMaxBytes};
constexpr json::DocumentKind kMachine{kMachineSchema, "machine", kMaxBytes};
constexpr json::DocumentKind kCost{kCostSchema, "cost", 8 * kMaxBytes};

/// Sizes whose product stays far below 2^63.
constexpr std::int64_t kMostLayers = 10'000, kMostWidth = 10'000'000;

struct Bounded {
  const char* key;
  std::int64_t value, least, most;
};

std::string model_error(const ModelShape& m) {
  for (const Bounded& size :
       {Bounded{"layers", m.layers, 1, kMostLayers}, Bounded{"hidden", m.hidden, 1, kMostWidth},
        Bounded{"heads", m.heads, 1, 65536}, Bounded{"kv_heads", m.kv_heads, 1, 65536},
        Bounded{"head_dim", m.head_dim, 1, 65536}, Bounded{"ffn", m.ffn, 1, kMostWidth},
        Bounded{"experts", m.experts, 1, 65536},
        Bounded{"experts_per_token", m.experts_per_token, 1, 65536},
        Bounded{"norms_per_layer", m.norms_per_layer, 0, 16},
        Bounded{"vocab", m.vocab, 1, 100 * kMostWidth},
        Bounded{"learned_positions", m.learned_positions, 0, 100 * kMostWidth}})
    if (size.value < size.least || size.value > size.most)
      return fmt::format("model.{}: {} is outside {} to {}", size.key, size.value, size.least,
                         size.most);
  if (m.heads % m.kv_heads != 0)
    return fmt::format("model.kv_heads: {} heads are no multiple of {}", m.heads, m.kv_heads);
  if (m.experts_per_token > m.experts) return "model.experts_per_token: more than there are";
  if (m.windows.empty() || m.windows.size() > static_cast<std::size_t>(kMostLayers))
    return "model.windows: one for each layer in turn, at least one";
  if (!(m.softcap >= 0) || std::isinf(m.softcap)) return "model.softcap: must be 0 or more";
  if (m.learned_positions == 0 && m.head_dim % 2 != 0)
    return "model.head_dim: odd, but RoPE turns pairs";
  return "";
}

std::string machine_error(const MachineShape& machine) {
  const auto positive = [](double x) { return x > 0 && std::isfinite(x); };
  if (!positive(machine.memory_bytes)) return "machine.memory_bytes: must be above 0";
  if (!positive(machine.bytes_per_second)) return "machine.bytes_per_second: must be above 0";
  for (const auto& [dtype, rate] : machine.flop_per_second) {
    if (!parse_dtype(dtype))
      return fmt::format("machine.flop_per_second.{}: no such dtype", json::quote(dtype));
    if (!positive(rate))
      return fmt::format("machine.flop_per_second.{}: must be above 0", json::quote(dtype));
  }
  return "";
}

/// The value, or what check() has against it.
template <class T, class Check>
Result<T> checked(Result<T> value, const Check& check) {
  if (!value) return value;
  if (std::string error = check(*value); !error.empty()) return Error{error};
  return value;
}

}  // namespace

Result<ModelShape> read_model(std::string_view text) {
  return checked(json::read_document<ModelShape>(text, kModel), model_error);
}

Result<ModelShape> read_model_file(const std::string& path) {
  return json::read_file_with(read_model, path, kModel);
}

Result<MachineShape> read_machine_file(const std::string& path) {
  const auto read = [](std::string_view text) {
    return checked(json::read_document<MachineShape>(text, kMachine), machine_error);
  };
  return json::read_file_with(read, path, kMachine);
}

Result<CostRecord> read_cost(std::string_view text) {
  return checked(json::read_document<CostRecord>(text, kCost), [](const CostRecord& record) {
    return std::string(record.variants.empty() ? "cost.variants: there is none" : "");
  });
}

std::string model_json(const ModelShape& model) {
  return json::text_of(json::to_json(model)) + '\n';
}

std::string cost_json(const CostRecord& record) {
  return json::text_of(json::to_json(record)) + '\n';
}

}  // namespace attest
