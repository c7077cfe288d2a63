// SPDX-License-Identifier: Apache-2.0
// The detection score: what a suite made of kernels whose mistakes are known. Made by
// `attest selftest`; plain data. Its JSON form is reports/schema/selftest.schema.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/record.hpp"

namespace attest {

inline constexpr const char* kDetectionSchema = "attest.selftest/1";

/// The first case by which a requirement caught a fault, and that failed again in a fresh host.
struct Catch {
  std::string requirement;
  Verdict verdict = Verdict::fail;
  Reason reason = Reason::none;
  std::string case_line;       ///< as drawn
  std::int64_t cases = 0;      ///< checked on this kernel up to here
  double seconds = 0;          ///< since this kernel's list began, on one core
  int reruns = 0, failed = 0;  ///< in fresh hosts
  bool operator==(const Catch&) const = default;
};

/// The smallest case found for a fault.
struct MinimalCase {
  std::string requirement, case_line, detail, replay;
  std::int64_t pairs = 0;     ///< q_len * kv_len
  bool fails_again = false;   ///< in a fresh host
  bool fully_shrunk = false;  ///< false: the budget ended it
  bool operator==(const MinimalCase&) const = default;
};

/// What became of a kernel.
enum class Outcome : std::uint8_t {
  caught,
  escaped,       ///< it differs from its honest base, and no requirement failed
  unreachable,   ///< no case shows that it differs from its honest base at all
  out_of_scope,  ///< the same, in a scope that was asked for: nothing is owed
  accepted,      ///< honest, and nothing was said against it
  accused        ///< honest, and a requirement failed
};
std::string_view name(Outcome outcome);
std::optional<Outcome> parse_outcome(std::string_view text);

/// One kernel of the catalogue: an entry in one dtype, or a built-in implementation ("all" dtypes).
struct Detection {
  std::string id, kind, sentence, reference, dtype, base;
  bool honest = false;
  Outcome outcome = Outcome::escaped;
  std::vector<Catch> catches;            ///< in the order in which they came
  std::vector<MinimalCase> minimal;      ///< of one dtype of a fault: none or one
  std::string shown_by;                  ///< what shows that the fault changes something
  std::vector<std::string> flaky;        ///< requirements that failed, but not again
  std::vector<std::string> accusations;  ///< of an honest kernel, or of the fault's honest base
  std::int64_t problems = 0, cases = 0;
  double seconds = 0;
  bool operator==(const Detection&) const = default;
};

struct DetectionReport {
  std::string schema = kDetectionSchema;
  std::string tool_version, commit, command;
  std::string library;  ///< path, and the hash of its bytes
  std::string library_hash;
  std::string suite, honest_suite;
  std::uint64_t seed = 0;
  std::string within;  ///< the declaration that the faults were narrowed to; "": none
  std::vector<std::string> requirements;  ///< ids, sorted
  std::vector<Detection> kernels;         ///< in the order of the catalogue
  std::string incomplete;                 ///< why not every kernel was tested; "": all were
  std::string started;
  double wall_seconds = 0, cpu_seconds = 0;
  bool operator==(const DetectionReport&) const = default;
};

/// Requirements that hold outputs against the oracle's values, whatever problems they draw. The
/// others need none: they compare calls with each other, or with what is exact.
bool compares_with_oracle(std::string_view requirement);

/// A fault counts as caught where it is caught in every dtype that it is listed with (and that is
/// in scope); an honest entry as accused where it is in one.
struct DetectionTotals {
  std::int64_t faults = 0, caught = 0, honest = 0, accused = 0;  ///< by id
  std::int64_t fault_kernels = 0, fault_kernels_caught = 0;      ///< by id and dtype
  std::int64_t honest_kernels = 0, honest_kernels_accused = 0;
  std::int64_t escaped_kernels = 0, unreachable_kernels = 0, out_of_scope_kernels = 0;
  std::int64_t caught_beyond_oracle = 0;  ///< faults with a catch that needs no oracle
  double median_seconds = 0;              ///< to the first catch, over fault kernels
  double slowest_seconds = 0;
  std::int64_t minimal_cases = 0, minimal_failing_again = 0;
  double median_pairs = 0;  ///< of minimal cases
  bool perfect() const { return faults == caught && accused == 0 && unreachable_kernels == 0; }
};
DetectionTotals detection_totals(const DetectionReport& report);

/// "caught 118 of 118 faults, accused 0 of 24 honest kernels"
std::string detection_score(const DetectionReport& report);

}  // namespace attest
