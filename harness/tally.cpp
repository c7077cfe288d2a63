// SPDX-License-Identifier: Apache-2.0
#include "harness/tally.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "attest/case_line.hpp"
#include "harness/call_kinds.hpp"
#include "harness/combinations.hpp"

namespace attest {

namespace {

bool judged(Verdict verdict) {
  return verdict == Verdict::pass || verdict == Verdict::warn || is_failure(verdict);
}

RequirementResult& result_of(Record& record, const Requirement& requirement) {
  for (RequirementResult& result : record.requirements)
    if (result.id == requirement.id) return result;
  record.requirements.push_back({});
  record.requirements.back().id = requirement.id;
  return record.requirements.back();
}

void count_cases(const WorkList& work, const std::vector<const Requirement*>& all,
                 const std::vector<UnitResult>& results, Record& record) {
  for (const Requirement* requirement : all) {
    RequirementResult& result = result_of(record, *requirement);
    result.sentence = requirement->sentence;
    result.level = requirement->level == Level::required ? "required" : "advisory";
    result.skipped = skipped(*requirement, work.declaration).value_or("");
  }
  std::vector<RequirementResult*> by_place;
  for (const Requirement* requirement : work.requirements)
    by_place.push_back(&result_of(record, *requirement));
  for (const UnitResult& unit : results)
    for (const CaseOutcome& outcome : unit.cases) {
      RequirementResult& result = *by_place[static_cast<std::size_t>(outcome.requirement)];
      ++record.counts.of(outcome.verdict);
      ++result.counts.of(outcome.verdict);
      ++result.by_dtype[std::string(name(unit.dtype))].of(outcome.verdict);
      if (is_failure(outcome.verdict) && result.detail.empty()) result.detail = outcome.detail;
    }
}

/// Whether the kernel declares what this problem uses; what asks for refusals does not count as
/// tested scope.
bool is_declared(const Declaration& declaration, const UnitResult& unit) {
  for (int f = 0; f < kNumFeatures; ++f)
    if (((unit.features >> f) & 1) != 0 && !declaration.has(static_cast<Feature>(f))) return false;
  for (int n = 0; n < kNumCallKinds; ++n)
    if (((unit.call_kinds >> n) & 1) != 0 && !declares(declaration, static_cast<CallKind>(n)))
      return false;
  return declaration.has(unit.dtype) && contains(declaration.head_dims, unit.head_dim);
}

void fill_matrix(const WorkList& work, const std::vector<UnitResult>& results, Record& record) {
  struct Cell {
    std::int64_t cases = 0, failed = 0, unsupported = 0;
  };
  // Row kNumFeatures is "plain": a forward call with nothing but, perhaps, lse. After it come the
  // kinds of calls.
  constexpr int kRows = kNumFeatures + 1 + kNumCallKinds;
  std::map<std::pair<int, DType>, Cell> cells;
  for (const UnitResult& unit : results) {
    if (!is_declared(work.declaration, unit)) continue;
    const bool plain = (unit.features & ~feature_bit(Feature::lse)) == 0 && unit.call_kinds == 0;
    for (int f = 0; f < kRows; ++f) {
      const bool has = f < kNumFeatures    ? ((unit.features >> f) & 1) != 0
                       : f == kNumFeatures ? plain
                                           : ((unit.call_kinds >> (f - kNumFeatures - 1)) & 1) != 0;
      if (!has || unit.cases.empty()) continue;
      Cell& cell = cells[{f, unit.dtype}];
      for (const CaseOutcome& outcome : unit.cases) {
        ++cell.cases;
        cell.failed += is_failure(outcome.verdict);
        cell.unsupported += outcome.verdict == Verdict::unsupported;
      }
    }
  }
  const auto add_row = [&](int f) {
    const std::string feature(f < kNumFeatures ? name(static_cast<Feature>(f))
                              : f == kNumFeatures
                                  ? "plain"
                                  : name(static_cast<CallKind>(f - kNumFeatures - 1)));
    for (const DType dtype : kAllDTypes) {
      const auto cell = cells.find({f, dtype});
      if (cell == cells.end()) continue;
      record.matrix.push_back({feature, std::string(name(dtype)), cell->second.cases,
                               cell->second.failed, cell->second.unsupported});
    }
  };
  add_row(kNumFeatures);
  for (int f = 0; f < kNumFeatures; ++f) add_row(f);
  for (int f = kNumFeatures + 1; f < kRows; ++f) add_row(f);
}

void fill_ratios(const WorkList& work, const std::vector<UnitResult>& results, Record& record) {
  struct Samples {
    std::vector<double> values;
    std::int64_t elements = 0;
    double worst = -1;
    std::size_t worst_position = 0;
  };
  std::map<std::pair<Output, DType>, Samples> all;
  for (std::size_t position = 0; position < results.size(); ++position)
    for (const CaseOutcome& outcome : results[position].cases) {
      if (!outcome.ratio_output || outcome.elements == 0) continue;
      Samples& samples = all[{*outcome.ratio_output, results[position].dtype}];
      samples.values.push_back(outcome.ratio);
      samples.elements += outcome.elements;
      if (!(outcome.ratio <= samples.worst)) {
        samples.worst = outcome.ratio;
        samples.worst_position = position;
      }
    }
  for (std::size_t n = 0; n < kNumOutputs; ++n)
    for (const DType dtype : kAllDTypes) {
      const auto output = static_cast<Output>(n);
      const auto found = all.find({output, dtype});
      if (found == all.end()) continue;
      Samples& samples = found->second;
      std::sort(samples.values.begin(), samples.values.end());
      const auto quantile = [&](double q) {
        return samples
            .values[static_cast<std::size_t>(q * static_cast<double>(samples.values.size() - 1))];
      };
      Ratios ratios;
      ratios.output = name(output);
      ratios.dtype = std::string(name(dtype));
      ratios.cases = static_cast<std::int64_t>(samples.values.size());
      ratios.elements = samples.elements;
      ratios.q10 = quantile(0.1);
      ratios.q50 = quantile(0.5);
      ratios.q90 = quantile(0.9);
      ratios.max = samples.values.back();
      if (const auto problem = problem_of(work, work.units[samples.worst_position]))
        ratios.worst_case = print_case(*problem);
      record.ratios.push_back(std::move(ratios));
    }
}

void merge_audits(const std::vector<UnitResult>& results, Audit& audit) {
  for (const UnitResult& unit : results) {
    audit.rows += unit.audit.rows;
    audit.elements += unit.audit.elements;
    audit.outside += unit.audit.outside;
    audit.worst_fraction_of_radius =
        std::max(audit.worst_fraction_of_radius, unit.audit.worst_fraction_of_radius);
    audit.worst_radius_over_tolerance =
        std::max(audit.worst_radius_over_tolerance, unit.audit.worst_radius_over_tolerance);
    if (audit.first_outside.empty()) audit.first_outside = unit.audit.first_outside;
  }
}

void fill_scope(const WorkList& work, const std::vector<UnitResult>& results, Record& record) {
  std::set<std::int64_t> head_dims;
  std::array<std::int64_t, 4> dtype_cases{}, dtype_refused{};
  std::array<std::int64_t, kNumFeatures> cases{}, refused{};
  std::array<std::int64_t, kNumCallKinds> kind_cases{}, kind_refused{};
  std::int64_t problems = 0, refused_problems = 0;
  for (std::size_t position = 0; position < results.size(); ++position) {
    const UnitResult& unit = results[position];
    if (!is_declared(work.declaration, unit)) continue;
    std::int64_t here_judged = 0, here_refused = 0;
    for (const CaseOutcome& outcome : unit.cases) {
      here_judged += judged(outcome.verdict);
      here_refused += outcome.verdict == Verdict::unsupported;
    }
    if (work.units[position].is_shared() && !unit.cases.empty()) {
      ++problems;
      refused_problems += here_refused > here_judged;
    }
    if (here_judged > 0) head_dims.insert(unit.head_dim);
    dtype_cases[static_cast<std::size_t>(unit.dtype)] += here_judged;
    dtype_refused[static_cast<std::size_t>(unit.dtype)] += here_refused;
    for (std::size_t f = 0; f < static_cast<std::size_t>(kNumFeatures); ++f)
      if ((unit.features >> f) & 1) {
        cases[f] += here_judged;
        refused[f] += here_refused;
      }
    for (std::size_t n = 0; n < static_cast<std::size_t>(kNumCallKinds); ++n)
      if ((unit.call_kinds >> n) & 1) {
        kind_cases[n] += here_judged;
        kind_refused[n] += here_refused;
      }
  }
  Scope& scope = record.scope;
  scope.head_dims = ranges({head_dims.begin(), head_dims.end()});
  scope.refused_share =
      problems == 0 ? 0 : static_cast<double>(refused_problems) / static_cast<double>(problems);
  const auto report = [&](const std::string& what, bool declared, std::int64_t n, std::int64_t m,
                          std::vector<std::string>& tested) {
    if (n > 0) tested.push_back(what);
    if (!declared && n == 0)
      scope.not_tested.push_back(what + ": not declared");
    else if (m > 0)
      scope.not_tested.push_back(fmt::format("{}: refused in {} of {} cases", what, m, n + m));
    else if (n == 0)
      scope.not_tested.push_back(what + ": no case of this run uses it");
  };
  for (const DType dtype : kAllDTypes) {
    const auto d = static_cast<std::size_t>(dtype);
    report(std::string(name(dtype)), work.declaration.has(dtype), dtype_cases[d], dtype_refused[d],
           scope.dtypes);
    if (dtype_cases[d] > 0) add_precision(work.declaration, dtype, scope.precision);
  }
  for (std::size_t f = 0; f < static_cast<std::size_t>(kNumFeatures); ++f) {
    const auto feature = static_cast<Feature>(f);
    report(std::string(name(feature)), work.declaration.has(feature), cases[f], refused[f],
           scope.features);
  }
  for (std::size_t n = 0; n < static_cast<std::size_t>(kNumCallKinds); ++n) {
    const auto kind = static_cast<CallKind>(n);
    report(std::string(name(kind)), declares(work.declaration, kind), kind_cases[n],
           kind_refused[n], scope.features);
  }
}

/// Problems on which something was judged.
void fill_pairs(const WorkList& work, const std::vector<UnitResult>& results, Record& record) {
  std::vector<FeatureSet> tested;
  for (const UnitResult& unit : results)
    if (is_declared(work.declaration, unit) &&
        std::any_of(unit.cases.begin(), unit.cases.end(),
                    [](const CaseOutcome& outcome) { return judged(outcome.verdict); }))
      tested.push_back(feature_set(unit.features, unit.dtype));
  record.pairs = pair_coverage(work.declaration, tested);
}

}  // namespace

void add_precision(const Declaration& declaration, DType dtype, std::string& text) {
  // An f64 kernel computes in f64 whatever name it declares.
  const std::string& preset = declaration.precision[static_cast<std::size_t>(dtype)];
  text += fmt::format("{}{}={}", text.empty() ? "" : " ", name(dtype),
                      dtype == DType::f64 ? "f64" : preset);
}

std::vector<std::string> ranges(const std::vector<std::int64_t>& sorted) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < sorted.size();) {
    std::size_t end = i;
    while (end + 1 < sorted.size() && sorted[end + 1] == sorted[end] + 1) ++end;
    texts.push_back(end == i ? std::to_string(sorted[i])
                             : fmt::format("{}-{}", sorted[i], sorted[end]));
    i = end + 1;
  }
  return texts;
}

void tally(const WorkList& work, const std::vector<const Requirement*>& all,
           const std::vector<UnitResult>& results, Record& record) {
  count_cases(work, all, results, record);
  fill_matrix(work, results, record);
  fill_ratios(work, results, record);
  merge_audits(results, record.audit);
  fill_scope(work, results, record);
  // A case file says itself what it is about.
  if (work.given.empty()) fill_pairs(work, results, record);
}

void count_flaky_as_warnings(const WorkList& work, const std::vector<UnitResult>& results,
                             const std::vector<Finding>& findings, Record& record) {
  for (const Finding& finding : findings) {
    if (finding.reason != Reason::flaky) continue;
    const std::size_t position = finding.cases.front();
    RequirementResult& result = result_of(record, *work.requirements[finding.requirement]);
    for (const CaseOutcome& outcome : results[position].cases) {
      if (static_cast<std::size_t>(outcome.requirement) != finding.requirement) continue;
      for (Counts* counts : {&record.counts, &result.counts,
                             &result.by_dtype[std::string(name(results[position].dtype))]}) {
        --counts->of(outcome.verdict);
        ++counts->of(Verdict::warn);
      }
    }
  }
}

void apply_expectations(const std::vector<Expectation>& expectations, const std::string& today,
                        bool whole, Record& record) {
  for (const Expectation& expectation : expectations) {
    ExpectationResult result{expectation.line, expectation.line_number, "stale"};
    const bool over = expectation.until != "-" && expectation.until < today;
    bool ran = false;
    for (const RequirementResult& requirement : record.requirements)
      if (requirement.id == expectation.requirement)
        ran = requirement.counts.total() > requirement.counts.unsupported;
    if (!ran || over || !whole) result.state = "unused";
    for (Failure& failure : record.failures) {
      if (over || failure.requirement != expectation.requirement) continue;
      if (!glob_match(expectation.pattern, failure.case_line) &&
          !glob_match(expectation.pattern, failure.found_case_line))
        continue;
      const bool same_status = is_failure(failure.verdict) == is_failure(expectation.status);
      if (!same_status || failure.reason != expectation.reason) {
        if (result.state != "met") result.state = "wrong_reason";
        continue;
      }
      result.state = "met";
      failure.expected = true;
      failure.expected_why = expectation.why;
    }
    record.expectations.push_back(std::move(result));
  }
}

SuiteVerdict suite_verdict(const Record& record, std::int64_t planned) {
  // What nobody tested is no pass: at least this many cases must have been judged.
  constexpr std::int64_t kEnough = 100;
  if (record.audit.outside != 0 || record.counts.error != 0) return SuiteVerdict::incomplete;
  for (const Failure& failure : record.failures)
    if (is_failure(failure.verdict) && !failure.expected) return SuiteVerdict::not_conformant;
  const Counts& counts = record.counts;
  const std::int64_t judged_cases = counts.pass + counts.warn + counts.failures();
  const std::int64_t least = std::max<std::int64_t>(1, std::min(kEnough, planned / 4));
  if (record.scope.refused_share > kMostRefused || judged_cases < least)
    return SuiteVerdict::too_little_tested;
  return SuiteVerdict::conformant;
}

}  // namespace attest
