// SPDX-License-Identifier: Apache-2.0
#include "harness/diagnose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <set>

#include "harness/unread.hpp"

namespace attest {

namespace {

bool agree(double actual, double predicted, double tolerance) {
  if (std::isnan(predicted) || std::isnan(actual))
    return std::isnan(predicted) && std::isnan(actual);
  if (std::isinf(predicted) || std::isinf(actual)) return actual == predicted;
  return std::fabs(actual - predicted) <= tolerance;
}

bool is_judged(const Sample& sample, std::size_t row, bool of_o) {
  switch (sample.expected.rows[row]) {
    case RowKind::unspecified:
    case RowKind::outside_domain: return false;
    case RowKind::lowest_only: return false;
    case RowKind::empty:
      return of_o ? sample.problem.empty_output != EmptyOutput::unspecified
                  : sample.problem.empty_lse != EmptyLse::unspecified;
    case RowKind::ordinary:
    case RowKind::empty_sink:
    case RowKind::padding: break;
  }
  return true;
}

struct Counted {
  std::int64_t elements = 0, fitting = 0, telling = 0;
};

void compare_output(const Sample& sample, const ExpectedTensor& right,
                    const std::vector<double>& actual, const std::vector<std::uint8_t>& junk,
                    const std::vector<double>& predicted, const std::vector<double>& tolerance,
                    const std::vector<std::uint8_t>& unwritten, std::size_t width,
                    Counted& counts) {
  for (std::size_t flat = 0; flat < actual.size(); ++flat) {
    const std::size_t row = flat / width;
    if (!is_judged(sample, row, width != 0 && &right == &sample.expected.o)) continue;
    const double allowed = right.t_mixed[flat];
    const bool wrong = !agree(actual[flat], right.value[flat], allowed);
    if (unwritten[row] || std::isnan(tolerance[flat])) {
      // Predicted to hold what was there before.
      if (!unwritten[row]) continue;
      ++counts.elements;
      counts.fitting += junk[flat] != 0;
      counts.telling += junk[flat] != 0;
      continue;
    }
    const bool differs = !agree(predicted[flat], right.value[flat], tolerance[flat] + allowed);
    if (!wrong && !differs) continue;
    ++counts.elements;
    if (!agree(actual[flat], predicted[flat], tolerance[flat])) continue;
    ++counts.fitting;
    counts.telling += differs;
  }
}

/// How much of the error of one output a rounding accounts for.
void compare_errors(const Sample& sample, const ExpectedTensor& right,
                    const std::vector<double>& actual, const std::vector<double>& predicted,
                    const std::vector<double>& tolerance, std::size_t width, bool of_o, Fit& fit) {
  constexpr double kMost = 100;  // so that no single element decides
  const DType lse_type = sample.problem.dtype == DType::f64 ? DType::f64 : DType::f32;
  const DType type = of_o ? sample.problem.dtype : lse_type;
  for (std::size_t flat = 0; flat < actual.size(); ++flat) {
    const std::size_t row = flat / width;
    if (sample.expected.rows[row] != RowKind::ordinary || std::isnan(tolerance[flat])) continue;
    const double unit = right.t_mixed[flat];
    if (!(unit > 0) || !std::isfinite(right.value[flat])) continue;
    const auto error = [&](double of) {
      const double ratio = std::fabs(actual[flat] - round_to(type, of)) / unit;
      return ratio < kMost ? ratio : kMost;
    };
    const double whole = error(right.value[flat]), left = error(predicted[flat]);
    fit.error += whole * whole;
    fit.unexplained += left * left;
    fit.elements += whole > 1;
    fit.fitting += whole > 1 && left <= 1;
  }
}

}  // namespace

std::int64_t count_wrong(const Sample& sample) {
  std::int64_t wrong = 0;
  const auto count = [&](const ExpectedTensor& right, const std::vector<double>& actual,
                         std::int64_t width, bool of_o) {
    for (std::size_t flat = 0; flat < actual.size(); ++flat)
      wrong += is_judged(sample, flat / static_cast<std::size_t>(width), of_o) &&
               !agree(actual[flat], right.value[flat], right.t_mixed[flat]);
  };
  count(sample.expected.o, sample.seen.o, std::max<std::int64_t>(sample.problem.v_head_dim, 1),
        true);
  count(sample.expected.lse, sample.seen.lse, 1, false);
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const ExpectedTensor& right = sample.expected.gradients[n];
    const std::vector<double>& actual = sample.seen.gradients[n].values;
    for (std::size_t flat = 0; flat < actual.size(); ++flat)
      wrong += std::isfinite(right.t_mixed[flat]) &&
               !agree(actual[flat], right.value[flat], right.t_mixed[flat]);
  }
  return wrong;
}

namespace {

/// The two calls of a backward problem: the forward one is honest, or another hypothesis speaks.
std::optional<Sample> take_backward_sample(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  if (!seen.ok()) return std::nullopt;
  Sample sample{problem,
                context.inputs(problem),
                context.declaration().profile_for(problem.dtype),
                context.expected(problem),
                seen,
                0,
                {}};
  tell(context.declaration(), sample.problem, sample.inputs);
  sample.forward = predict(Variant{sample.problem, sample.problem, sample.inputs, sample.profile});
  sample.wrong = count_wrong(sample);
  return sample;
}

}  // namespace

std::optional<Sample> take_sample(CaseContext& context, const AttentionProblem& problem) {
  // A decode call is the forward call on its whole sequences, if keys are as given there.
  const bool decode = problem.operation == Operation::decode;
  if (problem.operation == Operation::rope || (decode && problem.cache_rotated))
    return std::nullopt;
  context.limits = call_limits(problem);
  if (problem.operation == Operation::backward) return take_backward_sample(context, problem);
  const Observation& seen = context.first(problem);
  if (!seen.ok()) return std::nullopt;
  Sample sample{decode ? forward_of(problem) : problem,
                context.inputs(problem),
                context.declaration().profile_for(problem.dtype),
                context.expected(problem),
                seen,
                0,
                {}};
  tell(context.declaration(), sample.problem, sample.inputs);
  sample.wrong = count_wrong(sample);
  return sample;
}

namespace {

/// body(of_o, flat, row, width) for every judged element of both outputs, until it returns true.
template <class Body>
bool any_judged(const Sample& sample, Body&& body) {
  const auto width = static_cast<std::size_t>(sample.problem.v_head_dim);
  for (std::size_t flat = 0; flat < sample.seen.o.size(); ++flat)
    if (is_judged(sample, flat / width, true) && body(true, flat, flat / width)) return true;
  for (std::size_t row = 0; row < sample.seen.lse.size(); ++row)
    if (is_judged(sample, row, false) && body(false, row, row)) return true;
  return false;
}

}  // namespace

bool agrees(const Sample& sample, const Prediction& p) {
  return !any_judged(sample, [&](bool of_o, std::size_t flat, std::size_t row) {
    if ((of_o ? p.o_unwritten : p.lse_unwritten)[row])
      return (of_o ? sample.seen.o_junk : sample.seen.lse_junk)[flat] == 0;
    const double tolerance = (of_o ? p.o_tolerance : p.lse_tolerance)[flat];
    if (std::isnan(tolerance)) return false;
    return !agree((of_o ? sample.seen.o : sample.seen.lse)[flat], (of_o ? p.o : p.lse)[flat],
                  tolerance);
  });
}

std::optional<Place> telling_element(const Sample& sample, const Prediction& a,
                                     const Prediction& b) {
  Place place;
  const bool found = any_judged(sample, [&](bool of_o, std::size_t flat, std::size_t) {
    const double tolerance = (of_o ? a.o_tolerance : a.lse_tolerance)[flat] +
                             (of_o ? b.o_tolerance : b.lse_tolerance)[flat];
    if (std::isnan(tolerance)) return false;
    place = {of_o, flat};
    return !agree((of_o ? a.o : a.lse)[flat], (of_o ? b.o : b.lse)[flat], tolerance);
  });
  return found ? std::optional(place) : std::nullopt;
}

// Of elements and samples: what fits a mistake and leaves to others what is rare; and what fits in
// part, where a mistake meets features that it treats in a way of its own.
constexpr double kWhole = 0.95, kPart = 0.75;

double Fit::share() const {
  return elements == 0 ? 0
                       : std::min(static_cast<double>(fitting) / static_cast<double>(elements),
                                  static_cast<double>(samples_fitting) / samples);
}

bool Fit::good() const {
  constexpr double kExplained = 0.8;
  constexpr std::int64_t kLeastWrong = 5;
  if (hypothesis->is_rounding) return elements >= kLeastWrong && explained() >= kExplained;
  // Three numbers that match by chance are a chance of 1e-6 at the coarsest precision.
  constexpr std::int64_t kLeastTelling = 3, kTelling = 12;
  constexpr int kSamples = 4;
  return (telling >= kLeastTelling && share() >= kWhole) ||
         (telling >= kTelling && samples_fitting >= kSamples && share() >= kPart);
}

namespace {

void compare_gradient(const ExpectedTensor& right, const SeenTensor& seen,
                      const GradientPrediction::Tensor& predicted, Counted& counts) {
  for (std::size_t flat = 0; flat < seen.values.size(); ++flat) {
    const double actual = seen.values[flat], allowed = right.t_mixed[flat];
    if (!std::isfinite(allowed)) continue;
    if (predicted.unwritten[flat]) {
      ++counts.elements;
      counts.fitting += seen.junk[flat] != 0;
      counts.telling += seen.junk[flat] != 0;
      continue;
    }
    const double value = predicted.value[flat], tolerance = predicted.tolerance[flat];
    if (std::isnan(tolerance)) continue;
    const bool differs = !agree(value, right.value[flat], tolerance + allowed);
    if (!differs && agree(actual, right.value[flat], allowed)) continue;
    ++counts.elements;
    if (!agree(actual, value, tolerance)) continue;
    ++counts.fitting;
    counts.telling += differs;
  }
}

void add_counts(const Counted& counts, Fit& fit) {
  if (counts.elements == 0) return;
  fit.elements += counts.elements;
  fit.fitting += counts.fitting;
  fit.telling += counts.telling;
  ++fit.samples;
  fit.samples_fitting +=
      static_cast<double>(counts.fitting) >= kWhole * static_cast<double>(counts.elements);
}

/// Of a mistake in backward alone: forward calls are right.
void compare_backward(const Hypothesis& hypothesis, const Sample& sample, Fit& fit) {
  BackwardVariant variant{sample.problem, sample.problem, sample.inputs, sample.profile,
                          sample.forward};
  hypothesis.change_backward(variant);
  const GradientPrediction predicted = predict(variant);
  Counted counts;
  for (std::size_t n = 0; n < kNumGradients; ++n)
    compare_gradient(sample.expected.gradients[n], sample.seen.gradients[n], predicted.of[n],
                     counts);
  add_counts(counts, fit);
}

}  // namespace

void compare(const Hypothesis& hypothesis, const Sample& sample, Fit& fit) {
  const bool is_backward = sample.problem.operation == Operation::backward;
  // Of gradients a mistake in forward predicts nothing that the suite would know.
  if (is_backward && !hypothesis.change_backward) return;
  const bool applies = (!hypothesis.applies || hypothesis.applies(sample.problem)) &&
                       (is_backward || !hypothesis.change_backward);
  if (!applies) {  // predicts what is right
    fit.elements += sample.wrong;
    fit.samples += sample.wrong > 0;
    return;
  }
  if (is_backward) return compare_backward(hypothesis, sample, fit);
  Counted counts;
  Variant variant{sample.problem, sample.problem, sample.inputs, sample.profile};
  hypothesis.change(variant);
  const Prediction predicted = predict(variant);
  const auto channels = static_cast<std::size_t>(sample.problem.v_head_dim);
  if (hypothesis.is_rounding) {
    if (channels > 0)
      compare_errors(sample, sample.expected.o, sample.seen.o, predicted.o, predicted.o_tolerance,
                     channels, true, fit);
    compare_errors(sample, sample.expected.lse, sample.seen.lse, predicted.lse,
                   predicted.lse_tolerance, 1, false, fit);
    return;
  }
  if (channels > 0)
    compare_output(sample, sample.expected.o, sample.seen.o, sample.seen.o_junk, predicted.o,
                   predicted.o_tolerance, predicted.o_unwritten, channels, counts);
  compare_output(sample, sample.expected.lse, sample.seen.lse, sample.seen.lse_junk, predicted.lse,
                 predicted.lse_tolerance, predicted.lse_unwritten, 1, counts);
  add_counts(counts, fit);
}

namespace {

/// Hypotheses that predict every element.
std::vector<Fit> fitting_mistakes(const std::vector<Sample>& samples) {
  std::vector<Fit> fits;
  for (const Hypothesis& hypothesis : hypotheses()) {
    if (hypothesis.is_rounding) continue;
    Fit fit;
    fit.hypothesis = &hypothesis;
    for (const Sample& sample : samples) {
      compare(hypothesis, sample, fit);
      if (fit.samples - fit.samples_fitting > 1 + fit.samples / 4) break;
    }
    if (fit.good()) fits.push_back(fit);
  }
  // Stable: of two that fit alike the one registered as the more ordinary comes first.
  const auto tier = [](const Fit& fit) {
    return fit.fitting == fit.elements ? 0 : fit.share() >= kWhole ? 1 : 2;
  };
  std::stable_sort(fits.begin(), fits.end(), [&](const Fit& a, const Fit& b) {
    if (tier(a) != tier(b)) return tier(a) < tier(b);
    if (tier(a) == 2 && a.share() != b.share()) return a.share() > b.share();
    return a.hypothesis->rank != b.hypothesis->rank ? a.hypothesis->rank < b.hypothesis->rank
                                                    : a.telling > b.telling;
  });
  // What fits in part is said only where nothing fits better.
  if (!fits.empty() && tier(fits.front()) < 2)
    std::erase_if(fits, [&](const Fit& fit) { return tier(fit) == 2; });
  return fits;
}

/// Narrow formats, those that leave least of the error first; only those that leave about as
/// little as the best one.
std::vector<Fit> fitting_roundings(const std::vector<Sample>& samples) {
  constexpr std::size_t kFirstLook = 6, kMost = 25;
  std::vector<Fit> fits;
  for (const Hypothesis& hypothesis : hypotheses()) {
    if (!hypothesis.is_rounding) continue;
    Fit fit;
    fit.hypothesis = &hypothesis;
    for (std::size_t n = 0; n < samples.size() && n < kMost; ++n) {
      compare(hypothesis, samples[n], fit);
      if (n >= kFirstLook && fit.explained() < 0.5) break;
    }
    if (fit.good()) fits.push_back(fit);
  }
  std::stable_sort(fits.begin(), fits.end(),
                   [](const Fit& a, const Fit& b) { return a.explained() > b.explained(); });
  while (!fits.empty() && 1 - fits.back().explained() > 3 * (1 - fits.front().explained()) + 0.02)
    fits.pop_back();
  return fits;
}

}  // namespace

std::vector<Fit> likely_mistakes(const std::vector<Sample>& samples) {
  constexpr std::size_t kMost = 3;
  std::vector<Fit> fits = fitting_mistakes(samples);
  if (fits.empty()) fits = fitting_roundings(samples);
  std::set<std::string> families;
  std::vector<Fit> best;
  for (const Fit& fit : fits)
    if (best.size() < kMost && families.insert(family_of(fit.hypothesis->id)).second)
      best.push_back(fit);
  return best;
}

std::string diagnosis_text(const std::vector<Fit>& fits) {
  std::string text;
  for (const Fit& fit : fits) {
    if (!text.empty()) text += "; or ";
    text += fit.hypothesis->is_rounding
                ? fmt::format("{} ({:.0f} % of the error)", fit.hypothesis->sentence,
                              100 * fit.explained())
                : fmt::format("{} (fits {} of {})", fit.hypothesis->sentence, fit.fitting,
                              fit.elements);
  }
  return text;
}

namespace {

/// Of one prediction.
std::int64_t work_of(const AttentionProblem& p) {
  return p.batch * p.num_heads * p.q_len * p.kv_len * (p.head_dim + p.v_head_dim + 4);
}

/// Up to `most` of the positions, spread evenly.
std::vector<std::size_t> spread(const std::vector<std::size_t>& positions, std::size_t most) {
  if (positions.size() <= most) return positions;
  std::vector<std::size_t> chosen;
  for (std::size_t n = 0; n < most; ++n) chosen.push_back(positions[n * positions.size() / most]);
  return chosen;
}

/// Cases of one cause, the smallest first, and passing ones.
struct Cases {
  std::vector<AttentionProblem> failing, passing;
};

Cases cases_of(const WorkList& work, const std::vector<UnitResult>& results,
               const std::vector<Finding>& findings, const Record& record, const Cause& cause) {
  constexpr std::size_t kMostFailing = 24, kMostAlike = 24, kMostOthers = 40;
  constexpr std::int64_t kMostWork = 2'000'000;
  Cases cases;
  cases.failing.push_back(findings[static_cast<std::size_t>(cause.smallest)].minimal);
  std::set<std::size_t> failing;
  std::uint64_t common = ~std::uint64_t{0};
  for (std::size_t f = 0; f < findings.size(); ++f) {
    if (record.failures[f].cause != cause.id) continue;
    failing.insert(findings[f].cases.begin(), findings[f].cases.end());
    common &= findings[f].needs.features;
  }
  const auto add = [&](const std::vector<std::size_t>& positions,
                       std::vector<AttentionProblem>& to) {
    for (const std::size_t position : positions)
      if (const auto problem = problem_of(work, work.units[position]);
          problem && work_of(*problem) <= kMostWork)
        to.push_back(*problem);
  };
  add(spread({failing.begin(), failing.end()}, kMostFailing), cases.failing);
  std::vector<std::size_t> alike, others;
  for (std::size_t position = 0; position < results.size(); ++position) {
    const UnitResult& result = results[position];
    if (!result.done || result.cases.empty() || failing.count(position) > 0) continue;
    if (!std::all_of(result.cases.begin(), result.cases.end(),
                     [](const CaseOutcome& outcome) { return outcome.verdict == Verdict::pass; }))
      continue;
    ((common & ~result.features) == 0 && common != 0 ? alike : others).push_back(position);
  }
  add(spread(alike, kMostAlike), cases.passing);
  add(spread(others, kMostOthers), cases.passing);
  return cases;
}

void diagnose_cause(CaseContext& context, const Cases& cases, Cause& cause) {
  // About half a second of predictions, counted so that every machine looks at the same.
  constexpr std::int64_t kMostWork = 20'000'000;
  std::vector<Sample> samples;
  std::int64_t work = 0;
  for (const auto* list : {&cases.failing, &cases.passing})
    for (const AttentionProblem& problem : *list) {
      if (work > kMostWork) break;
      if (std::optional<Sample> sample = take_sample(context, problem)) {
        work += work_of(problem);
        samples.push_back(std::move(*sample));
      }
    }
  const std::vector<Fit> fits = likely_mistakes(samples);
  cause.diagnosis = diagnosis_text(fits);
  for (const Fit& fit : fits) cause.hypotheses.push_back(fit.hypothesis->id);
}

}  // namespace

void diagnose(const WorkList& work, const std::vector<UnitResult>& results,
              const std::vector<Finding>& findings, Workers& workers, Record& record) {
  std::vector<Cause*> causes;
  for (Cause& cause : record.causes)
    if (is_about_values(cause.reason)) causes.push_back(&cause);
  // Every hypothesis predicts the smallest case: one of that size says nothing of values anyway.
  constexpr std::int64_t kMostOfOne = 50'000'000;
  std::erase_if(causes, [&](const Cause* cause) {
    return work_of(findings[static_cast<std::size_t>(cause->smallest)].minimal) > kMostOfOne;
  });
  workers.for_each(
      causes.size(), [](std::size_t) { return true; },
      [&](Worker& worker, std::size_t c) {
        diagnose_cause(*worker.context, cases_of(work, results, findings, record, *causes[c]),
                       *causes[c]);
      });
}

}  // namespace attest
