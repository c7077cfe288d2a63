// SPDX-License-Identifier: Apache-2.0
// Which known mistake a wrong kernel makes: its outputs are compared with what every hypothesis
// predicts, on cases where it fails and on cases where it is right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/findings.hpp"
#include "harness/hypothesis.hpp"
#include "harness/workers.hpp"

namespace attest {

/// One call of the kernel with everything that a hypothesis is compared with.
struct Sample {
  AttentionProblem problem;  ///< as told to the kernel
  AttentionInputs inputs;    ///< rows that are never read hold NaN
  PrecisionProfile profile;
  Expected expected;
  Observation seen;
  std::int64_t wrong = 0;  ///< elements beyond their tolerance
  Prediction forward;      ///< of a backward call: honest o and lse
};

/// nullopt where the call brought no outputs: refused, or an accident.
std::optional<Sample> take_sample(CaseContext& context, const AttentionProblem& problem);

/// Judged elements of all outputs that lie beyond their tolerance.
std::int64_t count_wrong(const Sample& sample);

/// How well one hypothesis explains the samples looked at.
struct Fit {
  const Hypothesis* hypothesis = nullptr;
  std::int64_t elements = 0;  ///< wrong, or predicted to be wrong
  std::int64_t fitting = 0;   ///< of them: as predicted
  std::int64_t telling = 0;   ///< of the fitting ones: predicted to be other than right
  int samples = 0, samples_fitting = 0;
  /// Of a rounding: squared errors in units of the tolerance, against the right answer and against
  /// the prediction.
  double error = 0, unexplained = 0;
  double explained() const { return error > 0 ? 1 - unexplained / error : 0; }
  double share() const;  ///< of elements or samples that fit, the smaller of the two
  bool good() const;
};

/// What a hypothesis says of one sample, added to `fit`.
void compare(const Hypothesis& hypothesis, const Sample& sample, Fit& fit);

/// Every judged element is as predicted.
bool agrees(const Sample& sample, const Prediction& prediction);

/// The first judged element on which two predictions contradict each other.
struct Place {
  bool of_o = true;
  std::size_t flat = 0;
};
std::optional<Place> telling_element(const Sample& sample, const Prediction& a,
                                     const Prediction& b);

/// The hypotheses that fit, best first, at most three. The first sample should be the smallest
/// failing one: it rules out most of them at little cost.
std::vector<Fit> likely_mistakes(const std::vector<Sample>& samples);

/// "causal mask aligned top_left; declared bottom_right (fits 372 of 372)"; "" of none.
std::string diagnosis_text(const std::vector<Fit>& fits);

/// Fills Cause::diagnosis and Cause::hypotheses of every cause that is about values.
void diagnose(const WorkList& work, const std::vector<UnitResult>& results,
              const std::vector<Finding>& findings, Workers& workers, Record& record);

}  // namespace attest
