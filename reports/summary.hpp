// SPDX-License-Identifier: Apache-2.0
// The sentences that terminal, Markdown, JUnit and the table say alike. All of it is plain text,
// already safe on a terminal (text.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attest/record.hpp"

namespace attest {

/// "CONFORMANT", "NOT CONFORMANT", "TOO LITTLE TESTED", "INCOMPLETE"
std::string_view verdict_word(SuiteVerdict verdict);

/// "naive 1.0"
std::string subject_name(const Record& record);
/// Whether a record's kernel is a program (tools/program_subject.hpp): no `#name` follows it.
bool names_program(const std::string& path);
/// How the command line names the subject, for a shell: a built-in's name, library#kernel, or a
/// program.
std::string subject_word(const Record& record);

/// What the verdict rests on: "412 of 20,312 cases fail, 3 causes".
std::string verdict_sentence(const Record& record);
/// "suite quick, seed 1, 48.2 s"; the shard where there is more than one.
std::string run_sentence(const Record& record);

/// The verdicts that occurred: "19,870 pass, 412 fail, 30 unsupported".
std::string verdict_counts(const Counts& counts);

/// A cause with the failure that shows it best.
struct CauseView {
  const Cause* cause = nullptr;
  const Failure* smallest = nullptr;
  bool expected = false;  ///< every failure of it is covered by the expectations file
  /// Nothing to turn a build red: expected, or known from the baseline.
  bool known() const { return expected || cause->known; }
};

/// What needs attention first: new failures, then known ones, then warnings; else as recorded.
/// Causes without a failure to show (a damaged record) are left out.
std::vector<CauseView> causes_by_urgency(const Record& record);

/// "fail, wrong_value: wrong o where ..."; "(expected)" where it is.
std::string cause_sentence(const CauseView& view);
/// "f32 bf16, 311 cases"
std::string cause_extent(const Cause& cause);
/// "o[0,0,1,0]: expected 0.5, got 0, tolerance 2.4e-07 (2e+06 times as much)"; "" without numbers.
std::string worst_sentence(const Failure& failure);
/// Where the wrong elements lie: "1 of 2 elements, query row 1 of 2"; "" where nothing is known.
std::string where_sentence(const Failure& failure);
/// "10/10 reruns fail the same way"
std::string reruns_sentence(const Failure& failure);

/// The dtypes of the run, in the order of the scope.
std::vector<std::string> dtypes_of(const Record& record);

/// The matrix as rows: a feature and its cell for each of dtypes_of(record).
struct MatrixRow {
  std::string feature;
  std::vector<MatrixCell> cells;
  std::int64_t cases = 0, failed = 0, unsupported = 0;
};
std::vector<MatrixRow> matrix_rows(const Record& record);

/// "dtypes f32 bf16; head dims 1-130; precision f32=f32"
std::string scope_sentence(const Record& record);
/// How many combinations of features met, and which did not; "" where nobody counted.
std::string pairs_sentence(const PairCoverage& pairs);
/// "1,204 rows recomputed by the definition, 0 of 77,056 elements outside ..."
std::string audit_sentence(const Audit& audit);
/// "backward at 8,192 queries and keys: 11.3 MiB beyond 14.0 MiB of tensors", for each measured
/// call.
std::vector<std::string> memory_sentences(const Record& record);
/// "GQA (8 key/value heads of 128, 256 rows, bf16) 1.00 MiB"
std::vector<std::string> cache_sentences(const Record& record);
/// One sentence for each entry of the expectations file that is not simply met, and one for those
/// that are.
std::vector<std::string> expectation_sentences(const Record& record);

/// "base.json: 2 causes known, 1 new, 1 gone: wrong o where ..."; "" without a baseline.
std::string baseline_sentence(const Record& record);
/// "line 3: dtype bf16: not declared" for each demand that is not met, and how many are.
std::vector<std::string> demand_sentences(const Record& record);
/// Whether the run is one that a build must not pass although its verdict lets it: stale
/// expectations and lost demands, a line each.
std::vector<std::string> broken_promises(const Record& record);

/// A command to run next, and what it is for.
struct NextStep {
  std::string command, purpose;
};
std::vector<NextStep> next_steps(const Record& record);

}  // namespace attest
