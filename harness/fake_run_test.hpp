// SPDX-License-Identifier: Apache-2.0
// A kernel that is never called and requirements that decide from the problem alone: what a run
// must find is known beforehand.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "attest/case_line.hpp"
#include "harness/arena.hpp"
#include "harness/runner.hpp"

namespace attest {

class FakeSubject : public Subject {
 public:
  explicit FakeSubject(const std::string& declaration)
      : declaration_(*parse_declaration(declaration)) {}
  const std::string& kernel_name() const override { return name_; }
  const std::string& version() const override { return version_; }
  const Declaration& declaration() const override { return declaration_; }
  int alignment() const override { return 0; }
  Arena& arena() override { return arena_; }
  CallStatus call(const PlacedCall&, const CallLimits&) override { return {}; }

 private:
  std::string name_ = "fake", version_ = "1.0";
  Declaration declaration_;
  Arena arena_;
};

inline constexpr const char* kFakeDeclaration =
    "dtype=f32,bf16 head_dim=1..64 v_head_dim=any features=all deterministic";

/// Shared problems of a fake run, and the units it has with those of kLongHeads.
inline const std::int64_t kProblems = find_suite("smoke")->problems;
inline const std::int64_t kUnits = kProblems + kProblems / 2;

inline CaseResult fake_failure(Reason reason, const std::string& detail,
                               Verdict verdict = Verdict::fail) {
  CaseResult result;
  result.verdict = verdict;
  result.reason = reason;
  result.detail = detail;
  return result;
}

/// Options of a smoke run of the fake kernel, with these requirements.
inline RunOptions fake_options(std::vector<const Requirement*> requirements) {
  RunOptions options;
  options.suite = "smoke";
  options.subject_text = "fake";
  options.requirements = std::move(requirements);
  options.reruns = 2;
  options.open = [](OpenError&) { return std::make_unique<FakeSubject>(kFakeDeclaration); };
  return options;
}

inline Record run_fake(const RunOptions& options,
                       const std::function<void(const Progress&)>& progress = {}) {
  RunError error;
  const Result<Record> record = run_suite(options, progress, error);
  if (!record) throw std::runtime_error(record.error());
  return *record;
}

/// Why a run was refused.
inline std::string refusal(const RunOptions& options) {
  RunError error;
  const Result<Record> record = run_suite(options, {}, error);
  return record ? "ran" : error.machine ? "machine: " + error.message : error.message;
}

inline std::string with_comma(std::int64_t value) {
  return value < 1000 ? std::to_string(value)
                      : std::to_string(value / 1000) + "," + std::to_string(value + 1000).substr(1);
}
inline std::string cut_after(std::int64_t done, std::int64_t total) {
  return "after " + with_comma(done) + " of " + with_comma(total) + " problems";
}

/// All of a record but times and notes, as text.
inline std::string fingerprint(const Record& record) {
  const auto counts = [](const Counts& c) {
    return fmt::format("{} {} {} {} {} {} {} {} {}", c.pass, c.warn, c.fail, c.crash, c.hang,
                       c.out_of_memory, c.unsupported, c.not_judged, c.error);
  };
  std::string text =
      fmt::format("{} {} {} {} {} {}\n", name(record.verdict), record.suite, record.seed,
                  record.shard, counts(record.counts), record.scope.cut);
  for (const auto& r : record.requirements) {
    text += fmt::format("{} {} {} {}\n", r.id, counts(r.counts), r.skipped, r.detail);
    for (const auto& [dtype, c] : r.by_dtype) text += fmt::format("  {} {}\n", dtype, counts(c));
  }
  for (const auto& c : record.causes)
    text += fmt::format("{} {} {} {} {} {} {}\n", c.id, name(c.verdict), name(c.reason), c.sentence,
                        c.cases, c.smallest, fmt::join(c.caught_by, ","));
  for (const auto& f : record.failures)
    text += fmt::format("{} {} {} {} {} {} {} {}/{} {}\n", f.cause, f.requirement, name(f.verdict),
                        name(f.reason), f.case_line, f.found_case_line, f.detail, f.reruns_failed,
                        f.reruns, f.fully_shrunk);
  for (const auto& m : record.matrix)
    text += fmt::format("{} {} {} {} {}\n", m.feature, m.dtype, m.cases, m.failed, m.unsupported);
  for (const auto& r : record.ratios)
    text += fmt::format("{} {} {} {} {} {} {} {} {}\n", r.output, r.dtype, r.cases, r.elements,
                        r.q10, r.q50, r.q90, r.max, r.worst_case);
  text += fmt::format("{} {}\n{}\n", record.audit.rows, record.audit.elements,
                      fmt::join(record.scope.not_tested, "; "));
  return text + fmt::format("{}\n{}", fmt::join(record.scope.head_dims, " "),
                            fmt::join(record.scope.features, " "));
}

/// A folder of the test's own, removed with it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "attest-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The planted requirements.

/// Passes, with a ratio that is a function of the problem.
inline const Requirement kHonest{
    .id = "A-HONEST",
    .sentence = "always holds",
    .check = [](CaseContext&, const AttentionProblem& problem) {
      CaseResult result;
      result.ratio_output = "o";
      result.elements_compared = problem.q_len;
      result.worst_ratio = static_cast<double>((problem.seed * 2654435761u) % 1000) / 1000;
      return result;
    }};

/// Fails as a top-left causal mask does.
inline const Requirement kTopLeft{.id = "B-TOPLEFT",
                                  .sentence = "causal masks are aligned as asked",
                                  .check = [](CaseContext&, const AttentionProblem& problem) {
                                    return problem.base == Base::causal &&
                                                   problem.q_len != problem.kv_len
                                               ? fake_failure(Reason::wrong_value, "wrong mask")
                                               : CaseResult{};
                                  }};

/// Problems of its own; fails for long heads.
inline const Requirement kLongHeads{
    .id = "C-LONGHEADS",
    .sentence = "long heads work",
    .adapt = [](AttentionProblem problem, const Declaration&) -> std::optional<AttentionProblem> {
      if (problem.head_dim % 2 == 1 && problem.rope == RopePairing::none) return std::nullopt;
      problem.want_lse = true;
      return problem;
    },
    .check =
        [](CaseContext&, const AttentionProblem& problem) {
          return problem.head_dim > 16
                     ? fake_failure(Reason::none, "signal 11 (SIGSEGV)", Verdict::crash)
                     : CaseResult{};
        },
    .share = 500};

}  // namespace attest
