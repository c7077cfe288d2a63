// SPDX-License-Identifier: Apache-2.0
// The closed lists of verdicts and reasons, and the exit codes. Names are stable strings: they
// stand in every record.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace attest {

enum class Verdict : std::uint8_t {
  pass,
  warn,  ///< conformant, but worth a look
  fail,
  crash,  ///< a signal
  hang,   ///< over the CPU or wall limit
  out_of_memory,
  unsupported,  ///< refused, and allowed to
  not_judged,   ///< outside the domain: nothing can be said
  error,        ///< the suite or the machine failed, never the kernel
};

enum class Reason : std::uint8_t {
  none,
  wrong_value,
  biased,
  unwritten,
  nan_leak,
  nan_lost,
  out_of_bounds_read,
  out_of_bounds_write,
  input_modified,
  law_broken,
  not_deterministic,
  wrong_reject,
  wrong_accept,
  junk_status,
  exited,
  flaky,
};

std::string_view name(Verdict verdict);
std::string_view name(Reason reason);
std::optional<Verdict> parse_verdict(std::string_view text);
std::optional<Reason> parse_reason(std::string_view text);

/// fail, crash, hang or out_of_memory.
constexpr bool is_failure(Verdict verdict) {
  return verdict == Verdict::fail || verdict == Verdict::crash || verdict == Verdict::hang ||
         verdict == Verdict::out_of_memory;
}

/// The verdict on a whole run.
enum class SuiteVerdict : std::uint8_t {
  conformant,
  not_conformant,
  too_little_tested,
  incomplete
};
std::string_view name(SuiteVerdict verdict);
std::optional<SuiteVerdict> parse_suite_verdict(std::string_view text);

/// Exit codes of the command.
enum class ExitCode : int {
  conformant = 0,
  failed = 1,  ///< a new failure, a stale expectation, or lost scope
  usage = 2,
  suite_failed = 3,  ///< oracle audit failed, host cannot start, run incomplete
  too_little_tested = 4,
};

}  // namespace attest
