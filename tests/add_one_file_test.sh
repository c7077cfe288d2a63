#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adding a requirement, an implementation and a planted fault is adding one file each: done here in a scratch copy, which
# is then built and asked whether it knows them.
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
cat >impls/faulty/scratch.cpp <<'CPP'
#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

template <class S>
struct Scratch : Stepwise<S> {
  typename Stepwise<S>::C scaled(typename Stepwise<S>::C product) const override { return product; }
};
ATTEST_PLANT(Scratch, {.id = "scratch_fault", .kind = "scratch", .sentence = "there is no scale"});

}  // namespace
}  // namespace attest::faulty
CPP

# Taking one away is deleting its file: nothing lists them. The others are ten minutes of compiling.
grep -lE '^ATTEST_(REQUIREMENT|HYPOTHESIS|PLANT|HONEST)\(' properties/*.cpp properties/hypotheses/*.cpp impls/faulty/*.cpp |
  grep -v '/scratch\|/oracle_' | xargs rm
# Nor commands but those used here (probe is a part of check) with what only others need, nor implementations but those
# that the build of the benchmarks asks for.
grep -l '^ATTEST_COMMAND(' tools/*.cpp | grep -v '/check\|/list\|/probe' | xargs rm
rm bench/cost/*.cpp bench/timing/*.cpp bench/compare/*_test.cpp reports/cost_*.cpp reports/bench_*.cpp reports/html_report*.cpp \
  reports/*_plot*.cpp tools/plot_*.cpp
grep -l '^ATTEST_PLUGIN(' impls/*.cpp | grep -v '/scratch\|/naive\|/chunked\|/contiguous\|/paged' | xargs rm

# Correctness does not depend on the optimiser; -O0 makes this a test of a minute.
cmake -S . -B build/scratch -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -DATTEST_DEVELOPER_MODE=OFF >/dev/null
cmake --build build/scratch --target attest attest-host attest_module_scratch -- --quiet
# Into files: grep -q ends at the first match, and a writer that is cut off fails.
build/scratch/attest list --names >names.txt
grep -qx scratch names.txt
build/scratch/attest list >list.txt
grep -q SCRATCH-RETURNS list.txt
build/scratch/attest check scratch --suite smoke --filter SCRATCH-RETURNS --brief

# Planted faults are there in developer mode alone; of that only their library is built.
cmake -S . -B build/faults -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 \
  -DATTEST_DEVELOPER_MODE=ON >/dev/null
cmake --build build/faults --target attest_module_faulty -- --quiet
status=0
build/scratch/attest check "build/faults/lib/attest-faulty/faulty.so#scratch_fault.f32" --suite smoke \
  --filter 'ORACLE-*' --brief >fault.txt || status=$?
grep -q 'NOT CONFORMANT scratch_fault.f32' fault.txt
test "$status" -eq 1
