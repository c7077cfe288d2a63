// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "properties/support.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6e616e2d73656e74u;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

enum class Place : std::uint8_t { q, k, v, bias, sink };

struct Spot {
  Place place;
  std::int64_t b, h, i, j;  ///< a position that is visible
};

std::optional<Spot> choose(const AttentionProblem& problem, const AttentionInputs& inputs,
                           const std::vector<std::uint8_t>& visible) {
  std::vector<Place> places = {Place::q, Place::k, Place::v};
  if (inputs.bias.present) places.push_back(Place::bias);
  if (inputs.sink.present) places.push_back(Place::sink);
  const std::uint64_t choice = mix(problem.seed, kTag, 0, 0, 0, 0);
  const Place place = places[choice % places.size()];
  const std::size_t start = (choice >> 8) % (visible.empty() ? 1 : visible.size());
  for (std::size_t step = 0; step < visible.size(); ++step) {
    const std::size_t flat = (start + step) % visible.size();
    if (!visible[flat]) continue;
    auto rest = static_cast<std::int64_t>(flat);
    const std::int64_t j = rest % problem.kv_len;
    rest /= problem.kv_len;
    const std::int64_t i = rest % problem.q_len;
    rest /= problem.q_len;
    return Spot{place, rest / problem.num_heads, rest % problem.num_heads, i, j};
  }
  return std::nullopt;
}

const char* name_of(Place place) {
  switch (place) {
    case Place::q: return "q";
    case Place::k: return "k";
    case Place::v: return "v";
    case Place::bias: return "bias";
    case Place::sink: return "sink";
  }
  return "";
}

void plant(const AttentionProblem& problem, const Spot& spot, AttentionInputs& inputs) {
  const std::int64_t g = head_group(problem, spot.h);
  const auto channel = [&](std::int64_t dim) {
    return static_cast<std::int64_t>(mix(problem.seed, kTag, 1, 0, 0, 0) %
                                     static_cast<std::uint64_t>(dim));
  };
  switch (spot.place) {
    case Place::q: inputs.q.at(spot.b, spot.h, spot.i, channel(problem.head_dim)) = kNan; break;
    case Place::k: inputs.k.at(spot.b, g, spot.j, channel(problem.head_dim)) = kNan; break;
    case Place::v: inputs.v.at(spot.b, g, spot.j, channel(problem.v_head_dim)) = kNan; break;
    case Place::bias:
      inputs.bias.values[inputs.bias.broadcast_index(spot.b, spot.h, spot.i, spot.j)] = kNan;
      break;
    case Place::sink: inputs.sink.at(0, spot.h, 0, 0) = kNan; break;
  }
}

enum Reach : std::uint8_t {
  kNot,   ///< the row does not depend on the NaN
  kOwed,  ///< it must come out
  kOpen,  ///< it may
};

/// Which rows depend on the planted NaN; for `v`, which rows see the key. Open is a row whose keys
/// may all be hidden to a kernel: by a finite mask value, which becomes -inf where it is multiplied
/// by log2 e, or by a score beyond the accumulator.
std::vector<std::uint8_t> reached_rows(const AttentionProblem& problem,
                                       const AttentionInputs& clean, const AttentionInputs& inputs,
                                       const Expected& expected, const Spot& spot,
                                       const std::vector<std::uint8_t>& visible) {
  std::vector<std::uint8_t> reached(num_rows(problem), kNot);
  const auto keys = static_cast<std::size_t>(problem.kv_len);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        const std::size_t row = row_index(problem, b, h, i);
        bool empty = true, may_be_empty = true, planted = false;
        for (std::int64_t j = 0; j < problem.kv_len; ++j) {
          if (!visible[row * keys + static_cast<std::size_t>(j)]) continue;
          empty = false;
          may_be_empty &= is_finite_mask(problem.dtype, bias_at(clean, b, h, i, j));
          planted |= spot.place == Place::bias && std::isnan(bias_at(inputs, b, h, i, j));
        }
        if (empty) continue;
        may_be_empty |= expected.rows[row] != RowKind::ordinary;
        const bool same_group =
            b == spot.b && head_group(problem, h) == head_group(problem, spot.h);
        const bool sees = visible[row * keys + static_cast<std::size_t>(spot.j)] != 0;
        switch (spot.place) {
          case Place::q: planted = b == spot.b && h == spot.h && i == spot.i; break;
          case Place::k:
          case Place::v: planted = same_group && sees; break;
          case Place::bias: break;
          case Place::sink: planted = h == spot.h; break;
        }
        if (planted) reached[row] = may_be_empty ? kOpen : kOwed;
      }
  return reached;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  store_batches_apart(problem, declaration);
  if (problem.head_dim == 0 || problem.v_head_dim == 0) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& base = context.first(problem);
  if (auto result = judge_call(base, context.declaration(), problem)) return *result;
  const AttentionInputs& clean = context.inputs(problem);
  const std::vector<std::uint8_t> visible = visible_everywhere(problem, clean);
  const std::optional<Spot> spot = choose(problem, clean, visible);
  if (!spot) return {.verdict = Verdict::not_judged, .detail = "no row sees a key"};
  AttentionInputs inputs = clean;
  plant(problem, *spot, inputs);
  const Observation seen = context.call(problem, inputs);
  if (auto result = judge_call(seen, context.declaration(), problem)) return *result;

  const std::vector<std::uint8_t> reached =
      reached_rows(problem, clean, inputs, context.expected(problem), *spot, visible);
  const auto width = static_cast<std::size_t>(problem.v_head_dim);
  CaseResult result;
  std::optional<CaseResult> failure;
  const auto owe_non_finite = [&](Output output, std::size_t flat, double actual) {
    ++result.elements_compared;
    if (!std::isfinite(actual)) return;
    ++result.elements_failed;
    if (!failure)
      failure = element_failure(
          problem, output, flat, kNan, actual, Reason::nan_lost,
          std::string("a visible NaN in ") + name_of(spot->place) + " does not come out");
  };
  /// v holds it in one channel, and that is the channel of o where it belongs.
  const auto owe_no_nan = [&](Output output, std::size_t flat, double before, double actual) {
    ++result.elements_compared;
    if (!std::isnan(actual) || std::isnan(before)) return;
    ++result.elements_failed;
    if (!failure)
      failure = element_failure(problem, output, flat, before, actual, Reason::nan_leak,
                                "a NaN in one channel of v comes out where it does not belong");
  };
  int traced = 0;
  for (std::size_t row = 0; row < reached.size(); ++row) {
    if (reached[row] != kOwed) continue;
    const auto i = static_cast<std::int64_t>(row) % problem.q_len;
    const auto h = static_cast<std::int64_t>(row) / problem.q_len % problem.num_heads;
    const auto b = static_cast<std::int64_t>(row) / problem.q_len / problem.num_heads;
    if (spot->place != Place::v) {
      // Where dropout drops every visible key, o is an empty sum and depends on nothing.
      const auto keys = static_cast<std::size_t>(problem.kv_len);
      bool kept = !clean.keep.present;
      for (std::size_t j = row * keys; j < (row + 1) * keys && !kept; ++j)
        kept = visible[j] && clean.keep.values[j];
      for (std::size_t c = 0; c < width && kept; ++c)
        owe_non_finite(Output::o, row * width + c, seen.o[row * width + c]);
      if (!seen.lse.empty()) owe_non_finite(Output::lse, row, seen.lse[row]);
      continue;
    }
    for (std::size_t c = 0; c < width; ++c)
      if (!std::isnan(
              inputs.v.at(b, head_group(problem, h), spot->j, static_cast<std::int64_t>(c))))
        owe_no_nan(Output::o, row * width + c, base.o[row * width + c], seen.o[row * width + c]);
    if (!seen.lse.empty()) owe_no_nan(Output::lse, row, base.lse[row], seen.lse[row]);
    // A weight below 2^-20 may be rounded away, and with it the NaN. The definition gives weights
    // at about 10 us a key: a few rows are enough.
    if (++traced > 4 || problem.kv_len > 512) continue;
    if (clean.keep.present && !clean.keep.at(b, h, i, spot->j)) continue;
    const RowTrace trace = trace_row(problem, clean, b, h, i);
    if (!(trace.keys[static_cast<std::size_t>(spot->j)].weight >= 0x1p-20)) continue;
    for (std::size_t c = 0; c < width; ++c)
      if (std::isnan(inputs.v.at(b, head_group(problem, h), spot->j, static_cast<std::int64_t>(c))))
        owe_non_finite(Output::o, row * width + c, seen.o[row * width + c]);
  }
  if (failure) {
    failure->elements_compared = result.elements_compared;
    failure->elements_failed = result.elements_failed;
    return *failure;
  }

  // Nothing else changes: rows of other queries always, rows that do not see the key where
  // promised.
  std::vector<std::uint8_t> watched(reached.size(), 0);
  const bool all_rows = spot->place == Place::q || context.declaration().masked_nan_safe;
  const bool mean_of_v = problem.empty_output == EmptyOutput::mean_v && spot->place == Place::v;
  for (std::size_t row = 0; row < reached.size(); ++row)
    watched[row] = all_rows && !mean_of_v && reached[row] == kNot;
  // A key that bias = -inf alone hides may still hand on a NaN: there the row is unspecified.
  if (clean.bias.present && (spot->place == Place::k || spot->place == Place::v)) {
    AttentionInputs without = clean;
    without.bias = {};
    const std::vector<std::uint8_t> seen_keys = visible_everywhere(problem, without);
    const auto keys = static_cast<std::size_t>(problem.kv_len);
    for (std::size_t row = 0; row < watched.size(); ++row)
      if (seen_keys[row * keys + static_cast<std::size_t>(spot->j)]) watched[row] = 0;
  }
  // A sink reaches every real row of its head, also the empty ones.
  if (spot->place == Place::sink)
    for (std::size_t row = 0; row < watched.size(); ++row)
      if (static_cast<std::int64_t>(row) / problem.q_len % problem.num_heads == spot->h)
        watched[row] = 0;
  CaseResult others = compare_rows(
      context, problem, base, seen, watched, Reason::nan_leak,
      std::string("a NaN in ") + name_of(spot->place) + " that the row does not depend on");
  others.elements_compared += result.elements_compared;
  return others;
}

ATTEST_REQUIREMENT(
    visible_nan,
    {
        .id = "NAN-VISIBLE",
        .sentence = "a NaN that a row depends on comes out of that row, and of no other",
        .adapt = adapt,
        .check = check,
        .share = 250,
        .of_decode = "CACHE-NAN-VISIBLE",
    });

}  // namespace
}  // namespace attest
