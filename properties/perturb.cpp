// SPDX-License-Identifier: Apache-2.0
#include "properties/perturb.hpp"

#include <cmath>
#include <limits>

#include "harness/data.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7065727475726200u;

double junk(Replacement replacement, std::uint64_t bits, double finite) {
  if (replacement == Replacement::finite) return finite;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return bits % 3 == 0 ? kInf : bits % 3 == 1 ? -kInf : std::numeric_limits<double>::quiet_NaN();
}

/// For every stored element of a broadcast [B|1, Hq|1, Lq|1, Lk|1] tensor: is some position that it
/// serves visible?
template <class T>
std::vector<std::uint8_t> serves_visible(const AttentionProblem& problem, const Dense<T>& tensor,
                                         const std::vector<std::uint8_t>& visible) {
  std::vector<std::uint8_t> serves(tensor.values.size(), 0);
  std::size_t flat = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i)
        for (std::int64_t j = 0; j < problem.kv_len; ++j, ++flat)
          if (visible[flat]) serves[tensor.broadcast_index(b, h, i, j)] = 1;
  return serves;
}

}  // namespace

Perturbed perturb_invisible(const AttentionProblem& problem, const AttentionInputs& inputs,
                            Replacement replacement) {
  Perturbed result;
  result.inputs = inputs;
  result.watched.assign(num_rows(problem), 0);
  const std::vector<std::uint8_t> visible = visible_everywhere(problem, inputs);
  AttentionInputs without = inputs;
  without.bias = {};
  // A bias of -inf gives weight 0 to finite keys alone: with NaN or Inf there the row is
  // unspecified.
  const std::vector<std::uint8_t> reached =
      inputs.bias.present && replacement == Replacement::non_finite
          ? visible_everywhere(problem, without)
          : visible;
  const auto keys = static_cast<std::size_t>(problem.kv_len);
  const std::int64_t group = problem.num_heads / problem.num_kv_heads;

  for (std::int64_t b = 0; b < problem.batch; ++b) {
    if (problem.q_len == 0 || problem.kv_len == 0) break;
    for (std::int64_t g = 0; g < problem.num_kv_heads; ++g) {
      const std::uint64_t choice = mix(problem.seed, kTag, static_cast<std::uint64_t>(b),
                                       static_cast<std::uint64_t>(g), 0, 0);
      const std::int64_t pivot_head = g * group + static_cast<std::int64_t>(choice >> 32) % group;
      const auto pivot =
          static_cast<std::int64_t>(choice % static_cast<std::uint64_t>(problem.q_len));
      const std::size_t pivot_row = row_index(problem, b, pivot_head, pivot) * keys;
      std::vector<std::uint8_t> changed(keys, 0);
      for (std::int64_t j = 0; j < problem.kv_len; ++j) {
        if (reached[pivot_row + static_cast<std::size_t>(j)]) continue;
        changed[static_cast<std::size_t>(j)] = 1;
        result.changed = true;
        for (std::int64_t c = 0; c < problem.head_dim; ++c) {
          const double q = inputs.q.at(b, pivot_head, pivot, c);
          const std::uint64_t bits =
              mix(choice, kTag, 1, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(c), 0);
          result.inputs.k.at(b, g, j, c) = junk(replacement, bits, q < 0 ? -24 : 24);
        }
        for (std::int64_t c = 0; c < problem.v_head_dim; ++c) {
          const double v = inputs.v.at(b, g, j, c);
          const std::uint64_t bits =
              mix(choice, kTag, 2, static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(c), 0);
          result.inputs.v.at(b, g, j, c) = junk(replacement, bits, v < 0 ? 288 : -288);
        }
      }
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
        for (std::int64_t i = 0; i < problem.q_len; ++i) {
          const std::size_t row = row_index(problem, b, h, i);
          bool sees_change = false, sees_any = false;
          for (std::size_t j = 0; j < keys; ++j) {
            sees_any = sees_any || visible[row * keys + j];
            sees_change = sees_change || (reached[row * keys + j] && changed[j]);
          }
          // The mean of V over all keys is what the convention wants of an empty row.
          if (!sees_any && problem.empty_output == EmptyOutput::mean_v) sees_change = true;
          result.watched[row] = sees_change ? 0 : 1;
        }
    }
  }

  if (inputs.bias.present) {
    const auto serves = serves_visible(problem, inputs.bias, visible_everywhere(problem, without));
    for (std::size_t e = 0; e < serves.size(); ++e) {
      if (serves[e]) continue;
      result.inputs.bias.values[e] = junk(replacement, e, 64);
      result.changed = true;
    }
  }
  if (inputs.mask.present) {
    without.mask = {};
    // A key that the mask and a bias of -inf both hide must stay hidden: the bias counts as changed
    // above, and not at all where the key may hold NaN.
    without.bias = replacement == Replacement::finite ? result.inputs.bias : Dense<double>{};
    const auto serves = serves_visible(problem, inputs.mask, visible_everywhere(problem, without));
    for (std::size_t e = 0; e < serves.size(); ++e) {
      if (serves[e]) continue;
      result.inputs.mask.values[e] ^= 1;
      result.changed = true;
    }
  }
  if (inputs.keep.present) {
    const auto serves = serves_visible(problem, inputs.keep, visible);
    for (std::size_t e = 0; e < serves.size(); ++e)
      if (!serves[e]) result.inputs.keep.values[e] ^= 1;
  }
  return result;
}

std::optional<AttentionProblem> adapt_to_invisible(AttentionProblem problem,
                                                   const Declaration& declaration) {
  store_batches_apart(problem, declaration);
  return with_hidden_keys(std::move(problem), declaration);
}

CaseResult check_invisible(CaseContext& context, const AttentionProblem& problem,
                           Replacement replacement, Reason reason, const std::string& what) {
  const Observation& base = context.first(problem);
  if (auto result = judge_call(base, context.declaration(), problem)) return *result;
  Perturbed other = perturb_invisible(problem, context.inputs(problem), replacement);
  // Where a sum overflows by right, which NaN or Inf comes out is nobody's promise.
  const std::vector<RowKind>& rows = context.expected(problem).rows;
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows[row] == RowKind::outside_domain) other.watched[row] = 0;
  if (!other.changed) return {.verdict = Verdict::not_judged, .detail = "every key is visible"};
  const Observation changed = context.call(problem, other.inputs);
  if (auto result = judge_call(changed, context.declaration(), problem)) return *result;
  return compare_rows(context, problem, base, changed, other.watched, reason, what);
}

}  // namespace attest
