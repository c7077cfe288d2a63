// SPDX-License-Identifier: Apache-2.0
#include "properties/probe_questions.hpp"

#include <fmt/format.h>

#include <stdexcept>

#include "attest/case_line.hpp"
#include "harness/unit.hpp"

namespace attest {

namespace {

Prediction prediction_of(const Alternative& alternative, const Sample& sample) {
  Variant variant{sample.problem, sample.problem, sample.inputs, sample.profile};
  if (alternative.change) alternative.change(variant);
  return predict(variant);
}

/// "o[0,0,1,0] is 0.5; keep gives 0.25, drop gives 0.5", at an element that tells them apart.
std::string numbers(const Sample& sample, const std::vector<Prediction>& predictions,
                    const std::vector<Alternative>& alternatives, std::size_t chosen,
                    std::size_t other) {
  const auto place = telling_element(sample, predictions[chosen], predictions[other]);
  if (!place) return print_case(sample.problem);
  const auto value = [&](const Prediction& of) {
    return place->of_o ? of.o[place->flat] : of.lse[place->flat];
  };
  const double actual = place->of_o ? sample.seen.o[place->flat] : sample.seen.lse[place->flat];
  return fmt::format("'{}': {}[{}] is {:.6g}; {} gives {:.6g}, {} gives {:.6g}",
                     print_case(sample.problem), place->of_o ? "o" : "lse", place->flat, actual,
                     alternatives[chosen].label, value(predictions[chosen]),
                     alternatives[other].label, value(predictions[other]));
}

}  // namespace

Alternative alternative(const std::string& label, const std::string& hypothesis_id) {
  for (const Hypothesis& hypothesis : hypotheses())
    if (hypothesis.id == hypothesis_id) return {label, hypothesis.change};
  throw std::logic_error("no hypothesis " + hypothesis_id);
}

Answer ask(CaseContext& context, const std::vector<AttentionProblem>& problems,
           const std::vector<Alternative>& alternatives) {
  Answer answer;
  std::vector<bool> fits(alternatives.size(), true);
  std::vector<std::vector<Prediction>> predictions;
  for (const AttentionProblem& problem : problems) {
    context.limits = call_limits(problem);
    const Observation& seen = context.first(problem);
    if (seen.call.accident) {
      answer.kind = Answer::Kind::accident;
      answer.evidence = fmt::format("'{}': {}", print_case(problem), seen.call.accident->sentence);
      return answer;
    }
    if (!seen.ok()) {
      if (answer.evidence.empty()) answer.evidence = seen.call.message;
      continue;
    }
    answer.samples.push_back(*take_sample(context, problem));
    predictions.emplace_back();
    for (std::size_t a = 0; a < alternatives.size(); ++a) {
      predictions.back().push_back(prediction_of(alternatives[a], answer.samples.back()));
      fits[a] = fits[a] && agrees(answer.samples.back(), predictions.back()[a]);
    }
  }
  if (answer.samples.empty()) return answer;
  std::vector<std::size_t> left;
  for (std::size_t a = 0; a < alternatives.size(); ++a)
    if (fits[a]) left.push_back(a);
  if (left.empty()) {
    answer.kind = Answer::Kind::unknown;
    answer.evidence = fmt::format("'{}' agrees with none", print_case(answer.samples[0].problem));
    return answer;
  }
  answer.chosen = left.front();
  answer.kind = left.size() == 1 ? Answer::Kind::decided : Answer::Kind::undecided;
  for (std::size_t n = 0; n < answer.samples.size(); ++n)
    for (std::size_t a = 0; a < alternatives.size(); ++a)
      if (!fits[a] &&
          telling_element(answer.samples[n], predictions[n][answer.chosen], predictions[n][a])) {
        answer.evidence =
            numbers(answer.samples[n], predictions[n], alternatives, answer.chosen, a);
        return answer;
      }
  answer.evidence = fmt::format("'{}' agrees", print_case(answer.samples[0].problem));
  return answer;
}

}  // namespace attest
