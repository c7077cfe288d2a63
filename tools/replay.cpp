// SPDX-License-Identifier: Apache-2.0
// attest replay: one case again, with all requirements that speak of it or one of them.
#include <fmt/format.h>

#include "harness/describe.hpp"
#include "harness/requirement.hpp"
#include "harness/unit.hpp"
#include "harness/workers.hpp"
#include "tools/command.hpp"
#include "tools/probe_subject.hpp"

namespace attest {

namespace {

/// Why this requirement has nothing to say about the problem; nullopt where it has.
std::optional<std::string> passed_by(const Requirement& requirement,
                                     const AttentionProblem& problem,
                                     const Declaration& declaration) {
  if (const auto why = skipped(requirement, declaration)) return why;
  if (!requirement.has_own_problems())
    if (const auto why = not_declared(declaration, problem)) return "not declared: " + *why;
  if (requirement.usable(problem, declaration) != problem) return "not a case of this requirement";
  return std::nullopt;
}

struct Tally {
  int failed = 0, judged = 0, errors = 0;
};

void print_result(const Requirement& requirement, const AttentionProblem& problem,
                  CaseContext& context, const CaseResult& result) {
  std::string line = fmt::format("{:<14} {}", name(result.verdict), requirement.id);
  if (result.reason != Reason::none) line += fmt::format(" {}", name(result.reason));
  if (!result.detail.empty() && result.verdict != Verdict::pass) line += ": " + result.detail;
  fmt::print("{}\n", line);
  if (!is_failure(result.verdict)) return;
  std::string pattern;
  std::vector<std::string> numbers;
  describe(result, problem, context, pattern, numbers);
  if (!pattern.empty()) fmt::print("    in {}\n", pattern);
  for (const std::string& number : numbers) fmt::print("    {}\n", number);
}

void check_one(const Requirement& requirement, const AttentionProblem& problem,
               const SubjectSpec& spec, Tally& tally) {
  // A fresh host for each: no requirement sees what another left behind.
  Workers workers([&spec](OpenError& error) { return open_in_host(spec, error); }, 1);
  Worker worker;
  const CaseResult result = workers.check(worker, requirement, problem);
  if (!worker.context) throw CommandError(workers.trouble(), ExitCode::suite_failed);
  tally.failed += is_failure(result.verdict);
  tally.errors += result.verdict == Verdict::error;
  tally.judged += result.verdict != Verdict::unsupported && result.verdict != Verdict::not_judged;
  print_result(requirement, problem, *worker.context, result);
}

ExitCode run(const Arguments& arguments) {
  const AttentionProblem problem = read_case_argument(arguments.positional("CASE"));
  SubjectSpec spec = read_subject(arguments.positional("SUBJECT"));
  assume_declaration(spec);
  const std::unique_ptr<Subject> subject = open_subject(spec);
  const std::string wanted = arguments.value("--requirement");
  if (!wanted.empty() && !find_requirement(wanted)) {
    std::vector<std::string> ids;
    for (const Requirement& requirement : requirements()) ids.push_back(requirement.id);
    throw CommandError("no requirement '" + wanted + "'" + suggestion(wanted, ids));
  }
  Tally tally;
  int passed_by_count = 0;
  for (const Requirement& requirement : requirements()) {
    if (!wanted.empty() && requirement.id != wanted) continue;
    if (const auto why = passed_by(requirement, problem, subject->declaration())) {
      ++passed_by_count;
      if (!wanted.empty()) fmt::print("{:<14} {}: {}\n", "not checked", requirement.id, *why);
      continue;
    }
    check_one(requirement, problem, spec, tally);
  }
  if (wanted.empty())
    fmt::print("{} checked, {} failed; {} requirements do not speak of this case\n", tally.judged,
               tally.failed, passed_by_count);
  if (tally.errors > 0) return ExitCode::suite_failed;
  if (tally.failed > 0) return ExitCode::failed;
  return tally.judged > 0 ? ExitCode::conformant : ExitCode::too_little_tested;
}

ATTEST_COMMAND(
    replay,
    {
        .name = "replay",
        .summary = "run one case again",
        .examples =
            "Examples:\n"
            "  attest replay 'attention.forward lq=2 lk=3 base=causal seed=7' ./libmine.so\n"
            "  attest replay 'attention.forward lq=2 lk=3' naive --requirement ORACLE-O\n"
            "The same line gives the same bits everywhere. Exit code 1 where something fails, 4 "
            "where "
            "nothing could be checked.",
        .positionals =
            {{"CASE", "a case line, in quotes (docs/case-line.md)"},
             {"SUBJECT",
              "a built-in name, a library, library#kernel, FILE.py::NAME, jsonl:PROGRAM"}},
        .options = {{"--requirement", "ID", "only this one"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
