// SPDX-License-Identifier: Apache-2.0
#include "harness/measure_memory.hpp"

#include <cmath>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/unit.hpp"

namespace attest {

namespace {

constexpr std::int64_t kChannels = 64;
/// A kernel that is slower is left out: the figure is worth no longer wait.
constexpr double kMostSeconds = 10;

std::int64_t channels(const DimSet& dims) {
  for (std::int64_t away = 0; away < 1024; ++away) {
    if (contains(dims, kChannels + away)) return kChannels + away;
    if (away < kChannels && contains(dims, kChannels - away)) return kChannels - away;
  }
  return 1;
}

/// What forward would have stored, near enough: values change no memory, and a forward call of the
/// kernel takes as long as the rest.
void stand_in_for_forward(const AttentionProblem& p, AttentionInputs& inputs) {
  inputs.o = Dense<double>({p.batch, p.num_heads, p.q_len, p.v_head_dim});
  if (!p.want_lse) return;
  inputs.lse = Dense<double>({p.batch, p.num_heads, p.q_len, 1});
  for (std::int64_t i = 0; i < p.q_len; ++i) {
    const auto keys = static_cast<double>(p.base == Base::causal ? i + 1 : p.kv_len);
    inputs.lse.values[static_cast<std::size_t>(i)] = std::log(keys) + 0.5;
  }
}

}  // namespace

namespace {

std::optional<AttentionProblem> backward_at(const Declaration& declaration, std::int64_t length) {
  AttentionProblem p;
  p.dtype = declaration.has(DType::f32) ? DType::f32 : declaration.dtypes.front();
  p.q_len = p.kv_len = length;
  p.head_dim = p.v_head_dim = channels(declaration.head_dims);
  p.want_lse = declaration.has(Feature::lse);
  if (declaration.has(Feature::causal)) p.base = Base::causal;
  p = make_legal(p, declaration);
  if (p.q_len != length || p.kv_len != length) return std::nullopt;
  p = to_backward(p, declaration);
  p.no_gradient = {};
  p.d_lse = false;
  p.d_o_layout.reset();
  p.d_o_data = Family::gaussian;
  return p;
}

}  // namespace

std::vector<AttentionProblem> measured_calls(const Declaration& declaration) {
  std::vector<AttentionProblem> calls;
  if (!declaration.backward.served || declaration.dtypes.empty()) return calls;
  const std::vector<std::int64_t> lengths = declaration.memory_linear
                                                ? std::vector<std::int64_t>{8192}
                                                : std::vector<std::int64_t>{2048, 4096};
  for (const std::int64_t length : lengths)
    if (auto call = backward_at(declaration, length)) calls.push_back(std::move(*call));
  return calls;
}

std::optional<CallMemory> measure_memory(CaseContext& context, const AttentionProblem& problem,
                                         std::string& trouble) {
  trouble = memory_error(problem).value_or("");
  if (!trouble.empty()) return std::nullopt;
  AttentionInputs inputs = make_inputs(problem);
  if (problem.operation == Operation::backward) stand_in_for_forward(problem, inputs);
  context.subject().restart();
  context.limits = {};
  context.limits.cpu_seconds = kMostSeconds;
  const Observation seen = context.call(problem, inputs);
  context.subject().restart();  // gives back what the call has left
  if (const auto result = judge_call(seen, context.declaration(), problem)) {
    trouble = result->detail;
    return std::nullopt;
  }
  if (!seen.call.peak_bytes) return std::nullopt;
  CallMemory memory;
  memory.operation = enum_name(problem.operation);
  memory.case_line = print_case(problem);
  memory.q_len = problem.q_len;
  memory.kv_len = problem.kv_len;
  memory.tensor_bytes = tensor_bytes(problem);
  memory.extra_bytes = static_cast<std::int64_t>(*seen.call.peak_bytes);
  return memory;
}

}  // namespace attest
