// SPDX-License-Identifier: Apache-2.0
#include "harness/selftest.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <mutex>
#include <thread>

#include "harness/fault_trial.hpp"
#include "harness/machine_info.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

/// What kernels share. The suite quick asks an honest forward kernel for 40,000 answers in 4 GB,
/// and kernels start one after the other: with less room the next one finds what it asks for first
/// gone.
std::size_t most_shared_bytes() { return static_cast<std::size_t>(memory_bytes()) / 3; }

/// nullopt: all types of one kernel at once.
using Part = std::optional<DType>;

std::string text_of(const Part& part) { return part ? std::string(name(*part)) : "all"; }

/// Everything of one id: its parts are tested one after the other, since one of them is shrunk.
struct Job {
  const CatalogueEntry* entry = nullptr;
  const HonestKernel* elsewhere = nullptr;
  std::vector<Part> parts;
  std::vector<Detection> results;
  const std::string& id() const { return entry ? entry->id : elsewhere->id; }
};

/// f32 first: its cases are the cheapest to shrink and the easiest to read.
std::vector<Part> parts_of(const CatalogueEntry& entry, const std::optional<DType>& wanted) {
  if (entry.whole && !wanted) return {Part{}};
  std::vector<Part> parts;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    if (std::count(entry.dtypes.begin(), entry.dtypes.end(), dtype) > 0 &&
        (!wanted || *wanted == dtype))
      parts.emplace_back(dtype);
  return parts;
}

std::vector<Job> plan_jobs(const SelftestOptions& options) {
  const auto wanted = [&](const std::string& id) {
    return options.filter.empty() || glob_match(options.filter, id);
  };
  std::vector<Job> jobs;
  for (const bool honest : {true, false}) {
    if (!honest && options.honest_only) break;
    if (honest && !options.dtype)
      for (const HonestKernel& kernel : options.more_honest)
        if (wanted(kernel.id)) jobs.push_back({nullptr, &kernel, {Part{}}, {}});
    for (const CatalogueEntry& entry : options.catalogue.entries) {
      if (entry.honest != honest || !wanted(entry.id)) continue;
      Job job{&entry, nullptr, parts_of(entry, options.dtype), {}};
      if (!job.parts.empty()) jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

class Selftest {
 public:
  Selftest(const SelftestOptions& options,
           const std::function<void(const SelftestProgress&)>& progress, RunError& error)
      : options_(options), progress_(progress), error_(error), jobs_(plan_jobs(options)) {
    for (const Job& job : jobs_) state_.total += std::ssize(job.parts);
  }

  bool nothing_to_do() const { return jobs_.empty(); }
  void run();
  std::vector<Detection> results() const;

 private:
  bool proceed();
  void work();
  void work_on(Job& job);
  std::optional<Detection> test(const Job& job, const Part& part, bool minimise);
  const Detection* known(const std::string& id, const std::string& dtype) const;
  void store(Job& job, Detection result, bool is_new);

  const SelftestOptions& options_;
  const std::function<void(const SelftestProgress&)>& progress_;
  RunError& error_;
  std::vector<Job> jobs_;
  std::atomic<std::size_t> next_{0};
  std::mutex mutex_;
  SelftestProgress state_;
  const Clock::time_point start_ = Clock::now();
};

const Detection* Selftest::known(const std::string& id, const std::string& dtype) const {
  for (const Detection& done : options_.done)
    if (done.id == id && done.dtype == dtype) return &done;
  return nullptr;
}

void Selftest::store(Job& job, Detection result, bool is_new) {
  const std::lock_guard lock(mutex_);
  ++state_.done;
  state_.escaped += result.outcome == Outcome::escaped || result.outcome == Outcome::unreachable;
  state_.accused += !result.accusations.empty();
  state_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (is_new && options_.on_result) options_.on_result(result);
  job.results.push_back(std::move(result));
  if (progress_) progress_(state_);
}

bool Selftest::proceed() {
  const std::lock_guard lock(mutex_);
  return error_.message.empty() && !(options_.interrupted && *options_.interrupted);
}

std::optional<Detection> Selftest::test(const Job& job, const Part& part, bool minimise) {
  RunError error;
  std::optional<Detection> result;
  try {
    if (job.elsewhere) {
      Detection kernel;
      kernel.id = job.elsewhere->id;
      kernel.kind = "built-in";
      kernel.sentence = "a built-in implementation";
      kernel.dtype = text_of(part);
      kernel.honest = true;
      result =
          test_honest(options_, kernel, job.elsewhere->subject, job.elsewhere->subject_text, error);
    } else if (job.entry->honest) {
      const SubjectSpec spec =
          spec_of(options_.catalogue, part ? kernel_of(*job.entry, *part) : job.entry->id);
      result = test_honest(options_, described(*job.entry, text_of(part)), spec,
                           options_.library_text + "#" + spec.kernel, error);
    } else {
      result = test_fault(options_, *job.entry, part.value(), minimise, error);
    }
  } catch (const std::exception& exception) {
    error = {exception.what(), true};
  }
  if (error.message.empty()) return result;
  const std::lock_guard lock(mutex_);
  if (error_.message.empty()) error_ = error;
  return std::nullopt;
}

void Selftest::work_on(Job& job) {
  bool shrunk = false;
  for (const Part& part : job.parts) {
    const Detection* done = known(job.id(), text_of(part));
    if (!done && !proceed()) return;
    const std::optional<Detection> result = done ? *done : test(job, part, !shrunk);
    if (!result) return;
    shrunk |= !result->minimal.empty();
    store(job, *result, !done);
  }
}

void Selftest::work() {
  for (std::size_t i = next_++; i < jobs_.size(); i = next_++) work_on(jobs_[i]);
}

void Selftest::run() {
  std::vector<std::thread> threads;
  for (int t = 1; t < options_.jobs; ++t) threads.emplace_back([this] { work(); });
  work();
  for (std::thread& thread : threads) thread.join();
}

std::vector<Detection> Selftest::results() const {
  std::vector<Detection> all;
  for (const Job& job : jobs_)
    std::copy(job.results.begin(), job.results.end(), std::back_inserter(all));
  return all;
}

}  // namespace

Result<std::vector<Detection>> run_selftest(
    const SelftestOptions& options, const std::function<void(const SelftestProgress&)>& progress,
    RunError& error) {
  for (const std::string& suite : {options.suite, options.honest_suite})
    if (!find_suite(suite)) {
      error = {"no suite of the name '" + suite + "'", false};
      return Error{error.message};
    }
  SharedAnswers shared(most_shared_bytes());
  SelftestOptions sharing = options;
  if (!sharing.shared) sharing.shared = &shared;
  Selftest selftest(sharing, progress, error);
  if (selftest.nothing_to_do()) {
    error = {options.catalogue.path + ": holds no kernel that was asked for", false};
    return Error{error.message};
  }
  selftest.run();
  if (!error.message.empty()) return Error{error.message};
  return selftest.results();
}

}  // namespace attest
