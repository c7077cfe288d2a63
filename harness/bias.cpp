// SPDX-License-Identifier: Apache-2.0
// The bias test of docs/tolerance.md section 8: single elements within tolerance can still lean one
// way over all rows. It is what catches a truncated P (z = -2.9), which the tolerance of an element
// sees on half of the problems only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "harness/judge.hpp"

namespace attest {
namespace {

/// sigma = T_S / lambda.
constexpr double kLambda = 4;
constexpr double kLeastT = 6;
/// Honest kernels reach |z| = 0.43 with |t| > 6: t alone must not decide.
constexpr double kLeastZ = 0.5;
/// Below this, t has too few degrees of freedom: |t| > 6 happens by chance once in 10^6 at 32.
constexpr std::int64_t kLeastRows = 32;
constexpr double kVague = 0.1;

/// Mean and spread of the rows' normalised projections.
struct Lean {
  std::int64_t rows = 0;
  double sum = 0, squares = 0;

  void add(double x) {
    ++rows;
    sum += x;
    squares += x * x;
  }
  double z() const { return sum / static_cast<double>(rows); }
  double t() const {
    const auto n = static_cast<double>(rows);
    const double variance = std::max(squares - sum * z(), 0.0) / (n - 1);
    return z() / std::sqrt(variance / n);
  }
  bool biased() const {
    return rows >= kLeastRows && std::fabs(z()) > kLeastZ && std::fabs(t()) > kLeastT;
  }
};

struct Direction {
  const char* words;
  const std::vector<double>* weights;  ///< nullptr: 1 everywhere
};

/// sum_c w err / sqrt(sum_c w^2 sigma^2); NaN where nothing can be said.
double projection(const ExpectedTensor& tensor, const Direction& direction,
                  const std::vector<double>& actual, std::size_t first, std::size_t width) {
  double along = 0, variance = 0;
  for (std::size_t flat = first; flat < first + width; ++flat) {
    const double weight = direction.weights ? (*direction.weights)[flat] : 1;
    const double sigma = tensor.t_stat[flat] / kLambda;
    along += weight * ((actual[flat] - tensor.value[flat]) - tensor.low[flat]);
    variance += weight * weight * sigma * sigma;
  }
  return along / std::sqrt(variance);
}

bool says_something(const Expected& expected, std::size_t row) {
  return expected.rows[row] == RowKind::ordinary &&
         (expected.vagueness.empty() || expected.vagueness[row] <= kVague);
}

/// What underflows is lost towards 0, honestly: behind a sink of +20 every weight of an f16 P does
/// (z = -0.86). Such rows have no output above 2^12 roundings near zero (f16: 1.2e-4).
bool underflows(const AttentionProblem& problem, const ExpectedTensor& o, std::size_t first,
                std::size_t width) {
  const double least = 0x1p12 * limits(problem.dtype).half_min_subnormal;
  return std::all_of(o.value.begin() + static_cast<std::ptrdiff_t>(first),
                     o.value.begin() + static_cast<std::ptrdiff_t>(first + width),
                     [least](double value) { return std::fabs(value) < least; });
}

/// A row whose outputs agree with those of another to within the tolerance, in every channel, is
/// rounded as that one was: it is no further evidence. Scale = 0 makes all rows alike, bit for bit
/// (one rounding of 193 equal rows: z = -1.5, t = -inf); behind a steep ALiBi all rows are nearly
/// the value of one key, and every bf16 output rounds the same way (196 rows in 3 values: z = 0.88,
/// t = 6.6). That value is a multiple of a power of two: the third of a step keeps it off the edges
/// of the cells.
class RowsSeen {
 public:
  bool is_new(const ExpectedTensor& tensor, std::size_t first, std::size_t width) {
    std::vector<std::pair<int, double>> cells;
    cells.reserve(width);
    for (std::size_t flat = first; flat < first + width; ++flat) {
      int exponent = 0;
      std::frexp(tensor.t_stat[flat], &exponent);
      cells.emplace_back(exponent, std::floor(std::ldexp(tensor.value[flat], -exponent) + 1.0 / 3));
    }
    return seen_.insert(std::move(cells)).second;
  }

 private:
  std::set<std::vector<std::pair<int, double>>> seen_;  ///< exponent of the step, steps from 0
};

}  // namespace

CaseResult judge_bias(const AttentionProblem& problem, const Expected& expected, Output output,
                      const std::vector<double>& actual, bool generic) {
  const bool is_o = output == Output::o;
  const ExpectedTensor& tensor = is_o ? expected.o : expected.lse;
  const auto width = is_o ? static_cast<std::size_t>(problem.v_head_dim) : std::size_t{1};
  std::vector<Direction> directions;
  if (is_o) {
    directions.push_back({"the output itself", &tensor.value});
    directions.push_back({"a change of temperature", &expected.temperature});
  } else {
    directions.push_back({"one sign", nullptr});
  }

  CaseResult result;
  for (const Direction& direction : directions) {
    Lean lean;
    RowsSeen seen;
    for (std::size_t row = 0; row < expected.rows.size(); ++row) {
      if (!says_something(expected, row)) continue;
      if (is_o && underflows(problem, tensor, row * width, width)) continue;
      if (!seen.is_new(tensor, row * width, width)) continue;
      const double x = projection(tensor, direction, actual, row * width, width);
      if (std::isfinite(x)) lean.add(x);
    }
    result.elements_compared =
        std::max(result.elements_compared, lean.rows * static_cast<std::int64_t>(width));
    if (!lean.biased()) continue;
    result.verdict = generic ? Verdict::fail : Verdict::warn;
    result.reason = Reason::biased;
    result.detail = fmt::format(
        "the errors of {} lean along {}: mean {:.2g} standard deviations, t = {:.3g} over {} rows",
        is_o ? "o" : "lse", direction.words, lean.z(), lean.t(), lean.rows);
    return result;
  }
  if (result.elements_compared < kLeastRows * static_cast<std::int64_t>(width)) {
    result.verdict = Verdict::not_judged;
    result.elements_compared = 0;
    result.detail = fmt::format("fewer than {} rows say anything about a bias", kLeastRows);
  }
  return result;
}

}  // namespace attest
