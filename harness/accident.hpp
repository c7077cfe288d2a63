// SPDX-License-Identifier: Apache-2.0
// What went wrong with a call that did not return, in words.
#pragma once

#include <string>

#include "attest/verdict.hpp"

namespace attest {

struct Accident {
  Verdict verdict = Verdict::crash;  ///< crash, hang, out_of_memory, fail (guard page, exited) or
                                     ///< error (host lost)
  Reason reason = Reason::none;      ///< out_of_bounds_read, out_of_bounds_write, exited or none
  std::string sentence;  ///< "read, 0 bytes past the end of k"; "signal 11 (SIGSEGV) at address 0"
};

}  // namespace attest
