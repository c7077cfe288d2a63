// SPDX-License-Identifier: Apache-2.0
#include "harness/fault_trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "attest/case_line.hpp"
#include "harness/compare_kernels.hpp"
#include "harness/findings.hpp"
#include "harness/narrow.hpp"
#include "harness/outcome.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReruns = 10;
// A requirement that failed on so many cases, each of them once only, is asked no more.
constexpr int kMostFlaky = 3;
// A kernel that is held to a narrower declaration than its own accepts more than that.
constexpr const char* kRefuses = "CONTRACT-REFUSES";

std::vector<const Requirement*> requirements_for(const SelftestOptions& options) {
  std::vector<const Requirement*> all =
      select_requirements(options.requirements, find_suite(options.suite), "");
  if (options.within)
    std::erase_if(all, [](const Requirement* requirement) { return requirement->id == kRefuses; });
  return all;
}

OpenSubject opener(const SubjectSpec& spec) {
  return [spec](OpenError& error) { return open_in_host(spec, error); };
}

class FaultTest {
 public:
  FaultTest(const SelftestOptions& options, const CatalogueEntry& entry, DType dtype,
            RunError& error)
      : options_(options),
        entry_(entry),
        dtype_(dtype),
        error_(error),
        result_(described(entry, std::string(name(dtype)))) {}

  std::optional<Detection> run(bool minimise);

 private:
  /// A requirement's state: not caught yet, caught, or given up.
  struct State {
    bool settled = false;
    int flaky = 0;
  };
  /// A catch with what shrinking it needs.
  struct Caught {
    std::size_t place = 0;
    std::size_t position = 0;  ///< in WorkList::units
    AttentionProblem problem;
    CaseResult result;
  };

  bool stopped() const { return options_.interrupted && *options_.interrupted; }
  bool in_trouble(const Workers& workers);
  bool narrow_to_scope(SubjectSpec& spec);
  void plan(const Declaration& declaration);
  void follow_list(Workers& workers);
  void look_at(Workers& workers, Worker& worker, std::size_t position);
  void judge_failure(Workers& workers, std::size_t position, std::size_t place,
                     const AttentionProblem& problem, const CaseResult& result);
  const Caught& most_telling() const;
  void minimise(Workers& workers, Caught& caught);
  void show_change(const Caught& caught);
  std::optional<std::string> compare_over_list();
  std::unique_ptr<Subject> open(const SubjectSpec& spec);

  const SelftestOptions& options_;
  const CatalogueEntry& entry_;
  DType dtype_;
  RunError& error_;
  Detection result_;
  SubjectSpec spec_, base_spec_;
  WorkList work_;
  std::vector<State> states_;
  std::vector<Caught> caught_;
  std::size_t end_ = 0;  ///< of the list; moved closer by the first catch
  std::int64_t problems_after_catch_ = 0;
  Clock::time_point start_;
};

bool FaultTest::in_trouble(const Workers& workers) {
  if (error_.message.empty() && !workers.trouble().empty())
    error_ = {fmt::format("{}: {}", spec_.kernel, workers.trouble()), true};
  return !error_.message.empty();
}

std::unique_ptr<Subject> FaultTest::open(const SubjectSpec& spec) {
  OpenError error;
  std::unique_ptr<Subject> subject = open_in_host(spec, error);
  if (!subject) error_ = {error.message, error.machine};
  return subject;
}

/// False where the scope leaves nothing of this kernel.
bool FaultTest::narrow_to_scope(SubjectSpec& spec) {
  if (!options_.within) return true;
  const std::unique_ptr<Subject> subject = open(spec);
  if (!subject) return false;
  const auto both = narrowed(subject->declaration(), *options_.within);
  if (both) spec.declaration = both->text;
  return both.has_value();
}

void FaultTest::plan(const Declaration& declaration) {
  work_.declaration = declaration;
  work_.requirements = not_skipped(requirements_for(options_), declaration);
  work_.seed = options_.seed;
  work_.units = plan_units(work_.requirements, find_suite(options_.suite)->problems, false, {});
  states_.resize(work_.requirements.size());
  end_ = work_.units.size();
}

void FaultTest::look_at(Workers& workers, Worker& worker, std::size_t position) {
  const WorkUnit& unit = work_.units[position];
  const std::optional<AttentionProblem> problem = problem_of(work_, unit);
  if (!problem) return;
  if (unit.is_shared() && not_declared(work_.declaration, *problem)) return;
  ++result_.problems;
  for (const std::size_t place : requirements_of(work_, unit, *problem)) {
    if (states_[place].settled || stopped()) continue;
    ++result_.cases;
    const CaseResult result = workers.check(worker, *work_.requirements[place], *problem);
    if (is_failure(result.verdict)) judge_failure(workers, position, place, *problem, result);
    if (!workers.trouble().empty()) return;
  }
}

/// Only what fails again in a fresh host is a catch.
void FaultTest::judge_failure(Workers& workers, std::size_t position, std::size_t place,
                              const AttentionProblem& problem, const CaseResult& result) {
  const Requirement& requirement = *work_.requirements[place];
  Catch one{requirement.id,
            result.verdict,
            result.reason,
            print_case(problem),
            result_.cases,
            std::chrono::duration<double>(Clock::now() - start_).count(),
            0,
            0};
  // One rerun will do where it fails; where it does not, ten tell a mistake that comes and goes.
  while (one.reruns == 0 || (one.failed < one.reruns && one.reruns < kReruns)) {
    ++one.reruns;
    one.failed += is_failure(workers.check_fresh(requirement, problem).verdict);
    if (!workers.trouble().empty() || stopped()) return;
  }
  if (one.failed == 0) {
    states_[place].settled = ++states_[place].flaky >= kMostFlaky;
    if (std::find(result_.flaky.begin(), result_.flaky.end(), requirement.id) ==
        result_.flaky.end())
      result_.flaky.push_back(requirement.id);
    return;
  }
  if (one.failed < one.reruns) {
    one.verdict = Verdict::fail;
    one.reason = Reason::not_deterministic;
  }
  states_[place].settled = true;
  std::erase(result_.flaky, requirement.id);
  if (caught_.empty())
    end_ = std::min(end_, position + 1 + static_cast<std::size_t>(problems_after_catch_));
  result_.catches.push_back(std::move(one));
  caught_.push_back({place, position, problem, result});
}

void FaultTest::follow_list(Workers& workers) {
  start_ = Clock::now();
  workers.for_each(
      work_.units.size(), [&](std::size_t i) { return i < end_ && !stopped(); },
      [&](Worker& worker, std::size_t i) { look_at(workers, worker, i); });
  result_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
}

/// The catch that a report would show first.
const FaultTest::Caught& FaultTest::most_telling() const {
  const auto order = [&](const Caught& caught) {
    return std::tuple(severity(caught.result.verdict, caught.result.reason),
                      work_.requirements[caught.place]->has_own_problems());
  };
  return *std::min_element(caught_.begin(), caught_.end(),
                           [&](const Caught& a, const Caught& b) { return order(a) < order(b); });
}

/// Shrinks as a run does, and takes the smaller problem over.
void FaultTest::minimise(Workers& workers, Caught& caught) {
  std::vector<UnitResult> results(work_.units.size());
  CaseOutcome outcome;
  outcome.requirement = static_cast<int>(caught.place);
  outcome.verdict = caught.result.verdict;
  outcome.reason = caught.result.reason;
  outcome.detail = caught.result.detail;
  results[caught.position].cases.push_back(outcome);
  const auto one = std::find_if(
      result_.catches.begin(), result_.catches.end(),
      [&](const Catch& c) { return c.requirement == work_.requirements[caught.place]->id; });
  FindingOptions finding_options;
  finding_options.shrink = options_.shrink;
  finding_options.reruns = one->failed < one->reruns ? kReruns : 1;
  finding_options.interrupted = options_.interrupted;
  for (const Finding& finding : find_causes(work_, results, workers, finding_options)) {
    const Failure failure =
        failure_of(work_, finding, options_.library_text + "#" + kernel_of(entry_, dtype_));
    result_.minimal.push_back({failure.requirement, failure.case_line, failure.detail,
                               failure.replay, finding.minimal.q_len * finding.minimal.kv_len,
                               finding.reruns_failed > 0, finding.fully_shrunk});
    caught.problem = finding.minimal;
  }
}

/// Whether the honest base does otherwise on a case that caught the fault.
void FaultTest::show_change(const Caught& caught) {
  const Requirement& requirement = *work_.requirements[caught.place];
  Workers base(opener(base_spec_), 1, options_.shared);
  const CaseResult first = base.check_fresh(requirement, caught.problem);
  if (in_trouble(base)) return;
  if (first.verdict == Verdict::pass || first.verdict == Verdict::warn) {
    result_.shown_by = fmt::format("{} passes {} on the same case", entry_.base, requirement.id);
    return;
  }
  if (is_failure(first.verdict) &&
      is_failure(base.check_fresh(requirement, caught.problem).verdict)) {
    const std::string line = print_case(caught.problem);
    result_.accusations.push_back(fmt::format(
        "{}, the base of {}: {} {}: {}; {}", base_spec_.kernel, entry_.id, requirement.id,
        name(first.reason), first.detail,
        replay_command(line, options_.library_text + "#" + base_spec_.kernel, requirement.id)));
    return;
  }
  const std::unique_ptr<Subject> kernel = open(spec_), honest = open(base_spec_);
  if (!kernel || !honest) return;
  if (const auto apart = difference(*kernel, *honest, caught.problem))
    result_.shown_by = *apart + ": " + print_case(caught.problem);
}

std::optional<std::string> FaultTest::compare_over_list() {
  const std::unique_ptr<Subject> kernel = open(spec_), honest = open(base_spec_);
  if (!kernel || !honest) return std::nullopt;
  return first_difference(*kernel, *honest, work_, [&] { return !stopped(); });
}

std::optional<Detection> FaultTest::run(bool minimise_too) {
  // What else catches it is much the same in the other types.
  if (minimise_too) problems_after_catch_ = options_.problems_after_catch;
  spec_ = spec_of(options_.catalogue, kernel_of(entry_, dtype_));
  base_spec_ = spec_of(options_.catalogue, kernel_of(entry_.base, dtype_));
  if (!narrow_to_scope(spec_) || !narrow_to_scope(base_spec_)) {
    if (!error_.message.empty()) return std::nullopt;
    result_.outcome = Outcome::out_of_scope;
    return result_;
  }
  Workers workers(opener(spec_), 1, options_.shared);
  if (const auto refused = workers.start()) {
    error_ = {refused->message, refused->machine};
    return std::nullopt;
  }
  plan(workers.first().declaration());
  if (options_.within) {
    const auto apart = compare_over_list();
    if (!error_.message.empty() || stopped()) return std::nullopt;
    if (!apart) {
      result_.outcome = Outcome::out_of_scope;
      return result_;
    }
    result_.shown_by = *apart;
  }
  follow_list(workers);
  if (in_trouble(workers) || stopped()) return std::nullopt;
  if (caught_.empty()) {
    if (!options_.within) result_.shown_by = compare_over_list().value_or("");
    result_.outcome = result_.shown_by.empty() ? Outcome::unreachable : Outcome::escaped;
  } else {
    Caught telling = most_telling();
    if (minimise_too) minimise(workers, telling);
    if (in_trouble(workers)) return std::nullopt;
    show_change(telling);
    result_.outcome = result_.shown_by.empty() ? Outcome::unreachable : Outcome::caught;
  }
  if (!error_.message.empty() || stopped()) return std::nullopt;
  return result_;
}

}  // namespace

SubjectSpec spec_of(const Catalogue& catalogue, const std::string& kernel) {
  SubjectSpec spec;
  spec.path = catalogue.path;
  spec.kernel = kernel;
  return spec;
}

Detection described(const CatalogueEntry& entry, std::string dtype) {
  Detection result;
  result.id = entry.id;
  result.kind = entry.kind;
  result.sentence = entry.sentence;
  result.reference = entry.reference;
  result.base = entry.base;
  result.honest = entry.honest;
  result.dtype = std::move(dtype);
  return result;
}

std::optional<Detection> test_fault(const SelftestOptions& options, const CatalogueEntry& entry,
                                    DType dtype, bool minimise, RunError& error) {
  return FaultTest(options, entry, dtype, error).run(minimise);
}

std::optional<Detection> test_honest(const SelftestOptions& options, Detection kernel,
                                     const SubjectSpec& spec, const std::string& subject_text,
                                     RunError& error) {
  RunOptions run;
  run.subject = spec;
  run.subject_text = subject_text;
  run.suite = options.honest_suite;
  run.seed = options.seed;
  run.shrink = options.shrink;
  run.interrupted = options.interrupted;
  run.requirements = requirements_for(options);
  run.shared = options.shared;
  if (options.within) {
    OpenError refused;
    const std::unique_ptr<Subject> subject = open_in_host(spec, refused);
    if (!subject) {
      error = {refused.message, refused.machine};
      return std::nullopt;
    }
    const auto both = narrowed(subject->declaration(), *options.within);
    kernel.outcome = Outcome::out_of_scope;
    if (!both) return kernel;
    run.subject.declaration = both->text;
  }
  const Result<Record> record = run_suite(run, {}, error);
  if (!record || (options.interrupted && *options.interrupted)) return std::nullopt;
  if (record->verdict == SuiteVerdict::incomplete) {
    error = {fmt::format("{}: {}", subject_text, fmt::join(record->notes, "; ")), true};
    return std::nullopt;
  }
  for (const Failure& failure : record->failures)
    if (is_failure(failure.verdict))
      kernel.accusations.push_back(fmt::format("{}: {} {}: {}; {}", subject_text,
                                               failure.requirement, name(failure.reason),
                                               failure.detail, failure.replay));
  if (record->verdict == SuiteVerdict::too_little_tested)
    kernel.accusations.push_back(fmt::format("{}: too little tested", subject_text));
  kernel.outcome = kernel.accusations.empty() ? Outcome::accepted : Outcome::accused;
  kernel.cases = record->counts.total();
  kernel.seconds = record->wall_seconds;
  return kernel;
}

}  // namespace attest
