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

/// "<detail>, on ID case line"
std::string trouble_sentence(const std::string& detail, const Requirement& requirement,
                             const AttentionProblem& problem);

class Workers {
 public:
  Workers(OpenSubject open, int jobs, SharedAnswers* shared = nullptr)
      : open_(std::move(open)), shared_(shared) {
    workers_.resize(static_cast<std::size_t>(jobs));
  }

  /// Opens the first subject; says why not.
  std::optional<OpenError> start();
  const Subject& first() const { return *workers_.front().subject; }

  /// body(worker, i) for i in [0, count), each i once, in ascending order of start. Ends early once
  /// `proceed(i)` is false or the machine is in trouble; what has started is finished.
  void for_each(std::size_t count, const std::function<bool(std::size_t)>& proceed,
                const std::function<void(Worker&, std::size_t)>& body);

  /// One check that insists where it ends in Verdict::error.
  CaseResult check(Worker& worker, const Requirement& requirement, const AttentionProblem& problem);
  /// The same in a host that has made no other call.
  CaseResult check_fresh(const Requirement& requirement, const AttentionProblem& problem);

  /// Something that needs the machine to do its part: "" where it did, else one line that says what
  /// went wrong and on which case.
  using Attempt = std::function<std::string(CaseContext&)>;
  /// The attempt, and where it went wrong again in fresh hosts. What goes wrong for good is
  /// trouble. A host that dies of SIGKILL says nothing of who sent it: the kernel is blamed only
  /// where it happens in one fresh host after the other, while another case works in each one
  /// between them and the system has killed nothing for want of memory.
  void insist(Worker& worker, const Attempt& attempt);

  /// A fresh subject for this worker; false: trouble.
  bool reopen(Worker& worker);

  void report_trouble(const std::string& what);
  /// What is wrong with the machine or the suite; "" while all is well.
  std::string trouble() const;

 private:
  enum class Blame : std::uint8_t { nobody, unknown, kernel };
  Blame who_kills(const Attempt& attempt);

  OpenSubject open_;
  SharedAnswers* shared_;
  std::vector<Worker> workers_;
  std::atomic<bool> kernel_kills_itself_{false};
  mutable std::mutex mutex_;
  std::string trouble_;
  std::atomic<bool> in_trouble_{false};
};

}  // namespace attest
