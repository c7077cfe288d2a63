// SPDX-License-Identifier: Apache-2.0
#include "harness/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "attest/case_line.hpp"
#include "reference/audit.hpp"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// A row where one weight may be off by this much says little (docs/tolerance.md section 9).
constexpr double kVague = 0.1;
constexpr std::size_t kMostListed = 4096;

/// What one element says.
enum class Finding : std::uint8_t {
  not_judged,
  exact,       ///< right, and nothing but exactly right was allowed
  within,      ///< err <= T
  suspicious,  ///< T_S < err <= T_M
  wrong,
  not_finite,  ///< NaN or Inf where a finite number is expected
};

struct ElementJudgement {
  Finding finding = Finding::not_judged;
  double ratio = 0;  ///< err / T; infinite where T is 0 and err is not
};

DType output_type(const AttentionProblem& problem, Output output) {
  const bool statistic =
      output == Output::lse || output == Output::d_slopes || output == Output::d_sink;
  return statistic && problem.dtype != DType::f64 ? DType::f32 : problem.dtype;
}

/// Infinity is right where the exact value, or one within the tolerance of it, rounds to it. Only
/// next to the largest finite number: a wide tolerance excuses no overflow of something small.
bool may_round_to(double infinity, double value, double tolerance, DType type) {
  if (!(std::fabs(value) >= limits(type).max_finite / 2)) return false;
  return round_to(type, value + std::copysign(tolerance, infinity)) == infinity;
}

ElementJudgement judge_number(double value, double low, double tolerance, double certain,
                              double actual, DType type) {
  if (std::isnan(value)) return {std::isnan(actual) ? Finding::exact : Finding::wrong, kInfinity};
  if (std::isinf(value)) return {actual == value ? Finding::exact : Finding::wrong, kInfinity};
  if (std::isnan(actual)) return {Finding::not_finite, kInfinity};
  if (std::isinf(actual)) {
    if (may_round_to(actual, value, tolerance, type)) return {Finding::within, 0};
    return {Finding::not_finite, kInfinity};
  }
  const double error = std::fabs((actual - value) - low);
  if (error == 0) return {tolerance > 0 ? Finding::within : Finding::exact, 0};
  const double ratio = error / tolerance;
  if (error <= tolerance) return {Finding::within, ratio};
  if (error <= certain) return {Finding::suspicious, ratio};
  return {Finding::wrong, ratio};
}

bool empty_row_unspecified(const AttentionProblem& problem, Output output) {
  return output == Output::o ? problem.empty_output == EmptyOutput::unspecified
                             : problem.empty_lse == EmptyLse::unspecified;
}

/// A row with nothing but finite mask values: finite, and an average of v to within the tolerance
/// of an output element, or the empty-row value.
ElementJudgement judge_lowest(const AttentionProblem& problem, const Expected& expected,
                              std::size_t flat, double actual) {
  if (empty_row_unspecified(problem, Output::o)) return {};
  const double tolerance = std::min(expected.o.t_mixed[flat], expected.o.t_stat[flat]);
  const double slack = std::isfinite(tolerance) ? tolerance : 0;
  if (actual >= expected.o_low[flat] - slack && actual <= expected.o_high[flat] + slack)
    return {Finding::exact, 0};
  if (problem.empty_output == EmptyOutput::zero && actual == 0) return {Finding::exact, 0};
  if (problem.empty_output == EmptyOutput::nan && std::isnan(actual)) return {Finding::exact, 0};
  return {std::isfinite(actual) ? Finding::wrong : Finding::not_finite, kInfinity};
}

ElementJudgement judge_element(const AttentionProblem& problem, const Expected& expected,
                               Output output, std::size_t row, std::size_t flat, double actual) {
  const ExpectedTensor& tensor = output == Output::o ? expected.o : expected.lse;
  switch (expected.rows[row]) {
    case RowKind::unspecified:
    case RowKind::outside_domain: return {};
    case RowKind::lowest_only:
      return output == Output::o ? judge_lowest(problem, expected, flat, actual)
                                 : ElementJudgement{};
    case RowKind::empty:
      if (empty_row_unspecified(problem, output)) return {};
      break;
    case RowKind::ordinary:
    case RowKind::empty_sink:
    case RowKind::padding: break;
  }
  return judge_number(tensor.value[flat], tensor.low[flat], tolerance_of(tensor, flat),
                      tensor.t_mixed[flat], actual, output_type(problem, output));
}

/// The first `rank` coordinates of an element of a dense row-major tensor.
std::vector<std::int64_t> logical_index(const std::array<std::int64_t, 4>& shape, int rank,
                                        std::size_t flat) {
  auto rest = static_cast<std::int64_t>(flat);
  std::vector<std::int64_t> index;
  for (std::size_t axis = 4; axis-- > 0;) {
    const std::int64_t extent = std::max<std::int64_t>(shape[axis], 1);
    index.insert(index.begin(), rest % extent);
    rest /= extent;
  }
  index.resize(static_cast<std::size_t>(rank));
  return index;
}

std::string index_text(const Element& element) {
  return fmt::format("{}[{}]", element.tensor, fmt::join(element.index, ","));
}

std::string sentence(const Element& worst, Finding finding) {
  const std::string where = index_text(worst);
  const std::string expected = print_number(worst.expected);
  const std::string actual = print_number(worst.actual);
  if (finding == Finding::not_finite)
    return fmt::format("{} is {} where {} is expected", where, actual, expected);
  if (!std::isfinite(worst.ratio))
    return fmt::format("{} is {} and must be {} exactly", where, actual, expected);
  return fmt::format("{} is {}, expected {}: off by {:.3g} times the tolerance{}", where, actual,
                     expected, worst.ratio,
                     finding == Finding::suspicious
                         ? " that random rounding stays within, though within the coherent one"
                         : "");
}

/// The output that is judged.
struct Judged {
  Output output;
  const ExpectedTensor& tensor;
  std::array<std::int64_t, 4> shape;
  int rank;
};

/// Collects the findings of all elements of one output.
class Tally {
 public:
  Tally(const Judged& judged, bool generic) : of_(judged), generic_(generic) {}

  /// A vague element can still convict, but its passing says nothing.
  void add(std::size_t flat, double actual, const ElementJudgement& judgement, bool vague) {
    seen_any_ = true;
    if (judgement.finding == Finding::not_judged) return;
    ++judged_;
    const bool ratio_known = judgement.finding != Finding::exact && std::isfinite(judgement.ratio);
    if (!vague) ++result_.elements_compared;
    if (!vague && ratio_known) {
      has_ratio_ = true;
      result_.worst_ratio = std::max(result_.worst_ratio, judgement.ratio);
    }
    if (judgement.finding < Finding::suspicious) return;
    const bool convicts = judgement.finding != Finding::suspicious || generic_;
    if (!convicts) {
      keep_worst(warned_, flat, actual, judgement);
      return;
    }
    ++result_.elements_failed;
    if (result_.failed_elements.size() < kMostListed)
      result_.failed_elements.push_back(static_cast<std::uint32_t>(flat));
    keep_worst(judgement.finding == Finding::not_finite ? not_finite_ : wrong_, flat, actual,
               judgement);
  }

  /// Of the element that convicts; after finish().
  std::size_t worst_flat() const { return worst_flat_; }

  CaseResult finish() {
    if (has_ratio_) result_.ratio_output = name(of_.output);
    if (not_finite_.seen) {
      convict(not_finite_, Verdict::fail, Reason::nan_leak);
      if (wrong_.seen) result_.also.push_back(Reason::wrong_value);
    } else if (wrong_.seen) {
      convict(wrong_, Verdict::fail, Reason::wrong_value);
    } else if (warned_.seen) {
      convict(warned_, Verdict::warn, Reason::wrong_value);
    } else if (result_.elements_compared == 0 && seen_any_) {
      result_.verdict = Verdict::not_judged;
      result_.detail = judged_ == 0
                           ? "every row lies outside what can be judged by value"
                           : "the declared precision leaves every row open to more than a tenth";
    }
    return std::move(result_);
  }

 private:
  struct Worst {
    bool seen = false;
    std::size_t flat = 0;
    double actual = 0;
    ElementJudgement judgement;
  };

  static void keep_worst(Worst& worst, std::size_t flat, double actual,
                         const ElementJudgement& judgement) {
    if (worst.seen && !(judgement.ratio > worst.judgement.ratio)) return;
    worst = {true, flat, actual, judgement};
  }

  void convict(const Worst& worst, Verdict verdict, Reason reason) {
    result_.verdict = verdict;
    result_.reason = reason;
    Element element;
    element.tensor = name(of_.output);
    element.index = logical_index(of_.shape, of_.rank, worst.flat);
    element.expected = of_.tensor.value[worst.flat];
    element.actual = worst.actual;
    element.tolerance = tolerance_of(of_.tensor, worst.flat);
    element.ratio = worst.judgement.ratio;
    result_.detail = sentence(element, worst.judgement.finding);
    result_.worst = std::move(element);
    worst_flat_ = worst.flat;
  }

  Judged of_;
  bool generic_;
  CaseResult result_;
  std::size_t worst_flat_ = 0;
  std::int64_t judged_ = 0;
  bool seen_any_ = false, has_ratio_ = false;
  Worst not_finite_, wrong_, warned_;
};

/// The sentence of a row of finite mask values alone.
void describe_hull(const Expected& expected, std::size_t flat, CaseResult& result) {
  result.detail = fmt::format(
      "{} is {} in a row of finite mask values alone, where an average of v is expected: {} to {}",
      index_text(*result.worst), print_number(result.worst->actual),
      print_number(expected.o_low[flat]), print_number(expected.o_high[flat]));
}

}  // namespace

std::string_view name(Output output) {
  constexpr std::array<std::string_view, kNumOutputs> kNames{
      "o", "lse", "dQ", "dK", "dV", "dBias", "dSlope", "dSink", "k_cache", "v_cache", "y"};
  return kNames[static_cast<std::size_t>(output)];
}

std::optional<Output> parse_output(std::string_view text) {
  for (std::size_t n = 0; n < kNumOutputs; ++n)
    if (name(static_cast<Output>(n)) == text) return static_cast<Output>(n);
  return std::nullopt;
}

CaseResult judge_values(const AttentionProblem& problem, const Expected& expected, Output output,
                        const std::vector<double>& actual, bool generic) {
  const bool is_o = output == Output::o;
  const std::int64_t channels = is_o ? problem.v_head_dim : 1;
  const auto width = static_cast<std::size_t>(channels);
  Tally tally({shown_as(problem, output),
               is_o ? expected.o : expected.lse,
               {problem.batch, problem.num_heads, problem.q_len, channels},
               is_o ? 4 : 3},
              generic);
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    const bool vague = row < expected.vagueness.size() && !(expected.vagueness[row] <= kVague);
    for (std::size_t flat = row * width; flat < (row + 1) * width; ++flat)
      tally.add(flat, actual[flat],
                judge_element(problem, expected, output, row, flat, actual[flat]), vague);
  }
  CaseResult result = tally.finish();
  if (is_o && result.worst && expected.rows[tally.worst_flat() / width] == RowKind::lowest_only)
    describe_hull(expected, tally.worst_flat(), result);
  return result;
}

CaseResult judge_gradient(const AttentionProblem& problem, const AttentionInputs& inputs,
                          const Expected& expected, Gradient gradient,
                          const std::vector<double>& actual, bool generic) {
  const ExpectedTensor& tensor = expected.gradients[static_cast<std::size_t>(gradient)];
  const Output output = output_of(gradient);
  Tally tally({output, tensor, tensor_of(inputs, gradient).shape, 4}, generic);
  for (std::size_t flat = 0; flat < tensor.value.size(); ++flat) {
    const double tolerance = tolerance_of(tensor, flat);
    ElementJudgement judgement;
    if (std::isfinite(tolerance))
      judgement = judge_number(tensor.value[flat], tensor.low[flat], tolerance,
                               tensor.t_mixed[flat], actual[flat], output_type(problem, output));
    tally.add(flat, actual[flat], judgement, false);
  }
  return tally.finish();
}

}  // namespace attest
