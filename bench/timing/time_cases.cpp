// SPDX-License-Identifier: Apache-2.0
#include "bench/timing/time_cases.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "bench/cost/attention_cost.hpp"
#include "bench/timing/sampled_oracle.hpp"
#include "bench/timing/yardstick.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/judge.hpp"
#include "harness/observe.hpp"
#include "harness/requirement.hpp"
#include "harness/shared_answers.hpp"

namespace attest {

namespace {

constexpr int kLeastSamples = 5;
// As many as were asked for, so often: strangers come and go in seconds, and short samples can
// wait.
constexpr int kMostRounds = 4, kMostShortRounds = 12;
constexpr std::uint32_t kMostRepeats = 1'000'000;
constexpr std::size_t kMostAnswerBytes = std::size_t{2} << 30;

CallOptions call_options(const BenchOptions& options, std::uint32_t repeats) {
  CallOptions call;
  call.num_threads = options.threads;
  call.repeats = repeats;
  // What was checked does not hang: ten minutes of CPU, whatever it does.
  call.limits.cpu_seconds = 600;
  call.limits.memory_bytes = std::int64_t{8} << 30;
  return call;
}

/// One kernel on one case, while it is measured.
struct Timed {
  const BenchSubject* subject = nullptr;
  std::string refused;
  std::uint32_t repeats = 1;
  int wanted = 0;  ///< samples
  double extra_bytes = 0;
  std::vector<BenchSample> samples;
};

/// Why there is nothing to time; "" where the call went well.
std::string trouble_of(const Observation& seen) {
  if (seen.ok()) return "";
  return seen.call.accident ? seen.call.accident->sentence : seen.call.message;
}

/// The inputs as every kernel is given them: of a backward call with what its own forward stored.
AttentionInputs inputs_for(Subject& subject, const AttentionProblem& problem,
                           const AttentionInputs& inputs, const BenchOptions& options) {
  AttentionInputs whole = inputs;
  if (problem.operation == Operation::backward)
    take_forward(problem, observe(subject, forward_of(problem), inputs, call_options(options, 1)),
                 whole);
  return whole;
}

/// How often a call is repeated, and how many samples fit. The calls that find out warm it up.
void calibrate(Timed& timed, const AttentionProblem& problem, const AttentionInputs& inputs,
               const BenchOptions& options) {
  timed.subject->subject->restart();  // what the check left is no memory of this call
  double seconds = 0;
  for (;;) {
    const Observation seen =
        observe(*timed.subject->subject, problem, inputs, call_options(options, timed.repeats));
    timed.refused = trouble_of(seen);
    if (!seen.ok()) return;
    if (timed.repeats == 1 && seen.call.peak_bytes)
      timed.extra_bytes = static_cast<double>(*seen.call.peak_bytes);
    seconds = seen.call.elapsed_seconds / timed.repeats;
    if (options.cold || seen.call.elapsed_seconds >= options.sample_seconds ||
        timed.repeats >= kMostRepeats)
      break;
    const double enough = 1.2 * options.sample_seconds / std::max(seconds, 1e-9);
    timed.repeats = static_cast<std::uint32_t>(
        std::clamp(enough, timed.repeats + 1.0, static_cast<double>(kMostRepeats)));
  }
  const double fit = options.case_seconds / std::max(seconds * timed.repeats, 1e-6);
  timed.wanted = static_cast<int>(
      std::clamp<double>(fit, kLeastSamples, std::max(options.samples, kLeastSamples)));
}

void take_sample(Timed& timed, const AttentionProblem& problem, const AttentionInputs& inputs,
                 const BenchOptions& options, Yardsticks& best) {
  CallOptions call = call_options(options, timed.repeats);
  if (options.cold) call.before_call = chill_caches;
  // None that goes through memory: it would take the tensors out of the caches.
  const double fma_before = measure_fma(options.threads);
  const double integer_before = measure_integer(options.threads);
  const Observation seen = observe(*timed.subject->subject, problem, inputs, call);
  const double integer_after = measure_integer(options.threads);
  const double fma_after = measure_fma(options.threads);
  timed.refused = trouble_of(seen);
  if (!seen.ok()) return;
  best.fma_f32 = std::max({best.fma_f32, fma_before, fma_after});
  best.integer = std::max({best.integer, integer_before, integer_after});
  BenchSample sample;
  sample.iterations = timed.repeats;
  sample.real_time = 1e9 * seen.call.elapsed_seconds / timed.repeats;
  sample.cpu_time = 1e9 * seen.call.cpu_seconds / timed.repeats;
  sample.fma_f32 = std::min(fma_before, fma_after);
  sample.integer = std::min(integer_before, integer_after);
  timed.samples.push_back(sample);
}

/// 4 D n of a forward call, and what a backward pass by recomputation has, n visible pairs: the
/// same for every kernel, however many operations it does.
double useful_flops(const AttentionProblem& problem) {
  if (problem.operation == Operation::rope)  // a pair of channels: 4 products, 2 sums
    return static_cast<double>(problem.batch * problem.num_heads * problem.q_len) *
           rotation_flops(problem, 6);
  const auto counts = count_pairs(problem, PairTile{});
  if (!counts) return 0;
  const auto dim = static_cast<double>(problem.head_dim),
             v_dim = static_cast<double>(problem.v_head_dim);
  return problem.operation == Operation::backward ? counts->visible * (6 * dim + 4 * v_dim)
                                                  : counts->visible * (2 * dim + 2 * v_dim);
}

/// Why the kernel gets no time on this problem: it does not serve it, or the oracle disagrees; ""
/// where all is well.
std::string check_for_timing(Subject& subject, const AttentionProblem& problem,
                             const AttentionInputs& inputs, const BenchOptions& options,
                             SharedAnswers& answers) {
  const Declaration& declaration = subject.declaration();
  if (const auto why = not_declared(declaration, problem)) return "not served: " + *why;
  const Observation seen = observe(subject, problem, inputs, call_options(options, 1));
  if (const auto result = judge_call(seen, declaration, problem))
    return result->detail.empty() ? std::string(name(result->verdict)) : result->detail;
  return judge_for_timing(problem, inputs, declaration.profile_for(problem.dtype), seen, answers)
      .value_or("");
}

}  // namespace

TimedCase time_case(const std::vector<BenchSubject>& subjects, const AttentionProblem& problem,
                    const BenchOptions& options, Yardsticks& best) {
  const std::string line = print_case(problem);
  const AttentionInputs inputs = make_inputs(problem);
  SharedAnswers answers(kMostAnswerBytes);  // all kernels, before and after: computed once
  std::vector<Timed> all;
  std::vector<AttentionInputs> given;
  for (const BenchSubject& subject : subjects) {
    Timed timed;
    timed.subject = &subject;
    timed.refused = check_for_timing(*subject.subject, problem, inputs, options, answers);
    given.push_back(timed.refused.empty() ? inputs_for(*subject.subject, problem, inputs, options)
                                          : AttentionInputs{});
    if (timed.refused.empty()) calibrate(timed, problem, given.back(), options);
    all.push_back(std::move(timed));
  }

  const auto stopped = [&] { return options.interrupted && *options.interrupted; };
  const auto counted = [&](const Timed& timed) {
    return std::count_if(timed.samples.begin(), timed.samples.end(), [&](const BenchSample& one) {
      return share_of_best(one, best) >= 1 - options.most_sag;
    });
  };
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; !stopped(); ++round) {
    bool more = false;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const int most = spent.count() < options.case_seconds ? kMostShortRounds : kMostRounds;
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (!all[n].refused.empty() || round >= most * all[n].wanted ||
          counted(all[n]) >= all[n].wanted)
        continue;
      more = true;
      take_sample(all[n], problem, given[n], options, best);
    }
    if (!more) break;
  }

  TimedCase result;
  const double flops = useful_flops(problem), bytes = compulsory_bytes(problem);
  std::int64_t index = 0;
  for (Timed& timed : all) {
    if (timed.refused.empty())
      timed.refused = check_for_timing(*timed.subject->subject, problem, inputs, options, answers);
    if (!timed.refused.empty()) {
      result.refused.push_back({timed.subject->name, line, timed.refused});
      continue;
    }
    std::int64_t repetition = 0;
    for (BenchSample& sample : timed.samples) {
      sample.name = sample.run_name = timed.subject->name + "/" + line;
      sample.per_family_instance_index = index;
      sample.repetitions = static_cast<std::int64_t>(timed.samples.size());
      sample.repetition_index = repetition++;
      sample.threads = options.threads;
      sample.subject = timed.subject->name;
      sample.case_line = line;
      sample.flops = flops, sample.bytes = bytes;
      sample.extra_bytes = timed.extra_bytes;
      result.samples.push_back(sample);
    }
    ++index;
  }
  return result;
}

}  // namespace attest
