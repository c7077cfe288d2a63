// SPDX-License-Identifier: Apache-2.0
// What went wrong with a call that did not return, in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attest/verdict.hpp"

namespace attest {

struct Accident {
  Verdict verdict = Verdict::crash;  ///< crash, hang, out_of_memory, fail (guard page, exited) or
                                     ///< error (host lost)
  Reason reason = Reason::none;      ///< out_of_bounds_read, out_of_bounds_write, exited or none
  std::string sentence;  ///< "read, 0 bytes past the end of k"; "signal 11 (SIGSEGV) at address 0"
  bool killed = false;   ///< by SIGKILL, which does not say who sent it
};

struct FaultReport;
struct PlacedCall;

/// How the host process ended.
struct HostEnd {
  bool signalled = false;
  int code = 0;  ///< signal or exit status
};

/// What is known of a host that died.
struct Death {
  HostEnd end;
  const FaultReport* fault = nullptr;  ///< what its signal handler wrote; nullptr: nothing
  const PlacedCall* call = nullptr;    ///< nullptr: it died outside any call
  std::uint64_t workspace_begin = 0, workspace_end = 0;
  bool memory_exhausted = false;  ///< an allocation failed, or the limit was reached
  std::uint64_t memory_limit = 0;
  std::string_view where;   ///< " in plan()"; "" = in the call proper
  std::string_view output;  ///< the last words on stdout and stderr
};

/// Sentences hold nothing that differs between two runs of one build: no addresses of the process,
/// no measured times.
Accident describe_death(const Death& death);
Accident describe_hang(double cpu_seconds, bool by_wall, std::string_view where);
/// The sentence, and the end of what was printed where something was.
std::string with_output(std::string sentence, std::string_view printed);
Accident describe_memory(std::uint64_t limit, std::string_view where);

/// Printable UTF-8 on one line: control characters become blanks, bytes that are no UTF-8 '?', long
/// hexadecimal numbers (addresses) "0x..".
std::string printable(std::string_view text);

}  // namespace attest
