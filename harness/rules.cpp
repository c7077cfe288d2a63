// SPDX-License-Identifier: Apache-2.0
#include "harness/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/fault_trial.hpp"
#include "harness/generate.hpp"
#include "harness/judge.hpp"
#include "harness/low_precision.hpp"
#include "harness/narrow.hpp"
#include "harness/observe.hpp"
#include "harness/unit.hpp"

namespace attest {

namespace {

/// |actual - expected| <= absolute + relative |expected| everywhere; equal infinities are close.
bool far_anywhere(const RuleInput& in, double relative, double absolute) {
  for (std::size_t i = 0; i < in.expected.size(); ++i) {
    const double e = in.expected[i], a = in.actual[i];
    const bool infinite = std::isinf(e) || std::isinf(a);
    if (e != a && (infinite || !(std::fabs(a - e) <= absolute + relative * std::fabs(e))))
      return true;
  }
  return false;
}

bool allclose(const RuleInput& in) {
  switch (in.dtype) {
    case DType::f64: return far_anywhere(in, 1e-7, 1e-7);
    case DType::f32: return far_anywhere(in, 1.3e-6, 1e-5);
    case DType::f16: return far_anywhere(in, 1e-3, 1e-5);
    case DType::bf16: return far_anywhere(in, 1.6e-2, 1e-5);
  }
  return true;
}

bool one_percent(const RuleInput& in) { return far_anywhere(in, 1e-2, 1e-2); }

/// max|out - ref| <= 2 max|low precision - ref| + 2 max|(ref + 0.3 - 0.3) - ref|, the second in the
/// storage type; 3 instead of the first 2 under a softcap.
bool twice_the_error(const RuleInput& in) {
  if (in.baseline.empty()) return false;
  double error = 0, allowed = 0, slack = 0;
  for (std::size_t i = 0; i < in.expected.size(); ++i) {
    const double stored = round_to(in.dtype, in.expected[i]);
    const double moved = round_to(in.dtype, round_to(in.dtype, stored + 0.3) - 0.3) - stored;
    const double off = std::fabs(in.actual[i] - in.expected[i]);
    if (std::isnan(off)) return true;
    error = std::max(error, off);
    allowed = std::max(allowed, std::fabs(in.baseline[i] - in.expected[i]));
    slack = std::max(slack, std::fabs(moved));
  }
  return !(error <= (in.softcap > 0 ? 3 : 2) * allowed + 2 * slack);
}

/// sum (out - ref)^2 <= 5e-4 sum ref^2.
bool mean_square(const RuleInput& in) {
  if (in.baseline.empty()) return false;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < in.expected.size(); ++i) {
    error += (in.actual[i] - in.expected[i]) * (in.actual[i] - in.expected[i]);
    size += in.expected[i] * in.expected[i];
  }
  return !(error <= 5e-4 * size);
}

bool has_one_answer(RowKind kind) {
  return kind == RowKind::ordinary || kind == RowKind::empty || kind == RowKind::empty_sink ||
         kind == RowKind::padding;
}

/// The elements of the rows with one right answer.
RuleInput select(const AttentionProblem& problem, const Expected& expected, Output output,
                 const std::vector<double>& actual, const std::vector<double>& baseline) {
  RuleInput in;
  in.dtype = problem.dtype;
  in.softcap = problem.softcap;
  const bool is_o = output == Output::o;
  const std::vector<double>& value = is_o ? expected.o.value : expected.lse.value;
  const std::size_t width = is_o ? static_cast<std::size_t>(problem.v_head_dim) : 1;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const RowKind kind = expected.rows[i / width];
    if (!has_one_answer(kind) || std::isnan(value[i])) continue;
    in.expected.push_back(value[i]);
    in.actual.push_back(actual[i]);
    if (is_o) in.baseline.push_back(kind == RowKind::ordinary ? baseline[i] : value[i]);
  }
  return in;
}

struct Tested {
  std::string kernel, base;  ///< base: of a fault
  DType dtype = DType::f32;
  bool honest = false;
  SubjectSpec spec;
  std::vector<bool> accused[2];  ///< by rule; on gaussian data, on all
};

/// Low-precision outputs by case: kernels with the same declaration meet the same problems.
class Baselines {
 public:
  std::shared_ptr<const std::vector<double>> of(const AttentionProblem& problem,
                                                const AttentionInputs& inputs) {
    const std::string line = print_case(problem);
    {
      const std::lock_guard lock(mutex_);
      const auto known = known_.find(line);
      if (known != known_.end()) return known->second;
    }
    auto made = std::make_shared<const std::vector<double>>(low_precision_output(problem, inputs));
    const std::lock_guard lock(mutex_);
    return known_.emplace(line, std::move(made)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const std::vector<double>>> known_;
};

void judge(const AttentionProblem& problem, const Expected& expected, const Observation& seen,
           const std::vector<double>& baseline, std::vector<bool>& accused) {
  for (const Output output : {Output::o, Output::lse}) {
    const std::vector<double>& actual = output == Output::o ? seen.o : seen.lse;
    if (actual.empty()) continue;
    const RuleInput in = select(problem, expected, output, actual, baseline);
    for (std::size_t r = 0; r < rules().size(); ++r) {
      if (accused[r]) continue;
      const Rule& rule = rules()[r];
      accused[r] =
          rule.accuses
              ? rule.accuses(in)
              : judge_values(problem, expected, output, actual, is_generic(problem)).verdict ==
                    Verdict::fail;
    }
  }
}

/// The problem with values as a test of another harness draws them.
AttentionProblem with_plain_data(AttentionProblem problem) {
  problem.data = Family::gaussian;
  problem.v_data.reset();
  problem.scale.reset();
  if (problem.bias == BiasKind::lowest) problem.bias = BiasKind::normal;
  if (problem.sink == SinkKind::large) problem.sink = SinkKind::normal;
  return problem;
}

bool all_of(const std::vector<bool>& flags) {
  return std::find(flags.begin(), flags.end(), false) == flags.end();
}

void judge_call_on(Subject& subject, const AttentionProblem& problem, Baselines& baselines,
                   std::vector<bool>& accused) {
  const Declaration& declaration = subject.declaration();
  if (all_of(accused) || not_declared(declaration, problem)) return;
  const AttentionInputs inputs = make_inputs(problem);
  CallOptions call;
  call.limits = call_limits(problem);
  const Observation seen = observe(subject, problem, inputs, call);
  if (!seen.ok()) return;
  const Expected expected = expect(problem, inputs, declaration.profile_for(problem.dtype));
  judge(problem, expected, seen, *baselines.of(problem, inputs), accused);
}

void test(Tested& tested, const RuleOptions& options, Baselines& baselines, RunError& error) {
  OpenError refused;
  const std::unique_ptr<Subject> subject = open_in_host(tested.spec, refused);
  if (!subject) {
    error = {refused.message, refused.machine};
    return;
  }
  const Declaration& declaration = subject->declaration();
  for (std::int64_t i = 0; i < options.problems; ++i) {
    if (options.interrupted && *options.interrupted) return;
    const AttentionProblem problem =
        draw(declaration, options.seed, "shared", static_cast<std::uint64_t>(i));
    judge_call_on(*subject, with_plain_data(problem), baselines, tested.accused[0]);
    judge_call_on(*subject, problem, baselines, tested.accused[1]);
  }
}

/// A built-in kernel serves several dtypes: one entry for each, by a narrower declaration.
void add_elsewhere(const HonestKernel& kernel, std::vector<Tested>& all, RunError& error) {
  OpenError refused;
  const std::unique_ptr<Subject> subject = open_in_host(kernel.subject, refused);
  if (!subject) {
    error = {refused.message, refused.machine};
    return;
  }
  for (const DType dtype : subject->declaration().dtypes) {
    Declaration one = subject->declaration();
    one.dtypes = {dtype};
    const auto declaration = narrowed(subject->declaration(), one);
    if (!declaration) continue;
    Tested tested{kernel_of(kernel.id, dtype), "", dtype, true, kernel.subject, {}};
    tested.spec.declaration = declaration->text;
    all.push_back(std::move(tested));
  }
}

std::vector<Tested> plan(const RuleOptions& options, RunError& error) {
  std::vector<Tested> all;
  const auto wanted = [&](const std::string& id) {
    return options.filter.empty() || glob_match(options.filter, id);
  };
  for (const HonestKernel& kernel : options.more_honest)
    if (wanted(kernel.id)) add_elsewhere(kernel, all, error);
  for (const CatalogueEntry& entry : options.catalogue.entries)
    for (const DType dtype : entry.dtypes)
      if (wanted(entry.id))
        all.push_back({kernel_of(entry, dtype),
                       kernel_of(entry.base, dtype),
                       dtype,
                       entry.honest,
                       spec_of(options.catalogue, kernel_of(entry, dtype)),
                       {}});
  for (Tested& tested : all)
    for (std::vector<bool>& accused : tested.accused) accused.resize(rules().size());
  return all;
}

RuleScore score_of(const std::vector<Tested>& all, std::size_t rule, std::size_t data,
                   DType dtype) {
  RuleScore score;
  score.rule = std::string(rules()[rule].name);
  score.data = data == 0 ? kGaussianData : kAllData;
  score.dtype = std::string(name(dtype));
  for (const Tested& tested : all) {
    if (tested.dtype != dtype) continue;
    const bool accused = tested.accused[data][rule];
    (tested.honest ? score.honest : score.faulty) += 1;
    if (tested.honest && accused) score.accused_kernels.push_back(tested.kernel);
    if (!tested.honest && !accused) score.missed_kernels.push_back(tested.kernel);
  }
  for (const Tested& tested : all)
    if (tested.dtype == dtype && !tested.honest && tested.accused[data][rule])
      score.told_apart += std::find(score.accused_kernels.begin(), score.accused_kernels.end(),
                                    tested.base) == score.accused_kernels.end();
  score.accused = std::ssize(score.accused_kernels);
  score.missed = std::ssize(score.missed_kernels);
  return score;
}

std::vector<RuleScore> tally(const std::vector<Tested>& all) {
  std::vector<RuleScore> scores;
  for (std::size_t r = 0; r < rules().size(); ++r)
    for (const std::size_t data : {0, 1})
      for (const DType dtype : kAllDTypes) scores.push_back(score_of(all, r, data, dtype));
  return scores;
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"allclose",
       "torch.testing.assert_close with its defaults: |out - ref| <= atol + rtol |ref|; f64 1e-7 "
       "and 1e-7, f32 1e-5 and 1.3e-6, f16 1e-5 and 1e-3, bf16 1e-5 and 1.6e-2",
       allclose},
      {"1e-2", "|out - ref| <= 1e-2 + 1e-2 |ref|, as benchmarks of generated kernels use it",
       one_percent},
      {"2x",
       "FlashAttention's tests: max|out - ref| <= 2 max|low precision - ref| + 2 max|(ref + 0.3 - "
       "0.3) - ref| (3 under a softcap), low precision being the textbook in the storage type; o "
       "alone",
       twice_the_error},
      {"NMSE 5e-4", "llama.cpp's test-backend-ops: sum (out - ref)^2 <= 5e-4 sum ref^2; o alone",
       mean_square},
      {"Attest", "err <= T for every element of o and lse, T derived from the declared arithmetic",
       nullptr}};
  return all;
}

Result<std::vector<RuleScore>> compare_rules(const RuleOptions& options, RunError& error) {
  std::vector<Tested> all = plan(options, error);
  if (error.message.empty() && all.empty())
    error = {options.catalogue.path + ": holds no kernel that was asked for", false};
  if (!error.message.empty()) return Error{error.message};
  Baselines baselines;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) {
      RunError mine;
      try {
        test(all[i], options, baselines, mine);
      } catch (const std::exception& exception) {
        mine = {exception.what(), true};
      }
      const std::lock_guard lock(mutex);
      if (error.message.empty()) error = mine;
      if (!error.message.empty()) return;
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < options.jobs; ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (!error.message.empty()) return Error{error.message};
  return tally(all);
}

}  // namespace attest
