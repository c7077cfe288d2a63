// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>

#include "attest/case_line.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.has(Feature::rope_partial)) return "not declared: rope_partial";
  return std::nullopt;
}

bool applies(const AttentionProblem& problem, const Declaration&) {
  return effective_rope_dim(problem) < problem.head_dim;
}

std::uint64_t bits_of(DType type, double value) {
  switch (type) {
    case DType::f64: return std::bit_cast<std::uint64_t>(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::f16: return encode_f16(value);
    case DType::bf16: return encode_bf16(value);
  }
  return 0;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;
  const std::vector<double>& x = context.inputs(problem).q.values;
  CaseResult result;
  for (std::size_t flat = 0; flat < x.size(); ++flat) {
    const auto channel = static_cast<std::int64_t>(flat) % problem.head_dim;
    if (channel < effective_rope_dim(problem) || std::isnan(x[flat])) continue;
    ++result.elements_compared;
    if (seen.o_bits[flat] == bits_of(problem.dtype, x[flat])) continue;
    return element_failure(problem, Output::o, flat, x[flat], seen.o[flat], Reason::law_broken,
                           element_name(problem, Output::o, flat) + " is " +
                               print_number(seen.o[flat]) + ", not the " + print_number(x[flat]) +
                               " of x, though only " + std::to_string(effective_rope_dim(problem)) +
                               " channels turn");
  }
  return result;
}

ATTEST_REQUIREMENT(rope_pass,
                   {
                       .id = "ROPE-PASS",
                       .sentence = "channels that are not turned pass through bit for bit",
                       .operation = Operation::rope,
                       .skip = skip,
                       .applies = applies,
                       .check = check,
                   });

}  // namespace
}  // namespace attest
