// SPDX-License-Identifier: Apache-2.0
// The JSON form of the record, said once for the writer and the reader: which key holds which
// member, in the order of the file.
//
// A visitor offers, on the object that is being written or read,
//   visit(key, member)             any member type that occurs below
//   visit.choice(key, text, list)  a string out of a closed list
//   visit.fixed(key, value)        a value that follows from the others: written, and checked
//   visit.group(key, function)     a nested object without a struct of its own
// The record is const where it is written. A change here changes docs/record.md,
// schema/record.schema.json and, where an old reader would misread it, kRecordSchema.
#pragma once

#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>

#include "attest/record.hpp"

namespace attest {

/// S is T or const T.
template <class S, class T>
concept MaybeConst = std::same_as<std::remove_const_t<S>, T>;

inline constexpr std::array<std::string_view, 2> kLevels{"required", "advisory"};
inline constexpr std::array<std::string_view, 4> kExpectationStates{"met", "stale", "unused",
                                                                    "wrong_reason"};

template <class Visitor, MaybeConst<Counts> S>
void fields(Visitor& visit, S& counts) {
  visit("pass", counts.pass);
  visit("warn", counts.warn);
  visit("fail", counts.fail);
  visit("crash", counts.crash);
  visit("hang", counts.hang);
  visit("out_of_memory", counts.out_of_memory);
  visit("unsupported", counts.unsupported);
  visit("not_judged", counts.not_judged);
  visit("error", counts.error);
}

template <class Visitor, MaybeConst<SubjectInfo> S>
void fields(Visitor& visit, S& subject) {
  visit("name", subject.name);
  visit("version", subject.version);
  visit("path", subject.path);
  visit("built_in", subject.built_in);
  visit("declaration", subject.declaration);
  visit("precision", subject.precision);
}

template <class Visitor, MaybeConst<MachineInfo> S>
void fields(Visitor& visit, S& machine) {
  visit("cpu", machine.cpu);
  visit("cores", machine.cores);
  visit("memory_bytes", machine.memory_bytes);
  visit("os", machine.os);
  visit("compiler", machine.compiler);
  visit("simd", machine.simd);
}

template <class Visitor, MaybeConst<Element> S>
void fields(Visitor& visit, S& element) {
  visit("tensor", element.tensor);
  visit("index", element.index);
  visit("expected", element.expected);
  visit("actual", element.actual);
  visit("tolerance", element.tolerance);
  visit("ratio", element.ratio);
}

template <class Visitor, MaybeConst<Failure> S>
void fields(Visitor& visit, S& failure) {
  visit("cause", failure.cause);
  visit("requirement", failure.requirement);
  visit("dtype", failure.dtype);
  visit("verdict", failure.verdict);
  visit("reason", failure.reason);
  visit("also", failure.also);
  visit("case", failure.case_line);
  visit("found_case", failure.found_case_line);
  visit("index", failure.index);
  visit("detail", failure.detail);
  visit("worst", failure.worst);
  visit("elements_failed", failure.elements_failed);
  visit("elements_compared", failure.elements_compared);
  visit("pattern", failure.pattern);
  visit("numbers", failure.numbers);
  visit("reruns", failure.reruns);
  visit("reruns_failed", failure.reruns_failed);
  visit("fully_shrunk", failure.fully_shrunk);
  visit("expected", failure.expected);
  visit("expected_why", failure.expected_why);
  visit("replay", failure.replay);
}

template <class Visitor, MaybeConst<Cause> S>
void fields(Visitor& visit, S& cause) {
  visit("id", cause.id);
  visit("verdict", cause.verdict);
  visit("reason", cause.reason);
  visit("sentence", cause.sentence);
  visit("features", cause.features);
  visit("caught_by", cause.caught_by);
  visit("dtypes", cause.dtypes);
  visit("diagnosis", cause.diagnosis);
  visit("hypotheses", cause.hypotheses);
  visit("cases", cause.cases);
  visit("smallest", cause.smallest);
  visit("known", cause.known);
}

template <class Visitor, MaybeConst<RequirementResult> S>
void fields(Visitor& visit, S& requirement) {
  visit("id", requirement.id);
  visit("sentence", requirement.sentence);
  visit.choice("level", requirement.level, kLevels);
  visit("counts", requirement.counts);
  visit("by_dtype", requirement.by_dtype);
  visit("skipped", requirement.skipped);
  visit("detail", requirement.detail);
}

template <class Visitor, MaybeConst<Ratios> S>
void fields(Visitor& visit, S& ratios) {
  visit("output", ratios.output);
  visit("dtype", ratios.dtype);
  visit("cases", ratios.cases);
  visit("elements", ratios.elements);
  visit("q10", ratios.q10);
  visit("q50", ratios.q50);
  visit("q90", ratios.q90);
  visit("max", ratios.max);
  visit("worst_case", ratios.worst_case);
}

template <class Visitor, MaybeConst<Audit> S>
void fields(Visitor& visit, S& audit) {
  visit("rows", audit.rows);
  visit("elements", audit.elements);
  visit("outside", audit.outside);
  visit("worst_fraction_of_radius", audit.worst_fraction_of_radius);
  visit("worst_radius_over_tolerance", audit.worst_radius_over_tolerance);
  visit("first_outside", audit.first_outside);
}

template <class Visitor, MaybeConst<CallMemory> S>
void fields(Visitor& visit, S& memory) {
  visit("operation", memory.operation);
  visit("case", memory.case_line);
  visit("q_len", memory.q_len);
  visit("kv_len", memory.kv_len);
  visit("tensor_bytes", memory.tensor_bytes);
  visit("extra_bytes", memory.extra_bytes);
}

template <class Visitor, MaybeConst<CacheMemory> S>
void fields(Visitor& visit, S& cache) {
  visit("heads", cache.heads);
  visit("case", cache.case_line);
  visit("num_heads", cache.num_heads);
  visit("num_kv_heads", cache.num_kv_heads);
  visit("head_dim", cache.head_dim);
  visit("rows", cache.rows);
  visit("dtype", cache.dtype);
  visit("expected_bytes", cache.expected_bytes);
  visit("written_bytes", cache.written_bytes);
}

template <class Visitor, MaybeConst<Scope> S>
void fields(Visitor& visit, S& scope) {
  visit("dtypes", scope.dtypes);
  visit("features", scope.features);
  visit("head_dims", scope.head_dims);
  visit("precision", scope.precision);
  visit("not_tested", scope.not_tested);
  visit("cut", scope.cut);
  visit("refused_share", scope.refused_share);
}

template <class Visitor, MaybeConst<MatrixCell> S>
void fields(Visitor& visit, S& cell) {
  visit("feature", cell.feature);
  visit("dtype", cell.dtype);
  visit("cases", cell.cases);
  visit("failed", cell.failed);
  visit("unsupported", cell.unsupported);
}

template <class Visitor, MaybeConst<PairCoverage> S>
void fields(Visitor& visit, S& pairs) {
  visit("possible", pairs.possible);
  visit("covered", pairs.covered);
  visit("triples_possible", pairs.triples_possible);
  visit("triples_covered", pairs.triples_covered);
  visit("missing", pairs.missing);
  visit("excluded", pairs.excluded);
}

template <class Visitor, MaybeConst<ExpectationResult> S>
void fields(Visitor& visit, S& expectation) {
  visit("line", expectation.line);
  visit("line_number", expectation.line_number);
  visit.choice("state", expectation.state, kExpectationStates);
}

template <class Visitor, MaybeConst<BaselineResult> S>
void fields(Visitor& visit, S& baseline) {
  visit("path", baseline.path);
  visit("known", baseline.known);
  visit("new", baseline.fresh);
  visit("gone", baseline.gone);
}

template <class Visitor, MaybeConst<DemandResult> S>
void fields(Visitor& visit, S& demand) {
  visit("line", demand.line);
  visit("line_number", demand.line_number);
  visit("met", demand.met);
  visit("detail", demand.detail);
}

/// When it was made, and what it took.
template <class Visitor, class S>
void times_field(Visitor& visit, S& made) {
  visit.group("times", [&made](auto& times) {
    times("started", made.started);
    times("wall_seconds", made.wall_seconds);
    times("cpu_seconds", made.cpu_seconds);
  });
}

template <class Visitor, MaybeConst<Record> S>
void fields(Visitor& visit, S& record) {
  visit("schema", record.schema);
  visit.group("tool", [&record](auto& tool) {
    tool.fixed("name", "attest");
    tool("version", record.tool_version);
    tool("commit", record.machine.commit);
  });
  visit("command", record.command);
  visit("subject", record.subject);
  visit("machine", record.machine);
  visit("suite", record.suite);
  visit("seed", record.seed);
  visit("shard", record.shard);
  visit("verdict", record.verdict);
  visit.fixed("conformant", record.verdict == SuiteVerdict::conformant);
  visit("scope", record.scope);
  visit("counts", record.counts);
  visit("requirements", record.requirements);
  visit("causes", record.causes);
  visit("failures", record.failures);
  visit("matrix", record.matrix);
  visit("pairs", record.pairs);
  visit("ratios", record.ratios);
  visit("audit", record.audit);
  visit("memory", record.memory);
  visit("kv_cache", record.kv_cache);
  visit("expectations", record.expectations);
  visit("notes", record.notes);
  visit("baseline", record.baseline);
  visit("demands", record.demands);
  times_field(visit, record);
}

}  // namespace attest
