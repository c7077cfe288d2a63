// SPDX-License-Identifier: Apache-2.0
// The threads of a run, each with a subject (its own host process) and a context of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "harness/requirement.hpp"
#include "harness/subject.hpp"

namespace attest {

/// Opens the kernel of the run anew, in a fresh host.
using OpenSubject = std::function<std::unique_ptr<Subject>(OpenError&)>;

struct Worker {
  std::unique_ptr<Subject> subject;
  std::unique_ptr<CaseContext> context;
};

class Workers {
 public:
  Workers(OpenSubject open, int jobs) : open_(std::move(open)) {
    workers_.resize(static_cast<std::size_t>(jobs));
  }

  /// Opens the first subject; says why not.
  std::optional<OpenError> start();
  const Subject& first() const { return *workers_.front().subject; }

  /// body(worker, i) for i in [0, count), each i once, in ascending order of start. Ends early once
  /// `proceed(i)` is false or the machine is in trouble; what has started is finished.
  void for_each(std::size_t count, const std::function<bool(std::size_t)>& proceed,
                const std::function<void(Worker&, std::size_t)>& body);

  /// One check, with a second try in a fresh host where the first ended in Verdict::error. What
  /// still ends so is trouble.
  CaseResult check(Worker& worker, const Requirement& requirement, const AttentionProblem& problem);
  /// The same in a host that has made no other call.
  CaseResult check_fresh(const Requirement& requirement, const AttentionProblem& problem);

  /// A fresh subject for this worker; false: trouble.
  bool reopen(Worker& worker);

  void report_trouble(const std::string& what);
  /// What is wrong with the machine or the suite; "" while all is well.
  std::string trouble() const;

 private:
  OpenSubject open_;
  std::vector<Worker> workers_;
  mutable std::mutex mutex_;
  std::string trouble_;
  std::atomic<bool> in_trouble_{false};
};

}  // namespace attest
