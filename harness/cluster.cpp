// SPDX-License-Identifier: Apache-2.0
#include "harness/cluster.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/complexity.hpp"

namespace attest {

namespace {

bool starts_with(const std::string& text, std::string_view prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

/// "read, 0 bytes past the end of k" -> "reads past the end of k"; "" for other sentences.
std::string out_of_bounds_phrase(const std::string& detail) {
  std::string verb;
  if (starts_with(detail, "read, ")) verb = "reads";
  if (starts_with(detail, "write, ")) verb = "writes";
  if (verb.empty()) return "";
  for (const char* where : {"past the end of ", "before "}) {
    const std::size_t at = detail.find(where);
    if (at == std::string::npos) continue;
    const std::size_t name_begin = at + std::string(where).size();
    const std::size_t name_end = detail.find_first_of(" ,;:", name_begin);
    return verb + " " + where + detail.substr(name_begin, name_end - name_begin);
  }
  return "";
}

std::string tensor_of(const Finding& finding) {
  return finding.result.worst ? finding.result.worst->tensor : "result";
}

}  // namespace

std::string what_happened(const Finding& finding) {
  const std::string& detail = finding.result.detail;
  switch (finding.verdict) {
    case Verdict::crash: return "crashes: " + detail;
    case Verdict::hang: return "does not return within its time limit";
    case Verdict::out_of_memory: return "takes more memory than its limit";
    default: break;
  }
  switch (finding.reason) {
    case Reason::wrong_value: return "wrong " + tensor_of(finding);
    case Reason::biased: return "biased " + tensor_of(finding);
    case Reason::unwritten: return "leaves elements of its " + tensor_of(finding) + " unwritten";
    case Reason::nan_leak:
      return "NaN or Inf in " + tensor_of(finding) + " where it must be finite";
    case Reason::nan_lost: return "a visible NaN does not come out";
    case Reason::out_of_bounds_read:
    case Reason::out_of_bounds_write: {
      const std::string phrase = out_of_bounds_phrase(detail);
      if (!phrase.empty()) return phrase;
      return finding.reason == Reason::out_of_bounds_read ? "reads out of bounds"
                                                          : "writes out of bounds";
    }
    case Reason::input_modified: return "changes its inputs";
    // "changing a hidden key changes o[0,0,1,0] from ...": without the element.
    case Reason::law_broken: return detail.substr(0, detail.find('['));
    case Reason::not_deterministic: return "gives different results for the same call";
    case Reason::wrong_reject: return "refuses what it declares: " + detail;
    case Reason::wrong_accept: return "accepts what it does not declare";
    case Reason::junk_status: return "returns a status that means nothing";
    case Reason::exited: return "ends the process";
    case Reason::flaky: return "failed once and never again";
    case Reason::none: break;
  }
  return detail;
}

std::string condition(Feature feature) {
  switch (feature) {
    case Feature::gqa: return "hkv < hq";
    case Feature::v_head_dim: return "dv != d";
    case Feature::causal: return "base=causal";
    case Feature::prefix: return "base=prefix";
    case Feature::align_top_left: return "align=top_left";
    case Feature::align_bottom_right: return "align=bottom_right";
    case Feature::align_q_offset: return "align=q_offset";
    case Feature::window_left: return "a left window";
    case Feature::window_right: return "a right window";
    case Feature::alibi_absolute: return "alibi=absolute";
    case Feature::alibi_signed: return "alibi=signed";
    case Feature::alibi_key_anchored: return "alibi=key_anchored";
    case Feature::rope_interleaved: return "rope=interleaved";
    case Feature::rope_half: return "rope=half";
    case Feature::layout_blhd: return "layout=blhd";
    case Feature::layout_bhdl: return "layout=bhdl";
    case Feature::layout_strided: return "layout=strided";
    case Feature::layout_kv_packed: return "layout=kv_packed";
    case Feature::layout_broadcast: return "layout=broadcast";
    case Feature::empty_dims: return "an empty dimension";
    case Feature::bias_neg_inf: return "bias=-inf";
    case Feature::scale_nonpositive: return "scale <= 0";
    default: return std::string(name(feature));
  }
}

namespace {

/// A condition on the sizes of a problem. Of several with the same `family` the first that holds
/// for all failing cases is the strongest.
struct SizeCondition {
  const char* text;
  int family;
  bool (*holds)(const AttentionProblem&);
};
using P = const AttentionProblem&;
constexpr std::array<SizeCondition, 26> kSizeConditions{{
    {"lq < lk", 0, [](P p) { return p.q_len < p.kv_len; }},
    {"lq > lk", 0, [](P p) { return p.q_len > p.kv_len; }},
    {"lq = lk", 0, [](P p) { return p.q_len == p.kv_len; }},
    {"lq != lk", 0, [](P p) { return p.q_len != p.kv_len; }},
    {"lk > 128", 1, [](P p) { return p.kv_len > 128; }},
    {"lk > 64", 1, [](P p) { return p.kv_len > 64; }},
    {"lk > 32", 1, [](P p) { return p.kv_len > 32; }},
    {"lk > 16", 1, [](P p) { return p.kv_len > 16; }},
    {"lk > 1", 1, [](P p) { return p.kv_len > 1; }},
    {"lq > 128", 2, [](P p) { return p.q_len > 128; }},
    {"lq > 64", 2, [](P p) { return p.q_len > 64; }},
    {"lq > 32", 2, [](P p) { return p.q_len > 32; }},
    {"lq > 16", 2, [](P p) { return p.q_len > 16; }},
    {"lq > 1", 2, [](P p) { return p.q_len > 1; }},
    {"odd d", 3, [](P p) { return p.head_dim % 2 != 0; }},
    {"d not a multiple of 8", 3, [](P p) { return p.head_dim % 8 != 0; }},
    {"d > 64", 4, [](P p) { return p.head_dim > 64; }},
    {"d > 32", 4, [](P p) { return p.head_dim > 32; }},
    {"d > 1", 4, [](P p) { return p.head_dim > 1; }},
    {"dv > 1", 5, [](P p) { return p.v_head_dim > 1; }},
    {"b > 1", 6, [](P p) { return p.batch > 1; }},
    {"hq > 1", 7, [](P p) { return p.num_heads > 1; }},
    {"lk not a multiple of 8", 8, [](P p) { return p.kv_len % 8 != 0; }},
    {"lk not a multiple of 16", 8, [](P p) { return p.kv_len % 16 != 0; }},
    {"lk not a multiple of 32", 8, [](P p) { return p.kv_len % 32 != 0; }},
    {"lk not a multiple of 64", 8, [](P p) { return p.kv_len % 64 != 0; }},
}};

/// The cases of the run that a condition is measured on: those of the cause, and those that pass
/// although they have the features that the failing ones have in common.
struct Contrast {
  std::vector<AttentionProblem> failing, passing;
  std::size_t drawn = 0;  ///< of the failing ones; the others are minimal cases
};

Contrast contrast_of(const WorkList& work, const std::vector<UnitResult>& results,
                     const std::vector<Finding>& findings, const std::vector<std::size_t>& members,
                     std::uint64_t common) {
  constexpr std::size_t kMostPassing = 2000;
  std::set<std::size_t> failing, requirements;
  Contrast contrast;
  for (const std::size_t m : members) {
    failing.insert(findings[m].cases.begin(), findings[m].cases.end());
    requirements.insert(findings[m].requirement);
    contrast.failing.push_back(findings[m].minimal);
  }
  for (std::size_t position = 0; position < results.size(); ++position) {
    const bool failed = failing.count(position) > 0;
    const bool passed =
        !failed && (common & ~results[position].features) == 0 &&
        std::any_of(results[position].cases.begin(), results[position].cases.end(),
                    [&](const CaseOutcome& outcome) {
                      return outcome.verdict == Verdict::pass &&
                             requirements.count(static_cast<std::size_t>(outcome.requirement)) > 0;
                    });
    if (!failed && (!passed || contrast.passing.size() >= kMostPassing)) continue;
    const auto problem = problem_of(work, work.units[position]);
    if (problem) (failed ? contrast.failing : contrast.passing).push_back(*problem);
    contrast.drawn += failed;
  }
  return contrast;
}

/// Conditions on sizes, data and dtype that all failing cases share and most passing ones lack, the
/// most telling first, at most two.
std::vector<std::string> telling_conditions(const Contrast& contrast, std::size_t dtypes) {
  // By chance alone all n failing cases share a condition of that share with share^n.
  constexpr double kChance = 1e-3;
  if (contrast.passing.empty()) return {};
  struct Scored {
    double share;
    int family;
    std::string text;
  };
  std::vector<Scored> scored;
  const auto consider = [&](int family, const std::string& text, const auto& holds) {
    if (!std::all_of(contrast.failing.begin(), contrast.failing.end(), holds)) return;
    const auto shared = std::count_if(contrast.passing.begin(), contrast.passing.end(), holds);
    const double share = static_cast<double>(shared) / static_cast<double>(contrast.passing.size());
    const double chance = std::pow(share, static_cast<double>(contrast.drawn));
    if (chance < kChance) scored.push_back({share, family, text});
  };
  for (const SizeCondition& size : kSizeConditions) consider(size.family, size.text, size.holds);
  const AttentionProblem& example = contrast.failing.front();
  consider(100, "data=" + std::string(enum_name(example.data)),
           [&](P p) { return p.data == example.data; });
  if (dtypes > 1)
    consider(101, "dtype=" + std::string(name(example.dtype)),
             [&](P p) { return p.dtype == example.dtype; });
  std::stable_sort(scored.begin(), scored.end(),
                   [](const Scored& a, const Scored& b) { return a.share < b.share; });
  std::vector<std::string> conditions;
  std::set<int> families;
  for (const Scored& one : scored)
    if (conditions.size() < 2 && families.insert(one.family).second) conditions.push_back(one.text);
  return conditions;
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

/// Refusing with the same words and taking what is not declared are one mistake each, whatever the
/// case.
bool of_one_kind(Reason reason) {
  return reason == Reason::wrong_reject || reason == Reason::wrong_accept;
}

/// So is what comes and goes.
bool changes_with_time(Reason reason) {
  return reason == Reason::not_deterministic || reason == Reason::flaky;
}

/// findings -> the root of their cause, smallest index first.
std::vector<std::size_t> roots_of(const std::vector<Finding>& findings) {
  std::vector<std::size_t> root(findings.size());
  std::iota(root.begin(), root.end(), 0);
  const auto find = [&](std::size_t i) {
    while (root[i] != i) i = root[i];
    return i;
  };
  const auto unite = [&](std::size_t a, std::size_t b) {
    const std::size_t ra = find(a), rb = find(b);
    root[std::max(ra, rb)] = std::min(ra, rb);
  };
  for (std::size_t i = 0; i < findings.size(); ++i) {
    if (findings[i].adopted_from >= 0) unite(i, static_cast<std::size_t>(findings[i].adopted_from));
    for (std::size_t j = 0; j < i; ++j) {
      const Finding &a = findings[i], &b = findings[j];
      if (changes_with_time(a.reason) && changes_with_time(b.reason)) unite(i, j);
      if (a.verdict != b.verdict) continue;
      // Wrong values, lost NaNs, broken laws with the same features: symptoms of one mistake.
      if (is_about_values(a.reason) && is_about_values(b.reason) && a.needs.features != 0 &&
          a.needs.features == b.needs.features)
        unite(i, j);
      if (a.reason != b.reason || what_happened(a) != what_happened(b)) continue;
      if (of_one_kind(a.reason) || a.needs.features == b.needs.features ||
          explains(a.needs, b.minimal) || explains(b.needs, a.minimal))
        unite(i, j);
    }
  }
  for (std::size_t i = 0; i < findings.size(); ++i) root[i] = find(i);
  return root;
}

Cause make_cause(const WorkList& work, const std::vector<UnitResult>& results,
                 const std::vector<Finding>& findings, const std::vector<std::size_t>& members) {
  // The most telling one is shown, and of several the smallest.
  const auto before = [](const Finding& a, const Finding& b) {
    const int rank_a = severity(a.verdict, a.reason), rank_b = severity(b.verdict, b.reason);
    return rank_a != rank_b ? rank_a < rank_b : is_simpler(a.minimal, b.minimal);
  };
  std::size_t smallest = members.front();
  for (const std::size_t m : members)
    if (before(findings[m], findings[smallest])) smallest = m;
  const Finding& shown = findings[smallest];
  Cause cause;
  cause.verdict = shown.verdict;
  cause.reason = shown.reason;
  cause.smallest = static_cast<int>(smallest);
  std::uint64_t common = ~std::uint64_t{0};
  std::set<std::size_t> cases;
  std::set<std::string> ids;
  std::set<DType> dtypes;
  for (const std::size_t m : members) {
    common &= feature_bits(findings[m].minimal);
    cases.insert(findings[m].cases.begin(), findings[m].cases.end());
    ids.insert(work.requirements[findings[m].requirement]->id);
    cause.cases += static_cast<std::int64_t>(findings[m].cases.size());
  }
  for (const std::size_t position : cases) {
    common &= results[position].features;
    dtypes.insert(results[position].dtype);
  }
  cause.caught_by.assign(ids.begin(), ids.end());
  for (const DType dtype : dtypes) cause.dtypes.emplace_back(name(dtype));
  std::vector<std::string> conditions;
  for (int f = 0; f < kNumFeatures; ++f) {
    const auto feature = static_cast<Feature>(f);
    if (feature == Feature::lse || !(common & feature_bit(feature))) continue;
    cause.features.emplace_back(name(feature));
    // bias_neg_inf says it already.
    if (feature == Feature::bias && (common & feature_bit(Feature::bias_neg_inf))) continue;
    conditions.push_back(condition(feature));
  }
  for (std::string& telling : telling_conditions(
           contrast_of(work, results, findings, members, common), work.declaration.dtypes.size()))
    conditions.push_back(std::move(telling));
  // Outputs that one mistake spoils together are named together.
  std::vector<std::string> wrong;
  for (const std::string tensor : {"o", "lse"})
    for (const std::size_t m : members)
      if (findings[m].reason == Reason::wrong_value && tensor_of(findings[m]) == tensor) {
        wrong.push_back(tensor);
        break;
      }
  cause.sentence = shown.reason == Reason::wrong_value && wrong.size() > 1 ? "wrong " + join(wrong)
                                                                           : what_happened(shown);
  if (shown.reason == Reason::wrong_accept) {
    std::set<std::string> accepted;
    for (const std::size_t m : members) accepted.insert(accepted_what(findings[m].result.detail));
    accepted.erase("");
    if (!accepted.empty()) cause.sentence += ": " + join({accepted.begin(), accepted.end()});
    conditions.clear();
  }
  if (!conditions.empty()) cause.sentence += " where " + join(conditions);
  return cause;
}

}  // namespace

void cluster(const WorkList& work, const std::vector<UnitResult>& results,
             const std::vector<Finding>& findings, Record& record) {
  const std::vector<std::size_t> root = roots_of(findings);
  std::map<std::size_t, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < findings.size(); ++i) members[root[i]].push_back(i);
  struct Clustered {
    Cause cause;
    std::vector<std::size_t> members;
  };
  std::vector<Clustered> causes;
  for (auto& [first, list] : members)
    causes.push_back({make_cause(work, results, findings, list), list});
  std::stable_sort(causes.begin(), causes.end(), [](const Clustered& a, const Clustered& b) {
    const bool a_fails = is_failure(a.cause.verdict), b_fails = is_failure(b.cause.verdict);
    return a_fails != b_fails ? a_fails : a.cause.cases > b.cause.cases;
  });
  for (std::size_t c = 0; c < causes.size(); ++c) {
    causes[c].cause.id = static_cast<int>(c) + 1;
    for (const std::size_t m : causes[c].members) record.failures[m].cause = causes[c].cause.id;
    record.causes.push_back(std::move(causes[c].cause));
  }
}

namespace {

void take_over(const Cause& other, Cause& cause) {
  cause.cases += other.cases;
  std::set<std::string> caught_by(cause.caught_by.begin(), cause.caught_by.end());
  caught_by.insert(other.caught_by.begin(), other.caught_by.end());
  cause.caught_by.assign(caught_by.begin(), caught_by.end());
  for (const std::string& dtype : other.dtypes)
    if (std::count(cause.dtypes.begin(), cause.dtypes.end(), dtype) == 0)
      cause.dtypes.push_back(dtype);
  std::erase_if(cause.features, [&](const std::string& feature) {
    return std::count(other.features.begin(), other.features.end(), feature) == 0;
  });
}

}  // namespace

void merge_causes_of_one_diagnosis(Record& record) {
  std::vector<Cause> merged;
  std::map<int, int> id_of;
  for (const Cause& cause : record.causes) {
    const auto same = std::find_if(merged.begin(), merged.end(), [&](const Cause& before) {
      return !cause.hypotheses.empty() && before.hypotheses == cause.hypotheses &&
             is_failure(before.verdict) && is_failure(cause.verdict);
    });
    if (same == merged.end()) {
      merged.push_back(cause);
      merged.back().id = static_cast<int>(merged.size());
      id_of[cause.id] = merged.back().id;
    } else {
      take_over(cause, *same);
      id_of[cause.id] = same->id;
    }
  }
  for (Failure& failure : record.failures) failure.cause = id_of[failure.cause];
  record.causes = std::move(merged);
}

}  // namespace attest
