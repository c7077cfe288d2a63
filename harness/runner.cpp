// SPDX-License-Identifier: Apache-2.0
#include "harness/runner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/cluster.hpp"
#include "harness/diagnose.hpp"
#include "harness/findings.hpp"
#include "harness/journal.hpp"
#include "harness/machine_info.hpp"
#include "harness/measure_cache.hpp"
#include "harness/measure_memory.hpp"
#include "harness/pace.hpp"
#include "harness/tally.hpp"
#include "harness/unit.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string with_commas(std::size_t value) {
  std::string digits = std::to_string(value), text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

/// The state of one run, from the options to the record.
class Run {
 public:
  Run(const RunOptions& options, const std::function<void(const Progress&)>& progress)
      : options_(options),
        progress_(progress),
        start_(Clock::now()),
        workers_(
            options.open
                ? options.open
                : [spec = options.subject](OpenError& error) { return open_in_host(spec, error); },
            std::max(1, options.jobs), options.shared) {}

  std::optional<RunError> prepare();
  std::vector<std::string> list() const;
  void run_list();
  void find();
  void measure(Record& record);
  void finish(Record& record);

 private:
  std::optional<RunError> plan();
  std::optional<std::string> read_case_lines();
  std::optional<RunError> open_journal();
  JournalHeader journal_header() const;
  UnitResult check_with_retry(Worker& worker, const WorkUnit& unit);
  void note_stops(std::size_t position, double seconds);
  bool may_start(std::size_t position) const;
  void store(std::size_t position, UnitResult result, double seconds);
  void drop_beyond_stop();
  std::string cut_sentence() const;
  bool interrupted() const { return options_.interrupted && *options_.interrupted; }
  void describe_run(Record& record) const;
  void add_failures(Record& record);
  void add_notes(Record& record) const;
  void decide(Record& record) const;

  const RunOptions& options_;
  const std::function<void(const Progress&)>& progress_;
  Clock::time_point start_;
  Workers workers_;
  std::string kernel_name_, kernel_version_;

  WorkList work_;
  std::vector<const Requirement*> all_;  ///< that the filter left, also skipped ones
  std::int64_t planned_cases_ = 0;
  std::unique_ptr<Journal> journal_;
  std::string journal_trouble_;

  std::mutex mutex_;
  std::vector<UnitResult> results_;
  std::size_t done_ = 0;
  std::int64_t failed_ = 0;
  /// Positions past this one are not part of the run: the list stops at the first failure, or after
  /// too many calls that hung. Found by position, so that it is the same for any number of jobs.
  std::atomic<std::size_t> last_;
  std::map<std::size_t, double> slow_;  ///< by position: the seconds they took
  bool over_budget_ = false;
  std::string stop_reason_;
  std::vector<Finding> findings_;
};

std::optional<std::string> Run::read_case_lines() {
  for (std::size_t i = 0; i < options_.case_lines.size(); ++i) {
    const std::string where =
        fmt::format("{}:{}: ", options_.cases_name,
                    options_.case_line_numbers.empty() ? static_cast<int>(i) + 1
                                                       : options_.case_line_numbers[i]);
    Result<AttentionProblem> problem = parse_case(options_.case_lines[i]);
    if (!problem) return where + problem.error();
    if (const auto error = memory_error(*problem)) return where + *error;
    work_.given.push_back(std::move(*problem));
  }
  if (work_.given.empty()) return options_.cases_name + ": holds no case";
  work_.given_requirements = options_.case_requirements;
  return std::nullopt;
}

std::optional<RunError> Run::plan() {
  std::int64_t problems = 0;
  const Suite* suite = nullptr;
  if (!options_.cases_name.empty()) {
    if (const auto error = read_case_lines()) return RunError{*error};
    problems = static_cast<std::int64_t>(work_.given.size());
  } else {
    suite = find_suite(options_.suite);
    if (!suite) return RunError{"no suite of the name '" + options_.suite + "'"};
    problems = suite->problems;
  }
  // Copied now: a worker opens its subject anew where the machine was in trouble.
  kernel_name_ = workers_.first().kernel_name();
  kernel_version_ = workers_.first().version();
  work_.declaration = workers_.first().declaration();
  work_.seed = options_.seed;
  if (options_.most_call_seconds > 0)
    workers_.for_each(
        1, [](std::size_t) { return true; },
        [&](Worker& worker, std::size_t) {
          work_.most_triples = triples_within(*worker.subject, options_.most_call_seconds);
        });
  work_.audit_pairs = suite ? suite->audit_pairs : 100000;
  all_ = select_requirements(options_.requirements, suite, options_.filter);
  work_.requirements = not_skipped(all_, work_.declaration);
  if (all_.empty()) return RunError{"no requirement matches the filter '" + options_.filter + "'"};
  work_.units = plan_units(work_.requirements, problems, !work_.given.empty(), options_.shard);
  // Where each case has its requirement, what no wanted one speaks of is no unit.
  std::erase_if(work_.units, [this](const WorkUnit& unit) {
    if (!unit.is_shared())
      return !is_wanted(work_, unit, *work_.requirements[static_cast<std::size_t>(unit.stream)]);
    return std::none_of(work_.requirements.begin(), work_.requirements.end(),
                        [&](const Requirement* one) {
                          return !one->has_own_problems() && is_wanted(work_, unit, *one);
                        });
  });
  std::array<std::int64_t, kNamesOf<Operation>.size()> shared{};
  for (const Requirement* requirement : work_.requirements)
    if (!requirement->has_own_problems())
      ++shared[static_cast<std::size_t>(requirement->operation)];
  const bool one_each = !work_.given_requirements.empty();
  for (const WorkUnit& unit : work_.units)
    planned_cases_ +=
        !unit.is_shared() || one_each ? 1 : shared[static_cast<std::size_t>(unit.operation())];
  return std::nullopt;
}

JournalHeader Run::journal_header() const {
  std::string ids, cases;
  for (const Requirement* requirement : work_.requirements) ids += requirement->id + " ";
  for (std::size_t i = 0; i < work_.given.size(); ++i) {
    if (!work_.given_requirements.empty()) cases += work_.given_requirements[i] + " ";
    cases += print_case(work_.given[i]) + "; ";
  }
  return {{"version", tool_version()},
          {"commit", machine_info().commit},
          {"suite", options_.cases_name.empty() ? options_.suite : "cases"},
          {"cases", cases},
          {"seed", std::to_string(options_.seed)},
          {"shard", fmt::format("{}/{}", options_.shard.index, options_.shard.count)},
          {"kernel", kernel_name_},
          {"library", file_hash(options_.subject.program.empty() ? options_.subject.path
                                                                 : options_.subject.source)},
          {"declaration", work_.declaration.text},
          {"requirements", ids}};
}

std::optional<RunError> Run::open_journal() {
  if (options_.journal_path.empty()) return std::nullopt;
  JournalResults resumed;
  Result<std::unique_ptr<Journal>> journal =
      Journal::open(options_.journal_path, options_.resume, journal_header(), work_, resumed);
  // Nobody asked for this one: another run of the same kind may have it, or there may be no place.
  if (!journal && !options_.keep_journal && !options_.resume) return std::nullopt;
  if (!journal) return RunError{journal.error()};
  journal_ = std::move(*journal);
  for (auto& [position, result] : resumed) {
    if (const auto problem = problem_of(work_, work_.units[position]))
      describe_unit(*problem, result);
    results_[position] = std::move(result);
    ++done_;
    note_stops(position, 0);
  }
  return std::nullopt;
}

std::optional<RunError> Run::prepare() {
  if (auto error = workers_.start()) return RunError{error->message, error->machine};
  if (auto error = plan()) return error;
  results_.resize(work_.units.size());
  last_ = work_.units.size();
  return open_journal();
}

std::vector<std::string> Run::list() const {
  std::vector<std::string> lines;
  for (const WorkUnit& unit : work_.units) {
    const std::optional<AttentionProblem> problem = problem_of(work_, unit);
    if (!problem) continue;
    const std::string line = print_case(*problem);
    for (const std::size_t r : requirements_of(work_, unit, *problem))
      lines.push_back(work_.requirements[r]->id + " " + line);
  }
  return lines;
}

UnitResult Run::check_with_retry(Worker& worker, const WorkUnit& unit) {
  UnitResult result;
  workers_.insist(worker, [&](CaseContext& context) -> std::string {
    result = check_unit(work_, unit, context);
    for (const CaseOutcome& outcome : result.cases)
      if (outcome.verdict == Verdict::error)
        return trouble_sentence(outcome.detail,
                                *work_.requirements[static_cast<std::size_t>(outcome.requirement)],
                                *problem_of(work_, unit));
    return "";
  });
  return result;
}

/// Failing cases may end the list. Every call that hangs or eats memory costs a tenth of a second
/// or more, one that sleeps a second: a kernel that does so in one of twenty problems would take
/// minutes to show nothing new.
void Run::note_stops(std::size_t position, double seconds) {
  constexpr std::size_t kMostSlow = 500;
  bool failing = false, slow = false;
  for (const CaseOutcome& outcome : results_[position].cases) {
    failed_ += is_failure(outcome.verdict);
    failing |= is_failure(outcome.verdict);
    slow |= outcome.verdict == Verdict::hang || outcome.verdict == Verdict::out_of_memory;
  }
  if (failing && options_.stop_at_first && position < last_) {
    last_ = position;
    stop_reason_ = "the first failure";
  }
  if (!slow) return;
  slow_[position] = seconds;
  double lost = 0;
  std::size_t problems = 0;
  for (const auto& [at, its_seconds] : slow_) {
    lost += its_seconds;
    if (++problems < kMostSlow && lost < options_.most_lost_seconds) continue;
    if (at >= last_) return;
    last_ = at;
    stop_reason_ = fmt::format("{} problems that hung or ate memory", problems);
    return;
  }
}

bool Run::may_start(std::size_t position) const {
  if (interrupted() || position > last_) return false;
  return options_.time_budget_seconds <= 0 || seconds_since(start_) < options_.time_budget_seconds;
}

void Run::store(std::size_t position, UnitResult result, double seconds) {
  const bool trouble = !workers_.trouble().empty();
  const std::lock_guard lock(mutex_);
  results_[position] = std::move(result);
  if (!trouble && journal_ && journal_trouble_.empty() &&
      !journal_->append(work_, work_.units[position], results_[position]))
    journal_trouble_ = "journal " + options_.journal_path + ": " + std::strerror(errno);
  ++done_;
  note_stops(position, seconds);
  if (progress_)
    progress_({static_cast<std::int64_t>(done_), static_cast<std::int64_t>(work_.units.size()),
               failed_, false, seconds_since(start_)});
}

void Run::run_list() {
  std::vector<std::size_t> todo;
  for (std::size_t position = 0; position < work_.units.size(); ++position)
    if (!results_[position].done && position <= last_) todo.push_back(position);
  workers_.for_each(
      todo.size(), [&](std::size_t i) { return may_start(todo[i]); },
      [&](Worker& worker, std::size_t i) {
        const auto begin = Clock::now();
        UnitResult result = check_with_retry(worker, work_.units[todo[i]]);
        store(todo[i], std::move(result), seconds_since(begin));
      });
  over_budget_ = !interrupted() && workers_.trouble().empty() &&
                 std::any_of(todo.begin(), todo.end(), [&](std::size_t position) {
                   return !results_[position].done && position <= last_;
                 });
  drop_beyond_stop();
}

void Run::drop_beyond_stop() {
  for (std::size_t position = last_; ++position < results_.size();) results_[position] = {};
  done_ = static_cast<std::size_t>(std::count_if(
      results_.begin(), results_.end(), [](const UnitResult& result) { return result.done; }));
}

void Run::find() {
  if (progress_)
    progress_({static_cast<std::int64_t>(done_), static_cast<std::int64_t>(work_.units.size()),
               failed_, true, seconds_since(start_)});
  FindingOptions finding;
  finding.shrink = options_.shrink;
  finding.total_seconds = options_.finding_seconds;
  finding.reruns = options_.reruns;
  finding.interrupted = options_.interrupted;
  findings_ = find_causes(work_, results_, workers_, finding);
}

/// Once per run, by its first shard, where there is time for it.
void Run::measure(Record& record) {
  const bool wanted = options_.most_call_seconds <= 0 && options_.cases_name.empty() &&
                      options_.filter.empty() && options_.shard.index == 1 &&
                      !options_.suite.starts_with("smoke");
  if (!wanted || over_budget_ || interrupted() || !workers_.trouble().empty()) return;
  const std::vector<AttentionProblem> calls = measured_calls(work_.declaration);
  std::string trouble;
  // One after the other: what is long takes memory of the machine too.
  workers_.for_each(
      1, [](std::size_t) { return true; },
      [&](Worker& worker, std::size_t) {
        for (const AttentionProblem& call : calls) {
          if (interrupted()) return;
          std::optional<CallMemory> memory = measure_memory(*worker.context, call, trouble);
          if (memory) record.memory.push_back(std::move(*memory));
          if (memory || trouble.empty()) continue;
          trouble =
              fmt::format("the memory of '{}' was not measured: {}", print_case(call), trouble);
          return;
        }
        std::string of_caches;
        record.kv_cache = measure_caches(*worker.subject, {.cpu_seconds = 10}, of_caches);
        if (!of_caches.empty())
          record.notes.push_back("the bytes of a cache were not measured: " + of_caches);
      });
  if (!trouble.empty()) record.notes.push_back(trouble);
}

std::string Run::cut_sentence() const {
  if (done_ == work_.units.size()) return "";
  const std::string where =
      fmt::format("after {} of {} problems", with_commas(done_), with_commas(work_.units.size()));
  if (interrupted()) return where + ", interrupted";
  if (!workers_.trouble().empty()) return where + ", trouble of the machine";
  if (over_budget_) return where + ", by the time budget";
  return where + ", at " + stop_reason_;
}

void Run::describe_run(Record& record) const {
  record.tool_version = tool_version();
  record.command = options_.command;
  record.subject.name = kernel_name_;
  record.subject.version = kernel_version_;
  record.subject.path = options_.subject.path;
  record.subject.declaration = work_.declaration.text;
  record.subject.built_in = options_.subject.built_in;
  for (const DType dtype : kAllDTypes)
    if (work_.declaration.has(dtype))
      add_precision(work_.declaration, dtype, record.subject.precision);
  record.machine = machine_info();
  record.suite = options_.last_failed          ? "last-failed"
                 : options_.cases_name.empty() ? options_.suite
                                               : "cases:" + options_.cases_name;
  record.seed = options_.seed;
  record.shard = fmt::format("{}/{}", options_.shard.index, options_.shard.count);
}

void Run::add_failures(Record& record) {
  for (const Finding& finding : findings_) {
    record.failures.push_back(failure_of(work_, finding, options_.subject_text));
  }
  cluster(work_, results_, findings_, record);
  if (!interrupted()) diagnose(work_, results_, findings_, workers_, record);
  merge_causes_of_one_diagnosis(record);
}

void Run::add_notes(Record& record) const {
  if (const std::string trouble = workers_.trouble(); !trouble.empty())
    record.notes.push_back("the run could not go on: " + trouble);
  if (!journal_trouble_.empty()) record.notes.push_back(journal_trouble_);
  if (interrupted())
    record.notes.push_back(journal_ ? "interrupted; the same command with --resume goes on"
                                    : "interrupted");
  if (record.audit.outside != 0)
    record.notes.push_back("the oracle failed its audit: " + record.audit.first_outside);
}

void Run::decide(Record& record) const {
  record.verdict = suite_verdict(record, planned_cases_);
  const bool cut_short = over_budget_ && options_.cut_is_incomplete;
  if (interrupted() || !workers_.trouble().empty() || cut_short)
    record.verdict = SuiteVerdict::incomplete;
}

void Run::finish(Record& record) {
  describe_run(record);
  tally(work_, all_, results_, record);
  record.scope.cut = cut_sentence();
  count_flaky_as_warnings(work_, results_, findings_, record);
  add_failures(record);
  // Where only part of the list ran, an expected failure may simply not have had its turn.
  const bool whole = record.scope.cut.empty() && options_.shard.count == 1 && work_.given.empty();
  apply_expectations(options_.expectations, utc_now().substr(0, 10), whole, record);
  add_notes(record);
  decide(record);
  const bool to_the_end = !interrupted() && workers_.trouble().empty() && !over_budget_;
  if (journal_ && !options_.keep_journal && to_the_end) journal_->discard();
}

}  // namespace

Result<Record> run_suite(const RunOptions& options,
                         const std::function<void(const Progress&)>& progress, RunError& error) {
  const Clock::time_point start = Clock::now();
  const double cpu_before = cpu_seconds_used();
  Record record;
  record.started = utc_now();
  {
    Run run(options, progress);
    if (auto refused = run.prepare()) {
      error = *refused;
      return Error{error.message};
    }
    run.run_list();
    run.find();
    run.measure(record);
    run.finish(record);
  }
  // The hosts have ended now, so that their time counts.
  record.wall_seconds = seconds_since(start);
  record.cpu_seconds = cpu_seconds_used() - cpu_before;
  return record;
}

Result<std::vector<std::string>> list_cases(const RunOptions& options, RunError& error) {
  RunOptions without_journal = options;
  without_journal.journal_path.clear();
  const std::function<void(const Progress&)> silent;
  Run run(without_journal, silent);
  if (auto refused = run.prepare()) {
    error = *refused;
    return Error{error.message};
  }
  return run.list();
}

}  // namespace attest
