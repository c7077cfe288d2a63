// SPDX-License-Identifier: Apache-2.0
// The JSON form of the detection score, as reports/record_fields.hpp has that of a record. A change
// here changes schema/selftest.schema.json and, where an old reader would misread it,
// kDetectionSchema.
#pragma once

#include "attest/detection.hpp"
#include "reports/record_fields.hpp"

namespace attest {

template <class Visitor, MaybeConst<Catch> S>
void fields(Visitor& visit, S& one) {
  visit("requirement", one.requirement);
  visit("verdict", one.verdict);
  visit("reason", one.reason);
  visit("case", one.case_line);
  visit("cases", one.cases);
  visit("seconds", one.seconds);
  visit("reruns", one.reruns);
  visit("reruns_failed", one.failed);
}

template <class Visitor, MaybeConst<MinimalCase> S>
void fields(Visitor& visit, S& minimal) {
  visit("requirement", minimal.requirement);
  visit("case", minimal.case_line);
  visit("detail", minimal.detail);
  visit("replay", minimal.replay);
  visit("pairs", minimal.pairs);
  visit("fails_again", minimal.fails_again);
  visit("fully_shrunk", minimal.fully_shrunk);
}

template <class Visitor, MaybeConst<Detection> S>
void fields(Visitor& visit, S& kernel) {
  visit("id", kernel.id);
  visit("dtype", kernel.dtype);
  visit("honest", kernel.honest);
  visit("kind", kernel.kind);
  visit("sentence", kernel.sentence);
  visit("reference", kernel.reference);
  visit("base", kernel.base);
  visit("outcome", kernel.outcome);
  visit("catches", kernel.catches);
  visit("minimal", kernel.minimal);
  visit("shown_by", kernel.shown_by);
  visit("flaky", kernel.flaky);
  visit("accusations", kernel.accusations);
  visit("problems", kernel.problems);
  visit("cases", kernel.cases);
  visit("seconds", kernel.seconds);
}

template <class Visitor>
void fields(Visitor& visit, const DetectionReport& report) {
  visit("schema", report.schema);
  visit.group("tool", [&report](auto& tool) {
    tool.fixed("name", "attest");
    tool("version", report.tool_version);
    tool("commit", report.commit);
  });
  visit("command", report.command);
  visit("library", report.library);
  visit("library_hash", report.library_hash);
  visit("suite", report.suite);
  visit("honest_suite", report.honest_suite);
  visit("seed", report.seed);
  visit("within", report.within);
  visit("score", detection_score(report));
  const DetectionTotals totals = detection_totals(report);
  visit.group("totals", [&totals](auto& group) {
    group("faults", totals.faults);
    group("caught", totals.caught);
    group("honest", totals.honest);
    group("accused", totals.accused);
    group("fault_kernels", totals.fault_kernels);
    group("fault_kernels_caught", totals.fault_kernels_caught);
    group("honest_kernels", totals.honest_kernels);
    group("honest_kernels_accused", totals.honest_kernels_accused);
    group("escaped_kernels", totals.escaped_kernels);
    group("unreachable_kernels", totals.unreachable_kernels);
    group("out_of_scope_kernels", totals.out_of_scope_kernels);
    group("caught_beyond_oracle", totals.caught_beyond_oracle);
    group("median_seconds", totals.median_seconds);
    group("slowest_seconds", totals.slowest_seconds);
    group("minimal_cases", totals.minimal_cases);
    group("minimal_failing_again", totals.minimal_failing_again);
    group("median_pairs", totals.median_pairs);
  });
  visit("requirements", report.requirements);
  visit("kernels", report.kernels);
  visit("incomplete", report.incomplete);
  times_field(visit, report);
}

}  // namespace attest
