// SPDX-License-Identifier: Apache-2.0
// What the oracle costs beside the kernel that it judges: expect() with tolerances against the
// built-in naive, one thread, and against the time that 4 H L^2 D operations take at the machine's
// f32 FMA rate. Counters: `x_naive` (wanted: f32 at most 4, bf16 at most 5) and `x_fma` (f32: 80).
//
//   build/release/bench/oracle_vs_naive --benchmark_min_time=2
#include <benchmark/benchmark.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attest/declaration.hpp"
#include "attest/plugin.h"
#include "attest/tensor.hpp"
#include "bench/timing/yardstick.hpp"
#include "harness/data.hpp"
#include "reference/expected.hpp"

namespace attest {
namespace {

AttentionProblem problem_of(DType dtype, std::int64_t heads, std::int64_t len, std::int64_t dim) {
  AttentionProblem problem;
  problem.dtype = dtype;
  problem.num_heads = problem.num_kv_heads = heads;
  problem.q_len = problem.kv_len = len;
  problem.head_dim = problem.v_head_dim = dim;
  return problem;
}

PrecisionProfile profile_of(DType dtype) {
  return *precision_preset(dtype == DType::f32 || dtype == DType::f64 ? "f32" : "mma_f32acc",
                           dtype);
}

const double fma_rate = best_of(10, [] { return measure_fma(1); });

/// Seconds of this thread: what another process takes from it does not count.
double cpu_seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Storage-type values of a [1, H, L, D] tensor and its DLTensor.
struct Stored {
  std::vector<std::byte> bytes;
  std::int64_t shape[4], strides[4];
  DLTensor tensor{};

  Stored(const Dense<double>& values, DType dtype) : bytes(values.values.size() * size_of(dtype)) {
    for (std::size_t x = 0; x < values.values.size(); ++x)
      store(bytes.data() + x * size_of(dtype), dtype, values.values[x]);
    std::copy(values.shape.begin(), values.shape.end(), shape);
    strides[3] = 1;
    for (int axis = 3; axis > 0; --axis) strides[axis - 1] = strides[axis] * shape[axis];
    tensor.data = bytes.data();
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 4;
    tensor.dtype = dl_dtype(dtype);
    tensor.shape = shape;
    tensor.strides = strides;
  }
  Stored(const Stored&) = delete;
};

const attest_plugin& naive() {
  static const attest_plugin* plugin = [] {
    void* library = dlopen(ATTEST_NAIVE_MODULE, RTLD_NOW);
    void* entry = library ? dlsym(library, "attest_plugin_entry") : nullptr;
    if (!entry) {
      std::fprintf(stderr, "oracle_vs_naive: %s\n", dlerror());
      std::exit(2);
    }
    return reinterpret_cast<attest_plugin_entry_function>(entry)(ATTEST_ABI_VERSION);
  }();
  return *plugin;
}

/// Best seconds of naive by problem, for the oracle's counters.
using Size = std::pair<DType, std::vector<std::int64_t>>;
std::map<Size, double>& naive_seconds() {
  static std::map<Size, double> seconds;
  return seconds;
}

Size size_of_run(DType dtype, const benchmark::State& state) {
  return {dtype, {state.range(0), state.range(1), state.range(2)}};
}

void run_naive(benchmark::State& state, DType dtype) {
  const AttentionProblem problem =
      problem_of(dtype, state.range(0), state.range(1), state.range(2));
  const AttentionInputs inputs = make_inputs(problem);
  const Stored q(inputs.q, dtype), k(inputs.k, dtype), v(inputs.v, dtype);
  Stored o(inputs.q, dtype);
  attest_attention call{};
  call.struct_size = sizeof call;
  call.q = &q.tensor, call.k = &k.tensor, call.v = &v.tensor, call.o = &o.tensor;
  call.scale = effective_scale(problem);
  call.rope_scale = call.rope_ntk = 1;
  call.window_left = call.window_right = -1;
  char message[256] = "";
  attest_context context{};
  context.struct_size = sizeof context;
  context.num_threads = 1;
  context.message = message;
  context.message_capacity = sizeof message;
  void* kernel_state = nullptr;
  if (naive().open) naive().open(0, &context, &kernel_state);
  double best = 1e30;
  for (auto _ : state) {
    const double start = cpu_seconds();
    const attest_status status = naive().forward(kernel_state, nullptr, &call, &context);
    best = std::min(best, cpu_seconds() - start);
    if (status != ATTEST_OK) {
      state.SkipWithError(message);
      break;
    }
  }
  if (naive().close) naive().close(kernel_state);
  naive_seconds()[size_of_run(dtype, state)] = best;
}

void run_oracle(benchmark::State& state, DType dtype, bool tolerance) {
  const AttentionProblem problem =
      problem_of(dtype, state.range(0), state.range(1), state.range(2));
  const AttentionInputs inputs = make_inputs(problem);
  const PrecisionProfile profile = profile_of(dtype);
  OracleOptions options;
  options.tolerance = tolerance;
  double best = 1e30;
  for (auto _ : state) {
    const double start = cpu_seconds();
    benchmark::DoNotOptimize(expect(problem, inputs, profile, options).o.value.data());
    best = std::min(best, cpu_seconds() - start);
  }
  const auto naive_time = naive_seconds().find(size_of_run(dtype, state));
  if (naive_time != naive_seconds().end()) state.counters["x_naive"] = best / naive_time->second;
  const double operations = 4.0 * static_cast<double>(problem.num_heads * problem.q_len *
                                                      problem.kv_len * problem.head_dim);
  state.counters["x_fma"] = best / (operations / fma_rate);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"h", "l", "d"})
      ->Args({8, 512, 64})
      ->Args({8, 128, 128})
      ->Args({4, 64, 32})
      ->Args({1, 16, 16})
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(run_naive, f32, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(run_naive, bf16, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(run_naive, f64, DType::f64)->Apply(sizes);
BENCHMARK_CAPTURE(run_oracle, f32_values, DType::f32, false)->Apply(sizes);
BENCHMARK_CAPTURE(run_oracle, f32, DType::f32, true)->Apply(sizes);
BENCHMARK_CAPTURE(run_oracle, bf16, DType::bf16, true)->Apply(sizes);
BENCHMARK_CAPTURE(run_oracle, f64, DType::f64, true)->Apply(sizes);

}  // namespace
}  // namespace attest

BENCHMARK_MAIN();
