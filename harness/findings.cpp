// SPDX-License-Identifier: Apache-2.0
#include "harness/findings.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "harness/describe.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

struct Group {
  std::size_t requirement;
  Verdict verdict;
  Reason reason;
  struct Case {
    std::size_t position;
    std::string detail;
  };
  std::vector<Case> cases;  ///< in the order of the list
};

std::vector<Group> group_failures(const WorkList& work, const std::vector<UnitResult>& results) {
  std::map<std::tuple<std::size_t, Verdict, Reason>, Group> groups;
  for (std::size_t position = 0; position < work.units.size(); ++position)
    for (const CaseOutcome& outcome : results[position].cases) {
      if (!is_failure(outcome.verdict)) continue;
      const auto requirement = static_cast<std::size_t>(outcome.requirement);
      Group& group = groups[{requirement, outcome.verdict, outcome.reason}];
      group.requirement = requirement;
      group.verdict = outcome.verdict;
      group.reason = outcome.reason;
      group.cases.push_back({position, outcome.detail});
    }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

/// The work on one group.
class Search {
 public:
  Search(const WorkList& work, Workers& workers, Worker& worker, const FindingOptions& options,
         Clock::time_point deadline)
      : work_(work), workers_(workers), worker_(worker), options_(options), deadline_(deadline) {}

  std::vector<Finding> run(const Group& group, const std::vector<Finding>& known);

 private:
  bool cancelled() const {
    return (options_.interrupted && *options_.interrupted) || !workers_.trouble().empty();
  }
  const Requirement& requirement(const Finding& finding) const {
    return *work_.requirements[finding.requirement];
  }
  Finding begin(const Group& group, const Group::Case& failing) const;
  bool adopt(Finding& finding, const std::vector<Finding>& known);
  void shrink_down(Finding& finding);
  void rerun(Finding& finding);
  int count_failing_reruns(const Finding& finding, const AttentionProblem& problem);

  const WorkList& work_;
  Workers& workers_;
  Worker& worker_;
  const FindingOptions& options_;
  Clock::time_point deadline_;
};

Finding Search::begin(const Group& group, const Group::Case& failing) const {
  Finding finding;
  finding.requirement = group.requirement;
  finding.unit = work_.units[failing.position];
  finding.verdict = group.verdict;
  finding.reason = group.reason;
  finding.found = finding.minimal = *problem_of(work_, finding.unit);
  finding.result.verdict = group.verdict;
  finding.result.reason = group.reason;
  finding.result.detail = failing.detail;
  finding.fully_shrunk = false;
  finding.cases = {failing.position};
  return finding;
}

/// Takes over a minimal case that is known already, where this requirement fails on it alike.
bool Search::adopt(Finding& finding, const std::vector<Finding>& known) {
  const Requirement& owner = requirement(finding);
  for (std::size_t k = 0; k < known.size(); ++k) {
    std::optional<AttentionProblem> candidate = known[k].minimal;
    if (owner.adapt) candidate = owner.adapt(*candidate, work_.declaration);
    if (!candidate || not_declared(work_.declaration, known[k].minimal)) continue;
    if (owner.applies && !owner.applies(*candidate, work_.declaration)) continue;
    if (!explains(*candidate, needed_features(*candidate, finding.found) | known[k].needed,
                  finding.found, work_.declaration))
      continue;
    const CaseResult result = workers_.check(worker_, owner, *candidate);
    if (result.verdict != finding.verdict || result.reason != finding.reason) continue;
    finding.minimal = *candidate;
    finding.result = result;
    finding.fully_shrunk = known[k].fully_shrunk;
    finding.adopted_from = static_cast<int>(k);
    return true;
  }
  return false;
}

void Search::shrink_down(Finding& finding) {
  const CaseResult again = workers_.check(worker_, requirement(finding), finding.found);
  if (again.verdict != finding.verdict || again.reason != finding.reason) return;
  finding.result = again;
  const double left = std::chrono::duration<double>(deadline_ - Clock::now()).count();
  if (left <= 0) return;
  ShrinkBudget budget = options_.shrink;
  budget.seconds = std::min(budget.seconds, left);
  const Shrunk shrunk =
      shrink(requirement(finding), *worker_.context, finding.found, finding.result, budget);
  finding.minimal = shrunk.problem;
  finding.result = shrunk.result;
  finding.fully_shrunk = shrunk.fully;
}

int Search::count_failing_reruns(const Finding& finding, const AttentionProblem& problem) {
  int failing = 0;
  for (int i = 0; i < options_.reruns && !cancelled(); ++i)
    failing += is_failure(workers_.check_fresh(requirement(finding), problem).verdict);
  return failing;
}

void Search::rerun(Finding& finding) {
  finding.reruns = options_.reruns;
  finding.reruns_failed = count_failing_reruns(finding, finding.minimal);
  if (finding.reruns_failed == 0 && finding.minimal != finding.found) {
    finding.minimal = finding.found;
    finding.fully_shrunk = false;
    finding.adopted_from = -1;
    finding.reruns_failed = count_failing_reruns(finding, finding.found);
  }
  if (cancelled() || finding.reruns_failed == finding.reruns) return;
  const std::string times = std::to_string(finding.reruns_failed) + " of " +
                            std::to_string(finding.reruns) + " reruns failed: ";
  finding.result.detail = times + finding.result.detail;
  if (finding.reason != Reason::none) finding.result.also.push_back(finding.reason);
  finding.verdict = finding.reruns_failed == 0 ? Verdict::warn : Verdict::fail;
  finding.reason = finding.reruns_failed == 0 ? Reason::flaky : Reason::not_deterministic;
}

std::vector<Finding> Search::run(const Group& group, const std::vector<Finding>& known) {
  std::vector<Finding> findings;
  std::vector<Group::Case> rest = group.cases;
  const auto take_explained = [&](Finding& finding) {
    rest.erase(rest.begin());
    if (finding.reason == Reason::flaky) return;
    std::erase_if(rest, [&](const Group::Case& other) {
      if (!explains(finding.minimal, finding.needed,
                    *problem_of(work_, work_.units[other.position]), work_.declaration))
        return false;
      finding.cases.push_back(other.position);
      return true;
    });
  };
  for (int shrinks = 0; !rest.empty() && shrinks < options_.shrinks_per_group &&
                        static_cast<int>(findings.size()) < options_.findings_per_group;
       ++shrinks) {
    Finding finding = begin(group, rest.front());
    if (!cancelled() && !adopt(finding, known)) shrink_down(finding);
    const auto same = std::find_if(findings.begin(), findings.end(), [&](const Finding& earlier) {
      return earlier.minimal == finding.minimal && earlier.reason != Reason::flaky;
    });
    if (same != findings.end()) {
      // Another way to the same minimal case: what the two ways differ in is no cause.
      same->needed &= needed_features(finding.minimal, finding.found);
      same->cases.push_back(rest.front().position);
      take_explained(*same);
      continue;
    }
    if (!cancelled()) {
      rerun(finding);
      describe(finding.result, finding.minimal, *worker_.context, finding.pattern, finding.numbers);
    }
    finding.needed = needed_features(finding.minimal, finding.found);
    take_explained(finding);
    findings.push_back(std::move(finding));
    if (cancelled()) break;
  }
  if (rest.empty()) return findings;

  // What none of the minimal cases explains must not be lost. Many cases that failed once and never
  // again are no accident of the machine.
  Finding remainder = begin(group, rest.front());
  const bool all_flaky = std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.reason == Reason::flaky;
  });
  if (!cancelled()) {
    const CaseResult again = workers_.check(worker_, requirement(remainder), remainder.found);
    if (again.verdict == group.verdict && again.reason == group.reason) remainder.result = again;
    rerun(remainder);
    describe(remainder.result, remainder.minimal, *worker_.context, remainder.pattern,
             remainder.numbers);
  }
  remainder.needed = needed_features(remainder.minimal, remainder.found);
  if (all_flaky && remainder.reason == Reason::flaky) {
    remainder.verdict = Verdict::fail;
    remainder.reason = Reason::not_deterministic;
    remainder.result.detail = std::to_string(group.cases.size()) + " cases failed, none of " +
                              std::to_string(findings.size() + 1) + " when run again";
  } else if (remainder.reason == Reason::flaky) {
    // Others of its kind may fail for good: they are counted as they were found.
    remainder.verdict = group.verdict;
    remainder.reason = group.reason;
  }
  for (std::size_t i = 1; i < rest.size(); ++i) remainder.cases.push_back(rest[i].position);
  findings.push_back(std::move(remainder));
  return findings;
}

}  // namespace

std::uint64_t needed_features(const AttentionProblem& minimal, const AttentionProblem& found) {
  return feature_bits(minimal) & feature_bits(found) & ~feature_bit(Feature::lse);
}

bool explains(const AttentionProblem& minimal, std::uint64_t needed,
              const AttentionProblem& failing, const Declaration& declaration) {
  if ((needed & ~feature_bits(failing)) != 0) return false;
  if (minimal.batch > failing.batch || minimal.num_heads > failing.num_heads ||
      minimal.num_kv_heads > failing.num_kv_heads || minimal.q_len > failing.q_len ||
      minimal.kv_len > failing.kv_len || minimal.head_dim > failing.head_dim ||
      minimal.v_head_dim > failing.v_head_dim)
    return false;
  if (minimal.dtype == failing.dtype) return true;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16})
    if (declaration.has(dtype)) return minimal.dtype == dtype;
  return false;
}

std::vector<Finding> find_causes(const WorkList& work, const std::vector<UnitResult>& results,
                                 Workers& workers, const FindingOptions& options) {
  const std::vector<Group> groups = group_failures(work, results);
  // First one group of every verdict and reason; the others may adopt what these came to.
  std::vector<std::size_t> first, others;
  std::set<std::pair<Verdict, Reason>> seen;
  for (std::size_t g = 0; g < groups.size(); ++g)
    (seen.insert({groups[g].verdict, groups[g].reason}).second ? first : others).push_back(g);

  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.total_seconds));
  const auto always = [](std::size_t) { return true; };
  std::vector<Finding> findings;
  for (const std::vector<std::size_t>& round : {first, others}) {
    std::vector<std::vector<Finding>> found(round.size());
    const std::vector<Finding> known = findings;
    workers.for_each(round.size(), always, [&](Worker& worker, std::size_t i) {
      found[i] = Search(work, workers, worker, options, deadline).run(groups[round[i]], known);
    });
    for (std::vector<Finding>& some : found)
      std::move(some.begin(), some.end(), std::back_inserter(findings));
  }
  return findings;
}

}  // namespace attest
