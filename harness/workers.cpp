// SPDX-License-Identifier: Apache-2.0
#include "harness/workers.hpp"

#include <exception>
#include <fstream>
#include <thread>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/unit.hpp"

namespace attest {

std::string trouble_sentence(const std::string& detail, const Requirement& requirement,
                             const AttentionProblem& problem) {
  return (detail.empty() ? "the kernel host failed" : detail) + ", on " + requirement.id + " " +
         print_case(problem);
}

std::optional<OpenError> Workers::start() {
  Worker& worker = workers_.front();
  OpenError error;
  worker.subject = open_(error);
  // One more try where the machine was the reason: a host may fail to start while memory is short.
  if (!worker.subject && error.machine) worker.subject = open_(error);
  if (!worker.subject) return error;
  worker.context = std::make_unique<CaseContext>(*worker.subject, shared_);
  worker.context->kills_itself = &kernel_kills_itself_;
  return std::nullopt;
}

bool Workers::reopen(Worker& worker) {
  worker.context.reset();
  worker.subject.reset();
  OpenError error;
  for (int attempt = 0; attempt < 2 && !worker.subject; ++attempt) worker.subject = open_(error);
  if (!worker.subject) {
    report_trouble(error.message);
    return false;
  }
  worker.context = std::make_unique<CaseContext>(*worker.subject, shared_);
  worker.context->kills_itself = &kernel_kills_itself_;
  return true;
}

void Workers::for_each(std::size_t count, const std::function<bool(std::size_t)>& proceed,
                       const std::function<void(Worker&, std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&](Worker& worker) {
    try {
      while (!in_trouble_) {
        const std::size_t i = next++;
        if (i >= count || !proceed(i)) return;
        if (!worker.context && !reopen(worker)) return;
        body(worker, i);
      }
    } catch (const std::exception& exception) {
      report_trouble(exception.what());
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t w = 1; w < workers_.size() && w < count; ++w)
    threads.emplace_back(work, std::ref(workers_[w]));
  work(workers_.front());
  for (std::thread& thread : threads) thread.join();
}

CaseResult Workers::check(Worker& worker, const Requirement& requirement,
                          const AttentionProblem& problem) {
  CaseResult result;
  result.verdict = Verdict::error;
  if (!worker.context && !reopen(worker)) return result;
  insist(worker, [&](CaseContext& context) -> std::string {
    result = check_case(requirement, context, problem);
    return result.verdict == Verdict::error ? trouble_sentence(result.detail, requirement, problem)
                                            : "";
  });
  return result;
}

void Workers::insist(Worker& worker, const Attempt& attempt) {
  // Whoever kills processes from outside may hit the same case more than once.
  constexpr int kRetries = 1, kRetriesOfKilled = 3;
  std::string wrong = attempt(*worker.context);
  bool killed = worker.context->host_killed();
  for (int retry = 0; !wrong.empty() && retry < (killed ? kRetriesOfKilled : kRetries); ++retry) {
    if (!reopen(worker)) return;
    wrong = attempt(*worker.context);
    killed = worker.context->host_killed();
  }
  if (wrong.empty()) return;
  const Blame blame = killed ? who_kills(attempt) : Blame::unknown;
  if (blame == Blame::unknown) report_trouble(wrong);
  // The attempt of who_kills() went well, or what it ends in is now a verdict on the kernel.
  if (blame == Blame::kernel && reopen(worker))
    if (wrong = attempt(*worker.context); !wrong.empty()) report_trouble(wrong);
}

namespace {

/// Processes that Linux has killed for want of memory since it was started; nullopt: it does not
/// say.
std::optional<std::int64_t> killed_for_memory() {
  std::ifstream file("/proc/vmstat");
  std::string key;
  for (std::int64_t value = 0; file >> key >> value;)
    if (key == "oom_kill") return value;
  return std::nullopt;
}

/// A case that any kernel that works at all comes back from, be it with a refusal.
bool plain_call_returns(CaseContext& context) {
  AttentionProblem plain;
  plain.dtype = context.declaration().dtypes.front();
  if (const DimSet& dims = context.declaration().head_dims; !dims.empty())
    plain.head_dim = plain.v_head_dim = dims.front().first;
  context.limits = call_limits(plain);
  return !context.call(plain, make_inputs(plain)).call.accident;
}

}  // namespace

Workers::Blame Workers::who_kills(const Attempt& attempt) {
  // With every second call killed from outside, one in 65,536 times this looks like the kernel.
  constexpr int kRounds = 8;
  const auto before = killed_for_memory();
  for (int round = 0; round < kRounds; ++round) {
    Worker other, same;
    if (!reopen(other) || !plain_call_returns(*other.context)) return Blame::unknown;
    if (!reopen(same)) return Blame::unknown;
    if (attempt(*same.context).empty()) return Blame::nobody;
    if (!same.context->host_killed()) return Blame::unknown;
  }
  if (!before || before != killed_for_memory()) return Blame::unknown;
  kernel_kills_itself_ = true;
  return Blame::kernel;
}

CaseResult Workers::check_fresh(const Requirement& requirement, const AttentionProblem& problem) {
  Worker fresh;
  return check(fresh, requirement, problem);
}

void Workers::report_trouble(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (trouble_.empty()) trouble_ = what.empty() ? "the kernel host failed" : what;
  in_trouble_ = true;
}

std::string Workers::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

}  // namespace attest
