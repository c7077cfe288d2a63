// SPDX-License-Identifier: Apache-2.0
#include "reference/audit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "attest/case_line.hpp"
#include "reference/definition.hpp"
#include "reference/row_kind.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// splitmix64: the n-th of a stream of well-mixed numbers.
std::uint64_t nth_random(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// |value + low - exact|; 0 for the same infinity or two NaN, +inf where only one is finite.
double difference(double value, double low, const ExactNumber& exact) {
  if (std::isnan(value) || std::isnan(exact.high))
    return std::isnan(value) && std::isnan(exact.high) ? 0 : kInfinity;
  if (std::isinf(value) || std::isinf(exact.high)) return value == exact.high ? 0 : kInfinity;
  return std::abs((value - exact.high) + (low - exact.low));
}

struct Auditor {
  const AttentionProblem& problem;
  Audit& audit;
  bool with_tolerance;
  std::int64_t b, h, i;

  void outside(const std::string& what) const {
    ++audit.outside;
    if (audit.first_outside.empty())
      audit.first_outside = print_case(problem) + ": " + what + " of b=" + std::to_string(b) +
                            " h=" + std::to_string(h) + " i=" + std::to_string(i);
  }

  void compare(const ExpectedTensor& tensor, std::size_t index, const ExactNumber& exact,
               bool ordinary, const std::string& what) const {
    const double radius = tensor.radius[index];
    const double low = tensor.low.empty() ? 0 : tensor.low[index];
    const double error = difference(tensor.value[index], low, exact);
    ++audit.elements;
    if (!(error <= radius))
      outside(what + " (" + print_number(tensor.value[index]) + " +- " + print_number(radius) +
              ", the definition gives " + print_number(exact.high) + ")");
    if (error > 0)
      audit.worst_fraction_of_radius = std::max(audit.worst_fraction_of_radius, error / radius);
    if (!ordinary || !with_tolerance) return;
    const double tolerance = tolerance_of(tensor, index);
    if (std::isfinite(tolerance) && tolerance > 0)
      audit.worst_radius_over_tolerance =
          std::max(audit.worst_radius_over_tolerance, radius / tolerance);
  }
};

/// Whether the value of o and lse is something the oracle must know. The judge does not look at the
/// others, or not by value.
bool has_value(RowKind kind) {
  return kind == RowKind::ordinary || kind == RowKind::empty || kind == RowKind::empty_sink ||
         kind == RowKind::padding;
}

void audit_row(const AttentionProblem& problem, const AttentionInputs& inputs,
               const Expected& expected, std::int64_t b, std::int64_t h, std::int64_t i,
               Audit& audit) {
  const Auditor auditor{problem, audit, expected.has_tolerance, b, h, i};
  const auto row = static_cast<std::size_t>((b * problem.num_heads + h) * problem.q_len + i);
  ++audit.rows;

  const RowKind kind = expected.rows[row];
  if (problem.operation == Operation::rope) {
    if (kind == RowKind::unspecified) return;
    const std::vector<ExactNumber> exact = definition_rope_row(problem, inputs, b, h, i);
    for (std::size_t c = 0; c < exact.size(); ++c)
      auditor.compare(expected.o, row * exact.size() + c, exact[c], true,
                      "y[" + std::to_string(c) + "]");
    return;
  }
  if (kind == RowKind::outside_domain) return;
  const ExactRow exact = definition_row(problem, inputs, b, h, i);
  if (kind != exact.kind) {
    auditor.outside("the kind of row");
    return;
  }
  if (!has_value(kind)) return;

  const bool ordinary = kind == RowKind::ordinary;
  const bool empty = kind == RowKind::empty;
  if (!(empty && problem.empty_output == EmptyOutput::unspecified))
    for (std::size_t c = 0; c < exact.o.size(); ++c)
      auditor.compare(expected.o, row * exact.o.size() + c, exact.o[c], ordinary,
                      "o[" + std::to_string(c) + "]");
  if (!(empty && problem.empty_lse == EmptyLse::unspecified))
    auditor.compare(expected.lse, row, exact.lse, ordinary, "lse");
}

}  // namespace

void audit_rows(const AttentionProblem& problem, const AttentionInputs& inputs,
                const Expected& expected, std::uint64_t seed, std::int64_t max_rows,
                std::int64_t max_pairs, Audit& audit) {
  const std::int64_t num_rows = problem.batch * problem.num_heads * problem.q_len;
  if (num_rows == 0) return;
  const std::int64_t wanted = std::min(max_rows, num_rows);

  // Drawn without repetition; a row too long for what is left of the budget is passed over. Four
  // draws a row find nearly all of a small problem's rows.
  std::set<std::int64_t> drawn;
  std::int64_t audited = 0, pairs = 0;
  // With RoPE the sines of a position, computed once, cost as much as R/8 pairs.
  const std::int64_t position_cost =
      problem.rope == RopePairing::none ? 0 : effective_rope_dim(problem) / 8;
  std::int64_t new_positions = problem.q_len + problem.kv_len;
  for (std::uint64_t n = 0; n < 4 * static_cast<std::uint64_t>(wanted) && audited < wanted; ++n) {
    const auto row =
        static_cast<std::int64_t>(nth_random(seed, n) % static_cast<std::uint64_t>(num_rows));
    if (!drawn.insert(row).second) continue;
    const std::int64_t i = row % problem.q_len;
    const std::int64_t h = row / problem.q_len % problem.num_heads;
    const std::int64_t b = row / problem.q_len / problem.num_heads;
    const auto row_pairs =
        problem.operation == Operation::rope
            ? std::int64_t{1}
            : static_cast<std::int64_t>(
                  visible_keys(problem, inputs, rows_of(problem, b), b, h, i).size());
    const std::int64_t positions = std::min(new_positions, row_pairs + 1);
    const std::int64_t cost = row_pairs + positions * position_cost;
    if (pairs + cost > max_pairs) continue;
    pairs += cost;
    new_positions -= positions;
    ++audited;
    audit_row(problem, inputs, expected, b, h, i, audit);
  }
}

}  // namespace attest
