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
  if (output == Output::o || problem.dtype == DType::f64) return problem.dtype;
  return DType::f32;
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

std::vector<std::int64_t> logical_index(const AttentionProblem& problem, Output output,
                                        std::size_t flat) {
  auto rest = static_cast<std::int64_t>(flat);
  std::vector<std::int64_t> index;
  const auto split = [&](std::int64_t extent) {
    index.insert(index.begin(), rest % extent);
    rest /= extent;
  };
  if (output == Output::o) split(problem.v_head_dim);
  split(problem.q_len);
  split(problem.num_heads);
  index.insert(index.begin(), rest);
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

/// Collects the findings of all elements of one output.
class Tally {
 public:
  Tally(const AttentionProblem& problem, const Expected& expected, Output output, bool generic)
      : problem_(problem), expected_(expected), output_(output), generic_(generic) {}

  void add(std::size_t row, std::size_t flat, double actual, const ElementJudgement& judgement) {
    if (judgement.finding == Finding::not_judged) return;
    ++judged_;
    // A vague row can still convict, but its passing says nothing.
    const bool vague = row < expected_.vagueness.size() && !(expected_.vagueness[row] <= kVague);
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

  CaseResult finish() {
    if (has_ratio_) result_.ratio_output = output_ == Output::o ? "o" : "lse";
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

  void saw_element() { seen_any_ = true; }

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
    const ExpectedTensor& tensor = output_ == Output::o ? expected_.o : expected_.lse;
    result_.verdict = verdict;
    result_.reason = reason;
    Element element;
    element.tensor = output_ == Output::o ? "o" : "lse";
    element.index = logical_index(problem_, output_, worst.flat);
    element.expected = tensor.value[worst.flat];
    element.actual = worst.actual;
    element.tolerance = tolerance_of(tensor, worst.flat);
    element.ratio = worst.judgement.ratio;
    result_.detail = sentence(element, worst.judgement.finding);
    const auto width = static_cast<std::size_t>(problem_.v_head_dim);
    if (output_ == Output::o && expected_.rows[worst.flat / width] == RowKind::lowest_only)
      result_.detail = fmt::format(
          "{} is {} in a row of finite mask values alone, where an average of v is expected: {} "
          "to {}",
          index_text(element), print_number(element.actual),
          print_number(expected_.o_low[worst.flat]), print_number(expected_.o_high[worst.flat]));
    result_.worst = std::move(element);
  }

  const AttentionProblem& problem_;
  const Expected& expected_;
  Output output_;
  bool generic_;
  CaseResult result_;
  std::int64_t judged_ = 0;
  bool seen_any_ = false, has_ratio_ = false;
  Worst not_finite_, wrong_, warned_;
};

}  // namespace

CaseResult judge_values(const AttentionProblem& problem, const Expected& expected, Output output,
                        const std::vector<double>& actual, bool generic) {
  const auto width =
      output == Output::o ? static_cast<std::size_t>(problem.v_head_dim) : std::size_t{1};
  Tally tally(problem, expected, output, generic);
  for (std::size_t row = 0; row < expected.rows.size(); ++row)
    for (std::size_t flat = row * width; flat < (row + 1) * width; ++flat) {
      tally.saw_element();
      tally.add(row, flat, actual[flat],
                judge_element(problem, expected, output, row, flat, actual[flat]));
    }
  return tally.finish();
}

}  // namespace attest
