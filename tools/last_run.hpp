// SPDX-License-Identifier: Apache-2.0
// What `attest check` keeps between two runs: journals, and the record of the last run of each
// kernel for --last-failed.
#pragma once

#include <string>

#include "attest/record.hpp"
#include "harness/runner.hpp"

namespace attest {

/// Keeps the record for --last-failed, whole or not at all. Without a folder nothing happens, and
/// nobody is bothered: no one asked for it.
void keep_last_run(const Record& record);

/// Makes `options` a run of nothing but what failed in the last run of the kernel: each failure's
/// minimal case and the case as it was found, with its own requirement. Throws CommandError where
/// there was no run, or one without a failure.
void only_last_failed(RunOptions& options);

}  // namespace attest
