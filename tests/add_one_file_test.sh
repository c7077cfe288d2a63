#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adding a requirement and adding an implementation is adding one file each: done here in a scratch copy, which is then
# built and asked whether it knows them.
#   add_one_file_test.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/copy"
(cd "$root" && find . -path ./build -prune -o -path ./.git -prune -o -type f -print0 | tar --null -T - -cf -) |
  tar -xf - -C "$work/copy"
cd "$work/copy"

cat >properties/scratch_lse_present.cpp <<'CPP'
#include "properties/support.hpp"

namespace attest {
namespace {

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_pair(context, problem)) return *result;
  return {.elements_compared = 1};
}

ATTEST_REQUIREMENT(scratch, {
    .id = "SCRATCH-RETURNS",
    .sentence = "the call returns",
    .check = check,
});

}  // namespace
}  // namespace attest
CPP
sed 's/"example_cpp"/"scratch"/' examples/cpp/plugin.cpp >impls/scratch.cpp

# Correctness does not depend on the optimiser; -O0 makes this a test of a minute.
cmake -S . -B build/scratch -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -DATTEST_DEVELOPER_MODE=OFF >/dev/null
cmake --build build/scratch -- --quiet
# Into files: grep -q ends at the first match, and a writer that is cut off fails.
build/scratch/attest list --names >names.txt
grep -qx scratch names.txt
build/scratch/attest list >list.txt
grep -q SCRATCH-RETURNS list.txt
build/scratch/attest check scratch --suite smoke --filter SCRATCH-RETURNS --brief
