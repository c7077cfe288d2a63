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
  std::map<std::tuple<std::size_t, Verdict, Reason, std::string>, Group> groups;
  for (std::size_t position = 0; position < work.units.size(); ++position)
    for (const CaseOutcome& outcome : results[position].cases) {
      if (!is_failure(outcome.verdict)) continue;
      const auto requirement = static_cast<std::size_t>(outcome.requirement);
      // What is accepted undeclared is a list that the author wants whole.
      const std::string what =
          outcome.reason == Reason::wrong_accept ? accepted_what(outcome.detail) : "";
      Group& group = groups[{requirement, outcome.verdict, outcome.reason, what}];
      group.requirement = requirement;
      group.verdict = outcome.verdict;
      group.reason = outcome.reason;
      group.cases.push_back({position, outcome.detail});
    }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

/// Whether the call itself went wrong, whatever is then asked of its result.
bool is_accident(Verdict verdict, Reason reason) {
  return verdict != Verdict::fail || reason == Reason::exited ||
         reason == Reason::out_of_bounds_read || reason == Reason::out_of_bounds_write ||
         reason == Reason::junk_status;
}

/// The work on one group.
class Search {
 public:
  Search(const WorkList& work, Workers& workers, Worker& worker, const FindingOptions& options,
         Clock::time_point deadline)
      : work_(work), workers_(workers), worker_(worker), options_(options), deadline_(deadline) {}

  std::vector<Finding> run(const Group& group, const std::vector<Finding>& known);

 private:
  /// In fresh hosts.
  struct Reruns {
    int all = 0, failed = 0;
  };
  bool is_late() const { return Clock::now() >= deadline_; }
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
  Reruns rerun(const Finding& finding, const AttentionProblem& problem);

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
    if (known[k].adopted_from >= 0 || known[k].reason == Reason::flaky) continue;
    const std::optional<AttentionProblem> candidate =
        owner.usable(known[k].minimal, work_.declaration);
    if (!candidate || not_declared(work_.declaration, known[k].minimal)) continue;
    if (!explains(known[k].needs, finding.found)) continue;
    const CaseResult result = workers_.check(worker_, owner, *candidate);
    if (result.verdict != finding.verdict || result.reason != finding.reason) continue;
    finding.minimal = *candidate;
    finding.result = result;
    finding.fully_shrunk = known[k].fully_shrunk;
    finding.adopted_from = static_cast<int>(k);
    // An accident is one of the call, not of who asked for it: it needs no reruns of its own.
    if (is_accident(finding.verdict, finding.reason) && *candidate == known[k].minimal &&
        finding.verdict == known[k].verdict && finding.reason == known[k].reason) {
      finding.reruns = known[k].reruns;
      finding.reruns_failed = known[k].reruns_failed;
    }
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

Search::Reruns Search::rerun(const Finding& finding, const AttentionProblem& problem) {
  Reruns done;
  // Ten of what sleeps take ten seconds. When it is late one that fails is enough; where one does
  // not, all are needed to tell a mistake that comes and goes.
  const auto enough = [&] { return is_late() && done.all > 0 && done.failed == done.all; };
  while (done.all < options_.reruns && !cancelled() && !enough()) {
    ++done.all;
    done.failed += is_failure(workers_.check_fresh(requirement(finding), problem).verdict);
  }
  return done;
}

void Search::rerun(Finding& finding) {
  if (finding.reruns > 0) return;
  Reruns done = rerun(finding, finding.minimal);
  if (done.failed == 0 && finding.minimal != finding.found) {
    finding.minimal = finding.found;
    finding.fully_shrunk = false;
    finding.adopted_from = -1;
    done = rerun(finding, finding.found);
  }
  finding.reruns = done.all;
  finding.reruns_failed = done.failed;
  if (cancelled() || finding.reruns_failed == finding.reruns) return;
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
      if (!explains(finding.needs, *problem_of(work_, work_.units[other.position]))) return false;
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
      same->needs =
          common_needs(same->needs, needs_of(finding.minimal, finding.found, work_.declaration));
      same->cases.push_back(rest.front().position);
      take_explained(*same);
      continue;
    }
    if (!cancelled()) {
      rerun(finding);
      describe(finding.result, finding.minimal, *worker_.context, finding.pattern, finding.numbers);
    }
    finding.needs = needs_of(finding.minimal, finding.found, work_.declaration);
    take_explained(finding);
    findings.push_back(std::move(finding));
    if (cancelled()) break;
  }
  if (rest.empty()) return findings;

  // What none of the minimal cases explains must not be lost. Many cases that failed once and never
  // again are no accident of the machine.
  Finding remainder = begin(group, rest.front());
  const bool none_for_good =
      std::all_of(findings.begin(), findings.end(), [](const Finding& finding) {
        return finding.reason == Reason::flaky || finding.reason == Reason::not_deterministic;
      });
  if (!cancelled()) {
    const CaseResult again = workers_.check(worker_, requirement(remainder), remainder.found);
    if (again.verdict == group.verdict && again.reason == group.reason) remainder.result = again;
    rerun(remainder);
    describe(remainder.result, remainder.minimal, *worker_.context, remainder.pattern,
             remainder.numbers);
  }
  remainder.needs = needs_of(remainder.minimal, remainder.found, work_.declaration);
  if (none_for_good && remainder.reason == Reason::flaky) {
    remainder.verdict = Verdict::fail;
    remainder.reason = Reason::not_deterministic;
    remainder.result.detail = std::to_string(rest.size()) +
                              " more cases failed, the first of them " + "not again in " +
                              std::to_string(remainder.reruns) + " reruns";
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

std::string accepted_what(const std::string& detail) {
  const std::string_view text = detail;
  const std::size_t begin = text.find("accepts ");
  const std::size_t end = text.find(", which");
  if (begin != 0 || end == std::string_view::npos) return "";
  return std::string(text.substr(8, end - 8));
}

bool is_about_values(Reason reason) {
  return reason == Reason::wrong_value || reason == Reason::nan_leak ||
         reason == Reason::nan_lost || reason == Reason::law_broken || reason == Reason::biased ||
         reason == Reason::unwritten;
}

int severity(Verdict verdict, Reason reason) {
  switch (verdict) {
    case Verdict::crash: return 0;
    case Verdict::hang: return 1;
    case Verdict::out_of_memory: return 2;
    default: break;
  }
  // A wrong value is what many mistakes come to; what is more exact says more.
  constexpr Reason kOrder[] = {Reason::exited,
                               Reason::out_of_bounds_write,
                               Reason::out_of_bounds_read,
                               Reason::junk_status,
                               Reason::wrong_reject,
                               Reason::wrong_accept,
                               Reason::input_modified,
                               Reason::unwritten,
                               Reason::not_deterministic,
                               Reason::nan_leak,
                               Reason::wrong_value,
                               Reason::nan_lost,
                               Reason::law_broken,
                               Reason::biased,
                               Reason::flaky,
                               Reason::none};
  const auto* place = std::find(std::begin(kOrder), std::end(kOrder), reason);
  return 3 + static_cast<int>(place - std::begin(kOrder));
}

namespace {

std::array<std::int64_t, 7> sizes_of(const AttentionProblem& p) {
  return {p.batch, p.num_heads, p.num_kv_heads, p.q_len, p.kv_len, p.head_dim, p.v_head_dim};
}

}  // namespace

Needs needs_of(const AttentionProblem& minimal, const AttentionProblem& found,
               const Declaration& declaration) {
  Needs needs;
  needs.features = feature_bits(minimal) & feature_bits(found) & ~feature_bit(Feature::lse);
  needs.sizes = sizes_of(minimal);
  const auto drawn = sizes_of(found);
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    needs.sizes[i] = std::min(needs.sizes[i], drawn[i]);
    // Shrinking prefers 1 to 0, so that 1 is no need.
    if (needs.sizes[i] == 1) needs.sizes[i] = 0;
  }
  needs.dtype = minimal.dtype;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    if (!declaration.has(dtype)) continue;
    if (dtype == minimal.dtype) needs.dtype.reset();
    break;
  }
  return needs;
}

Needs common_needs(const Needs& a, const Needs& b) {
  Needs common = a;
  common.features &= b.features;
  for (std::size_t i = 0; i < common.sizes.size(); ++i)
    common.sizes[i] = std::min(common.sizes[i], b.sizes[i]);
  if (a.dtype != b.dtype) common.dtype.reset();
  return common;
}

bool explains(const Needs& needs, const AttentionProblem& failing) {
  if ((needs.features & ~feature_bits(failing)) != 0) return false;
  const auto sizes = sizes_of(failing);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (needs.sizes[i] > sizes[i]) return false;
  return !needs.dtype || *needs.dtype == failing.dtype;
}

std::vector<Finding> find_causes(const WorkList& work, const std::vector<UnitResult>& results,
                                 Workers& workers, const FindingOptions& options) {
  std::vector<Group> groups = group_failures(work, results);
  // The most telling reasons first; of one reason first a group on shared problems, then the rest
  // at once: each may adopt what those before it came to.
  const auto owns_problems = [&](const Group& group) {
    return work.requirements[group.requirement]->has_own_problems();
  };
  const auto order = [&](const Group& group) {
    return std::tuple(severity(group.verdict, group.reason), owns_problems(group),
                      group.requirement);
  };
  std::stable_sort(groups.begin(), groups.end(),
                   [&](const Group& a, const Group& b) { return order(a) < order(b); });
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.total_seconds));
  const auto always = [](std::size_t) { return true; };
  std::vector<Finding> findings;
  const auto work_on = [&](std::size_t begin, std::size_t end) {
    const std::vector<Finding> known = findings;
    std::vector<std::vector<Finding>> found(end - begin);
    workers.for_each(end - begin, always, [&](Worker& worker, std::size_t i) {
      found[i] = Search(work, workers, worker, options, deadline).run(groups[begin + i], known);
    });
    for (std::vector<Finding>& some : found)
      std::move(some.begin(), some.end(), std::back_inserter(findings));
  };
  for (std::size_t begin = 0; begin < groups.size();) {
    std::size_t end = begin + 1;
    while (end < groups.size() && groups[end].verdict == groups[begin].verdict &&
           groups[end].reason == groups[begin].reason)
      ++end;
    work_on(begin, begin + 1);
    work_on(begin + 1, end);
    begin = end;
  }
  return findings;
}

}  // namespace attest
