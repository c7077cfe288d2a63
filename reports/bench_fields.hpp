// SPDX-License-Identifier: Apache-2.0
// The JSON form of measured times: Google Benchmark's keys by their names, and more. A change here
// changes schema/bench.schema.json and, where an old reader would misread it, kBenchSchema.
#pragma once

#include <array>
#include <string_view>

#include "attest/bench_record.hpp"
#include "reports/bench.hpp"
#include "reports/record_fields.hpp"

namespace attest {

inline constexpr std::array<std::string_view, 1> kRunTypes{"iteration"};
inline constexpr std::array<std::string_view, 1> kTimeUnits{"ns"};

template <class Visitor, MaybeConst<Yardsticks> S>
void fields(Visitor& visit, S& yardsticks) {
  visit("fma_f32", yardsticks.fma_f32);
  visit("read_bytes", yardsticks.read_bytes);
  visit("copy_bytes", yardsticks.copy_bytes);
  visit("exp_f32", yardsticks.exp_f32);
  visit("integer", yardsticks.integer);
}

template <class Visitor, MaybeConst<BenchContext> S>
void fields(Visitor& visit, S& context) {
  visit("date", context.date);
  visit("host_name", context.host_name);
  visit("executable", context.executable);
  visit("num_cpus", context.num_cpus);
  visit("library_build_type", context.library_build_type);
  visit("tool_version", context.tool_version);
  visit("commit", context.commit);
  visit("command_line", context.command_line);
  visit("cpu", context.cpu);
  visit("os", context.os);
  visit("compiler", context.compiler);
  visit("flags", context.flags);
  visit("environment", context.environment);
  visit("power_governor", context.power_governor);
  visit("yardsticks", context.yardsticks);
}

template <class Visitor, MaybeConst<BenchSample> S>
void fields(Visitor& visit, S& sample) {
  visit("name", sample.name);
  visit("family_index", sample.family_index);
  visit("per_family_instance_index", sample.per_family_instance_index);
  visit("run_name", sample.run_name);
  visit.choice("run_type", sample.run_type, kRunTypes);
  visit("repetitions", sample.repetitions);
  visit("repetition_index", sample.repetition_index);
  visit("threads", sample.threads);
  visit("iterations", sample.iterations);
  visit("real_time", sample.real_time);
  visit("cpu_time", sample.cpu_time);
  visit.choice("time_unit", sample.time_unit, kTimeUnits);
  visit("subject", sample.subject);
  visit("case", sample.case_line);
  visit("fma_f32", sample.fma_f32);
  visit("integer", sample.integer);
  visit("yardstick", sample.yardstick);
  visit("dropped", sample.dropped);
  visit("flops", sample.flops);
  visit("bytes", sample.bytes);
  visit("extra_bytes", sample.extra_bytes);
}

template <class Visitor, MaybeConst<BenchChange> S>
void fields(Visitor& visit, S& change) {
  visit("name", change.name);
  visit("verdict", change.change);
  visit("old_seconds", change.old_seconds);
  visit("new_seconds", change.new_seconds);
  visit("ratio", change.ratio);
  visit("low", change.low);
  visit("high", change.high);
  visit("p_value", change.p_value);
  visit("old_samples", change.old_samples);
  visit("new_samples", change.new_samples);
  visit("samples_needed", change.samples_needed);
}

template <class Visitor, MaybeConst<BenchRecord::Refused> S>
void fields(Visitor& visit, S& refused) {
  visit("subject", refused.subject);
  visit("case", refused.case_line);
  visit("why", refused.why);
}

template <class Visitor, MaybeConst<BenchLine> S>
void fields(Visitor& visit, S& line) {
  visit("case", line.case_line);
  visit("benchmarks", line.benchmarks);
  visit("refused", line.refused);
}

template <class Visitor, MaybeConst<BenchRecord> S>
void fields(Visitor& visit, S& record) {
  visit("schema", record.schema);
  visit("context", record.context);
  visit("benchmarks", record.benchmarks);
  visit("null_comparison", record.null_comparison);
  visit("refused", record.refused);
}

}  // namespace attest
