// SPDX-License-Identifier: Apache-2.0
#include "reports/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/text.hpp"

namespace attest {
namespace {

std::vector<std::string> plain_all(const std::vector<std::string>& texts) {
  std::vector<std::string> result;
  for (const std::string& text : texts) result.push_back(plain(text));
  return result;
}

/// Why a run came to no verdict, the gravest first.
std::string incomplete_reason(const Record& record) {
  if (record.audit.outside > 0)
    return fmt::format("the oracle failed its audit ({})",
                       counted(record.audit.outside, "element"));
  if (record.counts.error > 0)
    return fmt::format("{} could not be run", counted(record.counts.error, "case"));
  if (!record.scope.cut.empty()) return plain(record.scope.cut);
  return record.notes.empty() ? "it was interrupted" : plain(record.notes.front());
}

std::string index_text(const Element& element) {
  return element.index.empty() ? "" : fmt::format("[{}]", fmt::join(element.index, ","));
}

bool is_broken(const ExpectationResult& entry) {
  return entry.state == "stale" || entry.state == "wrong_reason";
}

/// ", 1 stale expectation, 2 demands lost"
std::string broken_counts(const Record& record) {
  std::string text;
  const auto stale =
      std::count_if(record.expectations.begin(), record.expectations.end(), is_broken);
  const auto lost = std::count_if(record.demands.begin(), record.demands.end(),
                                  [](const DemandResult& demand) { return !demand.met; });
  if (stale > 0) text += fmt::format(", {}", counted(stale, "stale expectation"));
  if (lost > 0) text += fmt::format(", {} lost", counted(lost, "demand"));
  return text;
}

std::string lost_demand(const DemandResult& demand) {
  return fmt::format("line {}: {}: {}", demand.line_number, plain(demand.line),
                     plain(demand.detail));
}

void add_missing(std::vector<std::string>& list, const std::string& item) {
  if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
}

}  // namespace

std::string_view verdict_word(SuiteVerdict verdict) {
  switch (verdict) {
    case SuiteVerdict::conformant: return "CONFORMANT";
    case SuiteVerdict::not_conformant: return "NOT CONFORMANT";
    case SuiteVerdict::too_little_tested: return "TOO LITTLE TESTED";
    case SuiteVerdict::incomplete: return "INCOMPLETE";
  }
  return "?";
}

std::string subject_name(const Record& record) {
  const std::string name = plain(record.subject.name);
  return record.subject.version.empty() ? name : name + ' ' + plain(record.subject.version);
}

bool names_program(const std::string& path) {
  return path.starts_with("jsonl:") || path.starts_with("safetensors:") ||
         path.find("::") != std::string::npos;
}

std::string subject_word(const Record& record) {
  const SubjectInfo& subject = record.subject;
  const std::string name = plain(subject.name);
  if (subject.built_in || subject.path.empty()) return shell_word(name);
  return shell_word(names_program(subject.path) ? plain(subject.path)
                                                : plain(subject.path) + '#' + name);
}

std::string verdict_sentence(const Record& record) {
  const Counts& counts = record.counts;
  const std::string cases = counted(counts.total(), "case");
  switch (record.verdict) {
    case SuiteVerdict::conformant: {
      std::string text = cases + ", none fails";
      if (counts.warn > 0) text += fmt::format(", {}", counted(counts.warn, "warning"));
      return text + broken_counts(record);
    }
    case SuiteVerdict::not_conformant: {
      std::string text =
          fmt::format("{} of {} fail, {}", grouped(counts.failures()), cases,
                      counted(static_cast<std::int64_t>(record.causes.size()), "cause"));
      if (!record.baseline.path.empty())
        text += record.baseline.fresh == 0
                    ? ", none new"
                    : fmt::format(", {} new", grouped(record.baseline.fresh));
      return text + broken_counts(record);
    }
    case SuiteVerdict::too_little_tested:
      return fmt::format("{} of {} judged ({} refused), which says nothing",
                         grouped(counts.pass + counts.warn + counts.failures()), cases,
                         grouped(counts.unsupported));
    case SuiteVerdict::incomplete:
      return fmt::format("no verdict after {}: {}", cases, incomplete_reason(record));
  }
  return cases;
}

std::string run_sentence(const Record& record) {
  std::string text = fmt::format("suite {}, seed {}", plain(record.suite), record.seed);
  if (!record.shard.empty() && record.shard != "1/1")
    text += fmt::format(", shard {}", plain(record.shard));
  return fmt::format("{}, {}", text, duration(record.wall_seconds));
}

std::string verdict_counts(const Counts& counts) {
  std::vector<std::string> words;
  const auto add = [&words](std::int64_t count, Verdict verdict) {
    if (count > 0) words.push_back(fmt::format("{} {}", grouped(count), name(verdict)));
  };
  add(counts.pass, Verdict::pass);
  add(counts.fail, Verdict::fail);
  add(counts.crash, Verdict::crash);
  add(counts.hang, Verdict::hang);
  add(counts.out_of_memory, Verdict::out_of_memory);
  add(counts.warn, Verdict::warn);
  add(counts.unsupported, Verdict::unsupported);
  add(counts.not_judged, Verdict::not_judged);
  add(counts.error, Verdict::error);
  return words.empty() ? "no case" : join(words, ", ");
}

std::vector<CauseView> causes_by_urgency(const Record& record) {
  std::vector<CauseView> views;
  for (const Cause& cause : record.causes) {
    if (cause.smallest < 0 || static_cast<std::size_t>(cause.smallest) >= record.failures.size())
      continue;
    CauseView view{&cause, &record.failures[static_cast<std::size_t>(cause.smallest)], true};
    for (const Failure& failure : record.failures)
      if (failure.cause == cause.id && !failure.expected) view.expected = false;
    view.expected = view.expected && view.smallest->expected;
    views.push_back(view);
  }
  const auto rank = [](const CauseView& view) {
    return !is_failure(view.cause->verdict) ? 2 : view.known() ? 1 : 0;
  };
  std::stable_sort(views.begin(), views.end(),
                   [&rank](const CauseView& a, const CauseView& b) { return rank(a) < rank(b); });
  return views;
}

std::string cause_sentence(const CauseView& view) {
  const Cause& cause = *view.cause;
  const std::string sentence = plain(cause.sentence);
  std::string text(name(cause.verdict));
  if (cause.reason != Reason::none)
    text += fmt::format(", {}: {}", name(cause.reason), sentence);
  else if (sentence.rfind(text, 0) == 0)  // "crashes: signal 11" says it already
    text = sentence;
  else
    text += ": " + sentence;
  if (view.expected) {
    text += " (expected";
    if (!view.smallest->expected_why.empty())
      text += fmt::format(": {}", plain(view.smallest->expected_why));
    text += ')';
  } else if (cause.known) {
    text += " (known from the baseline)";
  }
  return text;
}

std::string cause_extent(const Cause& cause) {
  const std::string cases = counted(cause.cases, "case");
  return cause.dtypes.empty() ? cases : join(plain_all(cause.dtypes), " ") + ", " + cases;
}

std::string worst_sentence(const Failure& failure) {
  if (!failure.worst) return "";
  const Element& worst = *failure.worst;
  const NumberPair numbers = number_pair(worst.expected, worst.actual);
  std::string text = fmt::format("{}{}: expected {}, got {}", plain(worst.tensor),
                                 index_text(worst), numbers.first, numbers.second);
  // A law ("this change must not change a bit") has no tolerance to speak of.
  if (!(worst.tolerance > 0)) return text;
  text += fmt::format(", tolerance {:.3g}", worst.tolerance);
  if (std::isfinite(worst.ratio)) text += fmt::format(" (error / tolerance {:.3g})", worst.ratio);
  return text;
}

std::string where_sentence(const Failure& failure) {
  std::vector<std::string> parts;
  if (failure.elements_compared > 0)
    parts.push_back(fmt::format("{} of {} wrong", grouped(failure.elements_failed),
                                counted(failure.elements_compared, "element")));
  if (!failure.pattern.empty()) parts.push_back(plain(failure.pattern));
  return join(parts, ", ");
}

std::string reruns_sentence(const Failure& failure) {
  if (failure.reruns == 0) return "not rerun";
  return fmt::format("{}/{} reruns fail", failure.reruns_failed, failure.reruns);
}

std::vector<std::string> dtypes_of(const Record& record) {
  std::vector<std::string> dtypes;
  for (const std::string& dtype : record.scope.dtypes) add_missing(dtypes, plain(dtype));
  for (const MatrixCell& cell : record.matrix) add_missing(dtypes, plain(cell.dtype));
  return dtypes;
}

std::vector<MatrixRow> matrix_rows(const Record& record) {
  const std::vector<std::string> dtypes = dtypes_of(record);
  std::vector<MatrixRow> rows;
  for (const MatrixCell& cell : record.matrix) {
    const std::string feature = plain(cell.feature);
    auto row = std::find_if(rows.begin(), rows.end(),
                            [&feature](const MatrixRow& r) { return r.feature == feature; });
    if (row == rows.end()) {
      rows.push_back({.feature = feature, .cells = std::vector<MatrixCell>(dtypes.size())});
      row = rows.end() - 1;
    }
    const auto column = std::find(dtypes.begin(), dtypes.end(), plain(cell.dtype)) - dtypes.begin();
    row->cells[static_cast<std::size_t>(column)] = cell;
    row->cases += cell.cases;
    row->failed += cell.failed;
    row->unsupported += cell.unsupported;
  }
  return rows;
}

std::string scope_sentence(const Record& record) {
  const Scope& scope = record.scope;
  std::vector<std::string> parts;
  const auto add = [&parts](std::string_view label, const std::string& text) {
    if (!text.empty()) parts.push_back(fmt::format("{} {}", label, text));
  };
  add("dtypes", join(plain_all(scope.dtypes), " "));
  add("head dims", join(plain_all(scope.head_dims), " "));
  add("precision", plain(scope.precision));
  if (scope.refused_share > 0)
    parts.push_back(
        fmt::format("{:.3g} % of the declared cases refused", 100 * scope.refused_share));
  if (record.pairs.possible > 0)
    parts.push_back(fmt::format("{} of {} feature pairs met", grouped(record.pairs.covered),
                                grouped(record.pairs.possible)));
  if (!scope.cut.empty()) parts.push_back(fmt::format("cut {}", plain(scope.cut)));
  return join(parts, "; ");
}

std::string pairs_sentence(const PairCoverage& pairs) {
  if (pairs.possible == 0) return "";
  std::string text = fmt::format(
      "{} of {} pairs of feature values were tested together, {} of {} triples of core features",
      grouped(pairs.covered), grouped(pairs.possible), grouped(pairs.triples_covered),
      grouped(pairs.triples_possible));
  if (!pairs.missing.empty())
    text += fmt::format("; never: {}", join(plain_all(pairs.missing), ", "));
  const auto more = pairs.possible - pairs.covered - std::ssize(pairs.missing);
  if (!pairs.missing.empty() && more > 0) text += fmt::format(" and {} more", grouped(more));
  return text;
}

std::vector<std::string> memory_sentences(const Record& record) {
  std::vector<std::string> sentences;
  for (const CallMemory& call : record.memory) {
    const std::string lengths =
        call.q_len == call.kv_len
            ? fmt::format("{} queries and keys", grouped(call.q_len))
            : fmt::format("{} queries, {} keys", grouped(call.q_len), grouped(call.kv_len));
    sentences.push_back(fmt::format("{} at {}: {} beyond {} of tensors", plain(call.operation),
                                    lengths, bytes_text(call.extra_bytes),
                                    bytes_text(call.tensor_bytes)));
  }
  return sentences;
}

std::vector<std::string> cache_sentences(const Record& record) {
  std::vector<std::string> sentences;
  for (const CacheMemory& cache : record.kv_cache) {
    std::string sentence = fmt::format(
        "{} ({} key/value heads of {}, {} rows, {}) {}", plain(cache.heads), cache.num_kv_heads,
        cache.head_dim, grouped(cache.rows), plain(cache.dtype), bytes_text(cache.written_bytes));
    if (cache.written_bytes != cache.expected_bytes)
      sentence += fmt::format(" where 2 T Hkv D s is {}", bytes_text(cache.expected_bytes));
    sentences.push_back(std::move(sentence));
  }
  return sentences;
}

std::string audit_sentence(const Audit& audit) {
  if (audit.rows == 0) return "no row was recomputed by the definition";
  std::string text = fmt::format(
      "{} recomputed by the definition, {} of {} outside the certified radius",
      counted(audit.rows, "row"), grouped(audit.outside), counted(audit.elements, "element"));
  if (audit.outside > 0) return fmt::format("{}; first: {}", text, plain(audit.first_outside));
  return fmt::format("{}; largest radius {:.1g} of the tolerance", text,
                     audit.worst_radius_over_tolerance);
}

std::vector<std::string> expectation_sentences(const Record& record) {
  std::vector<std::string> sentences;
  std::int64_t met = 0;
  for (const ExpectationResult& entry : record.expectations) {
    const char* what = entry.state == "stale"          ? "nothing fails there any more, remove it"
                       : entry.state == "wrong_reason" ? "fails for another reason"
                       : entry.state == "unused"       ? "no case of this run matches"
                                                       : nullptr;
    if (what)
      sentences.push_back(
          fmt::format("line {}: {}: {}", entry.line_number, what, plain(entry.line)));
    else
      ++met;
  }
  if (met > 0) sentences.push_back(met == 1 ? "1 entry met" : grouped(met) + " entries met");
  return sentences;
}

std::string baseline_sentence(const Record& record) {
  const BaselineResult& baseline = record.baseline;
  if (baseline.path.empty()) return "";
  std::string text = fmt::format("{}: {} known, {} new", plain(baseline.path),
                                 counted(baseline.known, "cause"), grouped(baseline.fresh));
  if (!baseline.gone.empty())
    text += fmt::format(", {} gone: {}", grouped(static_cast<std::int64_t>(baseline.gone.size())),
                        join(plain_all(baseline.gone), "; "));
  return text;
}

std::vector<std::string> demand_sentences(const Record& record) {
  std::vector<std::string> sentences;
  std::int64_t met = 0;
  for (const DemandResult& demand : record.demands) {
    if (demand.met)
      ++met;
    else
      sentences.push_back(lost_demand(demand));
  }
  if (met > 0) sentences.push_back(counted(met, "demand") + " met");
  return sentences;
}

std::vector<std::string> broken_promises(const Record& record) {
  std::vector<std::string> lines;
  for (const ExpectationResult& entry : record.expectations)
    if (is_broken(entry))
      lines.push_back(fmt::format("line {} of the expectations is {}: {}", entry.line_number,
                                  entry.state, plain(entry.line)));
  for (const DemandResult& demand : record.demands)
    if (!demand.met) lines.push_back("required, and lost: " + lost_demand(demand));
  return lines;
}

std::vector<NextStep> next_steps(const Record& record) {
  const std::string check =
      fmt::format("attest check {} --suite {} --seed {}", subject_word(record),
                  shell_word(plain(record.suite)), record.seed);
  // A suite of case lines is named by its file and is not a word for --suite.
  const bool by_file = record.suite.rfind("cases:", 0) == 0;
  const bool last_failed = record.suite == "last-failed";
  const std::string again =
      last_failed ? fmt::format("attest check {} --last-failed", subject_word(record))
      : by_file   ? fmt::format("attest check {} --cases {}", subject_word(record),
                                shell_word(plain(std::string_view(record.suite).substr(6))))
                  : check;
  switch (record.verdict) {
    case SuiteVerdict::not_conformant:
      return {{again + " --json record.json", "keep the record"},
              {"attest explain 1 --from record.json", "cause 1, expected beside actual"}};
    case SuiteVerdict::incomplete:
      if (record.audit.outside > 0)
        return {{again + " --json record.json", "the oracle is wrong, report it with this record"}};
      return {{again + " --resume", "go on where this run stopped"}};
    case SuiteVerdict::too_little_tested:
      return {{"attest list", "what can be declared: declare what the kernel serves"}};
    case SuiteVerdict::conformant:
      if (last_failed)
        return {{fmt::format("attest check {}", subject_word(record)), "the whole suite"}};
      if (by_file || record.suite.rfind("full", 0) == 0)
        return {{again + " --json record.json", "keep the record"}};
      return {{fmt::format("attest check {} --suite full", subject_word(record)),
               "more cases, longer sequences"}};
  }
  return {};
}

}  // namespace attest
