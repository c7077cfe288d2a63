// SPDX-License-Identifier: Apache-2.0
#include "harness/workers.hpp"

#include <exception>
#include <thread>

#include "harness/unit.hpp"

namespace attest {

std::optional<OpenError> Workers::start() {
  Worker& worker = workers_.front();
  OpenError error;
  worker.subject = open_(error);
  // One more try where the machine was the reason: a host may fail to start while memory is short.
  if (!worker.subject && error.machine) worker.subject = open_(error);
  if (!worker.subject) return error;
  worker.context = std::make_unique<CaseContext>(*worker.subject);
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
  worker.context = std::make_unique<CaseContext>(*worker.subject);
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
  result = check_case(requirement, *worker.context, problem);
  if (result.verdict != Verdict::error) return result;
  if (!reopen(worker)) return result;
  result = check_case(requirement, *worker.context, problem);
  if (result.verdict == Verdict::error) report_trouble(result.detail);
  return result;
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
