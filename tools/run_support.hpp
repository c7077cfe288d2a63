// SPDX-License-Identifier: Apache-2.0
// What the commands that run for long have in common.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "tools/arguments.hpp"

namespace attest {

/// From now on the first SIGINT or SIGTERM sets the flag, so that the list ends in good order; a
/// second one ends the process.
const std::atomic<bool>& catch_interrupts();

/// --jobs; default: one per core.
int read_jobs(const Arguments& arguments);

/// Writes a report that was asked for, whole; nothing where `path` is "". A CommandError says why
/// it cannot be written.
void write_output(const std::string& path, std::string_view text);

/// Where files lie that nobody named: $XDG_CACHE_HOME/attest or ~/.cache/attest, made where it is
/// not there; "" where none can be had.
std::string cache_folder();

/// One line on standard error that is rewritten in place; nothing where that is no terminal.
class RewrittenLine {
 public:
  /// At most ten times a second, but for what is `last`.
  void show(const std::string& line, bool last);
  void clear();

 private:
  bool shown_once_ = false;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace attest
