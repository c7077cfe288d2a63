// SPDX-License-Identifier: Apache-2.0
// What seeing a kernel costs: one observed call in the host and in this process, the way there and
// back alone, and a crash with the fresh host after it.
#include <benchmark/benchmark.h>

#include <memory>
#include <stdexcept>

#include "harness/data.hpp"
#include "harness/observe.hpp"

namespace {

using attest::AttentionInputs;
using attest::AttentionProblem;
using attest::OpenError;
using attest::Subject;

/// A usual case of the quick suite: a few dozen (query, key) pairs a head.
AttentionProblem usual_problem() {
  AttentionProblem problem;
  problem.batch = 2;
  problem.num_heads = problem.num_kv_heads = 2;
  problem.q_len = problem.kv_len = 8;
  problem.head_dim = problem.v_head_dim = 16;
  return problem;
}

std::unique_ptr<Subject> open(const char* kernel, bool in_host) {
  OpenError error;
  const attest::SubjectSpec spec{ATTEST_ACCIDENTS_MODULE, kernel, false};
  auto subject = in_host ? attest::open_in_host(spec, error) : attest::open_in_process(spec, error);
  if (!subject) throw std::runtime_error(error.message);
  return subject;
}

void observe_calls(benchmark::State& state, const char* kernel, bool in_host,
                   const AttentionProblem& problem) {
  const auto subject = open(kernel, in_host);
  const AttentionInputs inputs = attest::make_inputs(problem);
  for ([[maybe_unused]] auto _ : state)
    benchmark::DoNotOptimize(observe(*subject, problem, inputs));
}

void observed_in_host(benchmark::State& state) {
  observe_calls(state, "honest", true, usual_problem());
}
BENCHMARK(observed_in_host)->UseRealTime();

void observed_in_process(benchmark::State& state) {
  observe_calls(state, "honest", false, usual_problem());
}
BENCHMARK(observed_in_process);

/// 1 x 1 x 1, by a kernel that returns at once: nearly the way there and back alone.
void there_and_back(benchmark::State& state) {
  observe_calls(state, "junk_status", true, AttentionProblem{});
}
BENCHMARK(there_and_back)->UseRealTime();

void crash_and_fresh_host(benchmark::State& state) {
  observe_calls(state, "segfault", true, usual_problem());
}
BENCHMARK(crash_and_fresh_host)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
