// SPDX-License-Identifier: Apache-2.0
// The record of one run: what the runner produces and every report format reads. Plain data.
// Its JSON form is reports/schema/record.schema.json.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attest/verdict.hpp"

namespace attest {

inline constexpr const char* kRecordSchema = "attest.record/1";

/// Cases by verdict.
struct Counts {
  std::int64_t pass = 0, warn = 0, fail = 0, crash = 0, hang = 0, out_of_memory = 0,
               unsupported = 0, not_judged = 0, error = 0;
  std::int64_t& of(Verdict verdict);
  std::int64_t total() const;
  std::int64_t failures() const { return fail + crash + hang + out_of_memory; }
  bool operator==(const Counts&) const = default;
};

struct SubjectInfo {
  std::string name, version, path, declaration;
  std::string precision;  ///< by dtype, e.g. "f32=f32 bf16=mma_f32acc"
  bool built_in = false;
  bool operator==(const SubjectInfo&) const = default;
};

struct MachineInfo {
  std::string cpu, os, compiler, simd;  ///< simd: the Highway target the oracle ran on
  int cores = 0;
  std::int64_t memory_bytes = 0;
  std::string commit;  ///< of Attest; "unknown" outside a checkout
  bool operator==(const MachineInfo&) const = default;
};

/// One element that was compared, or one finding with no element.
struct Element {
  std::string tensor;               ///< "o", "lse", "q", ...
  std::vector<std::int64_t> index;  ///< logical coordinates
  double expected = 0, actual = 0, tolerance = 0, ratio = 0;
  bool operator==(const Element&) const = default;
};

/// One requirement that failed on one case, after shrinking.
struct Failure {
  int cause = 0;  ///< 1-based index into Record::causes
  std::string requirement;
  std::string dtype;
  Verdict verdict = Verdict::fail;
  Reason reason = Reason::wrong_value;
  std::vector<Reason> also;     ///< what else was found in the same case
  std::string case_line;        ///< the minimal case
  std::string found_case_line;  ///< the case as drawn
  std::uint64_t index = 0;      ///< (suite seed, requirement, index) addresses the drawn case
  std::string detail;           ///< one plain sentence: "read, 0 bytes past the end of k"
  std::optional<Element> worst;
  std::int64_t elements_failed = 0, elements_compared = 0;
  std::string pattern;  ///< which rows, keys, channels: "query rows 0-2 of 3"
  /// The numbers of a minimal case small enough to show: one line each, "o[0,0,0,0] expected 0.5
  /// got 0.25 (tolerance ..)"
  std::vector<std::string> numbers;
  int reruns = 0, reruns_failed = 0;
  bool fully_shrunk = true;
  bool expected = false;  ///< an expectations file covers it
  std::string expected_why;
  std::string replay;  ///< the command that shows it again
  bool operator==(const Failure&) const = default;
};

/// Failures that look like one mistake.
struct Cause {
  int id = 0;
  Verdict verdict = Verdict::fail;
  Reason reason = Reason::none;
  std::string sentence;                ///< "wrong o where base=causal and align=bottom_right"
  std::vector<std::string> features;   ///< what the failing cases have in common
  std::vector<std::string> caught_by;  ///< requirement ids
  std::vector<std::string> dtypes;
  std::string diagnosis;                ///< likely mistakes; "" where nothing fits
  std::vector<std::string> hypotheses;  ///< their ids, in the same order
  std::int64_t cases = 0;               ///< failing cases in all
  int smallest = 0;                     ///< 0-based index into Record::failures
  bool known = false;                   ///< the baseline has it too
  bool operator==(const Cause&) const = default;
};

struct RequirementResult {
  std::string id, sentence, level;
  Counts counts;
  std::map<std::string, Counts> by_dtype;
  std::string skipped;  ///< why nothing ran: "not declared: masked_nan_safe"
  std::string detail;   ///< first failure in one line
  bool operator==(const RequirementResult&) const = default;
};

/// Quantiles of err / tolerance over the worst element of each case.
struct Ratios {
  std::string output, dtype;
  std::int64_t cases = 0, elements = 0;
  double q10 = 0, q50 = 0, q90 = 0, max = 0;
  std::string worst_case;
  bool operator==(const Ratios&) const = default;
};

/// The oracle against the definition, in this run.
struct Audit {
  std::int64_t rows = 0, elements = 0, outside = 0;
  double worst_fraction_of_radius = 0;
  double worst_radius_over_tolerance = 0;
  std::string first_outside;  ///< case line and element
  bool operator==(const Audit&) const = default;
};

/// Memory that one call took.
struct CallMemory {
  std::string operation;  ///< "backward"
  std::string case_line;  ///< the call
  std::int64_t q_len = 0, kv_len = 0;
  std::int64_t tensor_bytes = 0;  ///< of its tensors
  std::int64_t extra_bytes = 0;   ///< the most that the kernel had at once beyond them
  bool operator==(const CallMemory&) const = default;
};

/// Keys and values of a decode in the caches of one kernel.
struct CacheMemory {
  std::string heads;      ///< "MHA", "GQA", "MQA"
  std::string case_line;  ///< of its last call
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, rows = 0;
  std::string dtype;
  std::int64_t expected_bytes = 0;  ///< 2 B T Hkv D s
  std::int64_t written_bytes = 0;   ///< of the caches that hold something else than before
  bool operator==(const CacheMemory&) const = default;
};

/// What a verdict speaks of.
struct Scope {
  std::vector<std::string> dtypes, features, head_dims;
  std::string precision;
  std::vector<std::string>
      not_tested;   ///< "f64: not declared", "window_right: refused by the plan in 31 of 31"
  std::string cut;  ///< where a time budget cut the list; "" = nowhere
  double refused_share = 0;  ///< of the declared cases
  bool operator==(const Scope&) const = default;
};

/// A row of the matrix feature x dtype.
struct MatrixCell {
  std::string feature, dtype;
  std::int64_t cases = 0, failed = 0, unsupported = 0;
  bool operator==(const MatrixCell&) const = default;
};

/// How many combinations of feature values (each feature on or off, each dtype) were tested
/// together, out of those that a legal problem within the declaration can have.
struct PairCoverage {
  std::int64_t possible = 0, covered = 0;
  /// Combinations of three core features in use, or of two and a dtype.
  std::int64_t triples_possible = 0, triples_covered = 0;
  std::vector<std::string> missing;   ///< "causal + no sink": pairs, 20 at most
  std::vector<std::string> excluded;  ///< features and dtypes that the declaration leaves out
  bool operator==(const PairCoverage&) const = default;
};

struct ExpectationResult {
  std::string line;
  int line_number = 0;
  std::string state;  ///< "met", "stale", "unused", "wrong_reason"
  bool operator==(const ExpectationResult&) const = default;
};

/// The run held against an earlier one.
struct BaselineResult {
  std::string path;               ///< of the earlier record; "": none was given
  int known = 0, fresh = 0;       ///< causes of failures that it has too, and that it lacks
  std::vector<std::string> gone;  ///< sentences of its causes that this run looked for in vain
  bool operator==(const BaselineResult&) const = default;
};

/// A line of the file that says what a run must cover.
struct DemandResult {
  std::string line;
  int line_number = 0;
  bool met = false;
  std::string detail;  ///< what the run has instead; "" where it is met
  bool operator==(const DemandResult&) const = default;
};

struct Record {
  std::string schema = kRecordSchema;
  std::string tool_version;
  std::string command;  ///< without options that only name report files: they change no result
  SubjectInfo subject;
  MachineInfo machine;
  std::string suite;  ///< "quick", "cases:FILE", ...
  std::uint64_t seed = 0;
  std::string shard;  ///< "1/1"
  SuiteVerdict verdict = SuiteVerdict::incomplete;
  Scope scope;
  Counts counts;
  std::vector<RequirementResult> requirements;
  std::vector<Cause> causes;
  std::vector<Failure> failures;
  std::vector<MatrixCell> matrix;
  PairCoverage pairs;
  std::vector<Ratios> ratios;
  Audit audit;
  std::vector<CallMemory> memory;
  std::vector<CacheMemory> kv_cache;
  std::vector<ExpectationResult> expectations;
  std::vector<std::string> notes;  ///< things of the suite or machine worth saying
  BaselineResult baseline;
  std::vector<DemandResult> demands;
  // Times, the only fields that differ between two runs of the same seed and build.
  std::string started;  ///< UTC, ISO 8601
  double wall_seconds = 0, cpu_seconds = 0;
  bool operator==(const Record&) const = default;
};

}  // namespace attest
