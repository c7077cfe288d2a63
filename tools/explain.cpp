// SPDX-License-Identifier: Apache-2.0
// attest explain: every intermediate of a case, row by row, and what the kernel gave instead.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attest/case_line.hpp"
#include "attest/plugin.h"
#include "harness/data.hpp"
#include "harness/unit.hpp"
#include "properties/support.hpp"
#include "reference/audit.hpp"
#include "reference/definition.hpp"
#include "reports/reader.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/probe_subject.hpp"

namespace attest {

namespace {

constexpr std::int64_t kMostRows = 6;
constexpr std::size_t kMostKeys = 40, kMostChannels = 16;

struct Row {
  std::int64_t b = 0, h = 0, i = 0;
};

/// What to explain, from a case line or from a record.
struct Request {
  AttentionProblem problem;
  std::string subject;  ///< "": none
};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

Request read_request(const Arguments& arguments) {
  const std::string what = arguments.positional("CASE");
  const std::string subject = arguments.positional("SUBJECT");
  if (!arguments.has("--from")) {
    if (is_number(what))
      throw CommandError("cause " + what + " of which record? Say --from record.json");
    return {read_case_argument(what), subject};
  }
  const std::string path = arguments.value("--from");
  const Result<Record> record = read_record_file(path);
  if (!record) throw CommandError(record.error());
  if (!is_number(what))
    throw CommandError("--from wants the number of a cause, got '" + what + "'");
  const auto cause = std::find_if(record->causes.begin(), record->causes.end(),
                                  [&](const Cause& c) { return std::to_string(c.id) == what; });
  if (cause == record->causes.end())
    throw CommandError(
        fmt::format("{} has no cause {}; it has {}", path, what, record->causes.size()));
  const Failure& failure = record->failures[static_cast<std::size_t>(cause->smallest)];
  std::string from_record = record->subject.path;
  if (!from_record.empty() && !names_program(from_record))
    from_record += "#" + record->subject.name;
  return {read_case_argument(failure.case_line), subject.empty() ? from_record : subject};
}

Row read_row(const std::string& text, const AttentionProblem& problem) {
  Row row;
  char rest = 0;
  long long b = 0, h = 0, i = 0;
  if (std::sscanf(text.c_str(), "%lld,%lld,%lld%c", &b, &h, &i, &rest) != 3)
    throw CommandError("--row wants sequence,head,query row, e.g. 0,0,3; got '" + text + "'");
  if (b < 0 || b >= problem.batch || h < 0 || h >= problem.num_heads || i < 0 || i >= problem.q_len)
    throw CommandError(fmt::format("--row {} lies outside {} sequences, {} heads, {} query rows",
                                   text, problem.batch, problem.num_heads, problem.q_len));
  row = {b, h, i};
  return row;
}

/// The kernel's answer beside the oracle's; absent without a subject or where it did not answer.
struct Answer {
  Observation seen;      ///< of the forward call
  Observation backward;  ///< where the case is one
  Expected expected;
};

/// What a call that did not come back said; whether it did.
bool came_back(const Subject& subject, const CallStatus& call) {
  if (call.accident && call.accident->verdict == Verdict::error)
    throw CommandError(call.accident->sentence, ExitCode::suite_failed);
  if (call.accident)
    fmt::print("{}: {}, {}\n", plain(subject.kernel_name()), name(call.accident->verdict),
               plain(call.accident->sentence));
  else if (call.status != ATTEST_OK)
    fmt::print("{} returned status {}{}\n", plain(subject.kernel_name()), call.status,
               call.message.empty() ? "" : ": " + plain(call.message));
  return !call.accident && call.status == ATTEST_OK;
}

std::optional<Answer> ask(const Request& request, const AttentionInputs& inputs) {
  if (request.subject.empty()) return std::nullopt;
  SubjectSpec spec = read_subject(request.subject);
  assume_declaration(spec);
  const std::unique_ptr<Subject> subject = open_subject(spec);
  if (const auto why = not_declared(subject->declaration(), request.problem))
    fmt::print("{} does not declare this case: {}\n", plain(subject->kernel_name()), *why);
  CallOptions options;
  options.limits = call_limits(request.problem);
  Answer answer;
  const bool is_rope = request.problem.operation == Operation::rope;
  answer.seen =
      observe(*subject, is_rope ? request.problem : forward_of(request.problem), inputs, options);
  if (!came_back(*subject, answer.seen.call)) return std::nullopt;
  if (request.problem.operation == Operation::backward) {
    AttentionInputs whole = inputs;
    take_forward(request.problem, answer.seen, whole);
    answer.backward = observe(*subject, request.problem, whole, options);
    came_back(*subject, answer.backward.call);
  }
  answer.expected =
      expect(request.problem, inputs, subject->declaration().profile_for(request.problem.dtype));
  return answer;
}

double ratio(double expected, double actual, double tolerance) {
  if (expected == actual || (std::isnan(expected) && std::isnan(actual))) return 0;
  const double error = std::fabs(actual - expected);
  return std::isfinite(error) && tolerance > 0 ? error / tolerance : INFINITY;
}

Row row_at(const AttentionProblem& p, std::int64_t flat) {
  return {flat / (p.num_heads * p.q_len), flat / p.q_len % p.num_heads, flat % p.q_len};
}

double worst_ratio(const AttentionProblem& p, const Answer& answer, std::int64_t flat) {
  double worst = 0;
  const auto row = static_cast<std::size_t>(flat);
  const auto width = static_cast<std::size_t>(p.v_head_dim);
  for (std::size_t c = row * width; c < (row + 1) * width; ++c)
    worst = std::max(worst, ratio(answer.expected.o.value[c], answer.seen.o[c],
                                  tolerance_of(answer.expected.o, c)));
  if (row < answer.seen.lse.size())
    worst = std::max(worst, ratio(answer.expected.lse.value[row], answer.seen.lse[row],
                                  tolerance_of(answer.expected.lse, row)));
  return worst;
}

/// All rows of a small case; of a larger one the worst, or the first where nothing was asked.
std::vector<Row> rows_to_show(const AttentionProblem& p, const std::optional<Answer>& answer) {
  std::vector<Row> rows;
  const auto count = static_cast<std::int64_t>(num_rows(p));
  if (count <= kMostRows) {
    for (std::int64_t flat = 0; flat < count; ++flat) rows.push_back(row_at(p, flat));
    return rows;
  }
  std::int64_t shown = 0;
  double worst = -1;
  for (std::int64_t flat = 0; answer && flat < count; ++flat)
    if (const double r = worst_ratio(p, *answer, flat); r > worst) {
      worst = r;
      shown = flat;
    }
  fmt::print("{} query rows in all; this is the {} one, --row sequence,head,row shows another\n",
             grouped(count), answer ? "worst" : "first");
  return {row_at(p, shown)};
}

std::string hidden_by(const RowTrace::Key& key) {
  std::vector<std::string> factors;
  if (!key.range) factors.push_back("range");
  if (!key.segment) factors.push_back("segment");
  if (!key.base) factors.push_back("base");
  if (!key.band) factors.push_back("window");
  if (!key.mask) factors.push_back("mask");
  if (!key.blocks) factors.push_back("blocks");
  if (factors.empty() && !key.visible) factors.push_back("bias=-inf");
  return factors.empty() ? "" : join(factors, "+");
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

/// A table whose columns are as wide as their widest cell.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t c = 0; c < row.size(); ++c) line += fmt::format(" {:>{}}", row[c], widths[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

void print_keys(const AttentionProblem& p, const RowTrace& trace) {
  std::vector<std::size_t> shown(trace.keys.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (shown.size() > kMostKeys) {
    std::stable_sort(shown.begin(), shown.end(), [&](std::size_t a, std::size_t b) {
      return trace.keys[a].weight > trace.keys[b].weight;
    });
    shown.resize(kMostKeys);
    std::sort(shown.begin(), shown.end());
    fmt::print("  the {} heaviest of {} keys\n", kMostKeys, trace.keys.size());
  }
  const bool capped = p.softcap > 0, alibi = p.alibi != AlibiKind::none,
             bias = p.bias != BiasKind::none, keep = p.dropout_p > 0;
  std::vector<std::vector<std::string>> table;
  const auto add = [&](std::string j, std::string kpos, std::string dot, std::string scaled,
                       std::string cap, std::string slope, std::string add_bias, std::string score,
                       std::string weight, std::string factor, std::string hidden) {
    std::vector<std::string> row{std::move(j), std::move(kpos), std::move(dot), std::move(scaled)};
    if (capped) row.push_back(std::move(cap));
    if (alibi) row.push_back(std::move(slope));
    if (bias) row.push_back(std::move(add_bias));
    row.push_back(std::move(score));
    row.push_back(std::move(weight));
    if (keep) row.push_back(std::move(factor));
    row.push_back(std::move(hidden));
    table.push_back(std::move(row));
  };
  add("key", "kpos", "q.k", "scaled", "capped", "alibi", "bias", "score", "weight", "dropout",
      "hidden by");
  for (const std::size_t s : shown) {
    const RowTrace::Key& key = trace.keys[s];
    add(std::to_string(key.j), std::to_string(key.kpos), number(key.dot), number(key.scaled),
        number(key.capped), number(key.alibi), number(key.bias), number(key.score),
        key.visible ? number(key.weight) : "-", number(key.keep_factor), hidden_by(key));
  }
  print_table(table);
}

const char* kind_text(RowKind kind) {
  switch (kind) {
    case RowKind::ordinary: return "ordinary";
    case RowKind::empty: return "empty: it sees no key";
    case RowKind::empty_sink: return "empty: it sees the sink alone";
    case RowKind::padding: return "padding: no row of any sequence";
    case RowKind::lowest_only:
      return "every key carries the lowest finite bias: only bounds are judged";
    case RowKind::unspecified: return "sees a NaN or Inf: not judged by value";
    case RowKind::outside_domain: return "beyond the range of the accumulator: not judged";
  }
  return "?";
}

void print_outputs(const AttentionProblem& p, const RowTrace& trace, const Row& row,
                   const std::optional<Answer>& answer) {
  const std::size_t flat =
      static_cast<std::size_t>((row.b * p.num_heads + row.h) * p.q_len + row.i);
  const auto width = static_cast<std::size_t>(p.v_head_dim);
  std::vector<std::vector<std::string>> table;
  if (answer)
    table.push_back({"output", "expected", "got", "error", "tolerance", "err/T", ""});
  else
    table.push_back({"output", "expected"});
  const auto add = [&](const std::string& label, const ExactNumber& exact,
                       const ExpectedTensor* tensor, const std::vector<double>* actual,
                       std::size_t at) {
    if (!tensor || at >= actual->size()) {
      table.push_back({label, fmt::format("{:.17g}", exact.high)});
      if (answer) table.back().resize(7);
      return;
    }
    const double got = (*actual)[at], tolerance = tolerance_of(*tensor, at);
    const double error = got - exact.high - exact.low;
    const double r = ratio(exact.high, got, tolerance);
    table.push_back({label, fmt::format("{:.17g}", exact.high), fmt::format("{:.17g}", got),
                     fmt::format("{:.3g}", error), fmt::format("{:.3g}", tolerance),
                     fmt::format("{:.3g}", r), r > 1 ? "wrong" : ""});
  };
  for (std::size_t c = 0; c < width && c < kMostChannels; ++c)
    add(fmt::format("o[{}]", c), trace.exact.o[c], answer ? &answer->expected.o : nullptr,
        answer ? &answer->seen.o : nullptr, flat * width + c);
  if (p.want_lse)
    add("lse", trace.exact.lse, answer ? &answer->expected.lse : nullptr,
        answer ? &answer->seen.lse : nullptr, flat);
  print_table(table);
  if (width > kMostChannels) fmt::print("  the first {} of {} channels\n", kMostChannels, width);
}

void print_row(const AttentionProblem& p, const AttentionInputs& inputs, const Row& row,
               const std::optional<Answer>& answer) {
  const RowTrace trace = trace_row(p, inputs, row.b, row.h, row.i);
  const auto visible = std::count_if(trace.keys.begin(), trace.keys.end(),
                                     [](const RowTrace::Key& key) { return key.visible; });
  fmt::print(
      "\nsequence {}, head {} (key head {}), query row {}: qpos {}, sees {} of {} keys; {}\n",
      row.b, row.h, row.h / (p.num_heads / p.num_kv_heads), row.i, trace.qpos, visible,
      trace.keys.size(), kind_text(trace.kind));
  if (!trace.keys.empty()) print_keys(p, trace);
  if (trace.has_sink) fmt::print("  sink {}\n", number(trace.sink));
  print_outputs(p, trace, row, answer);
}

/// One row of a rotary embedding alone, pair by pair.
void print_turned_row(const AttentionProblem& p, const AttentionInputs& inputs, const Row& row,
                      const std::optional<Answer>& answer) {
  const std::int64_t position = row_position(p, row.b, row.i);
  fmt::print("\nsequence {}, head {}, row {}: turned {}to position {}\n", row.b, row.h, row.i,
             p.rope_inverse ? "back from " : "", position);
  const std::vector<RopeAngle> angles = rope_angles(p, position);
  const std::vector<ExactNumber> exact = definition_rope_row(p, inputs, row.b, row.h, row.i);
  const bool interleaved = p.rope == RopePairing::interleaved;
  std::vector<std::vector<std::string>> table{{"channel", "pair", "cos", "sin", "x", "expected"}};
  if (answer)
    for (const char* title : {"got", "tolerance", "err/T", ""}) table.front().emplace_back(title);
  for (std::size_t c = 0; c < exact.size() && c < kMostChannels; ++c) {
    const std::size_t pair = interleaved ? c / 2 : c % angles.size();
    const bool turned = c < 2 * angles.size();
    table.push_back({std::to_string(c), turned ? std::to_string(pair) : "-",
                     turned ? number(angles[pair].cos_high) : "",
                     turned ? number(angles[pair].sin_high) : "",
                     number(inputs.q.at(row.b, row.h, row.i, static_cast<std::int64_t>(c))),
                     fmt::format("{:.17g}", exact[c].high)});
    if (!answer) continue;
    const std::size_t flat = inputs.q.index(row.b, row.h, row.i, static_cast<std::int64_t>(c));
    const double got = answer->seen.o[flat], tolerance = tolerance_of(answer->expected.o, flat);
    const double r = ratio(exact[c].high, got, tolerance);
    for (const std::string& cell : {fmt::format("{:.17g}", got), fmt::format("{:.3g}", tolerance),
                                    fmt::format("{:.3g}", r), std::string(r > 1 ? "wrong" : "")})
      table.back().push_back(cell);
  }
  print_table(table);
  if (exact.size() > kMostChannels)
    fmt::print("  the first {} of {} channels\n", kMostChannels, exact.size());
}

/// The first elements of every gradient; of a larger one those that are farthest off.
void print_gradients(const AttentionProblem& p, const AttentionInputs& inputs,
                     const std::optional<Answer>& answer) {
  const bool answered = answer && answer->backward.ok();
  const Expected expected =
      answer ? answer->expected : expect(p, inputs, *precision_preset("f32", p.dtype));
  std::vector<std::vector<std::string>> table;
  table.push_back({"gradient", "expected"});
  if (answered) table.back() = {"gradient", "expected", "got", "tolerance", "err/T", ""};
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const auto gradient = static_cast<Gradient>(n);
    if (!wants_gradient(p, gradient)) continue;
    const ExpectedTensor& tensor = expected.gradients[n];
    const std::vector<double>* got = answered ? &answer->backward.gradients[n].values : nullptr;
    std::vector<std::size_t> shown(tensor.value.size());
    std::iota(shown.begin(), shown.end(), std::size_t{0});
    const auto off = [&](std::size_t x) {
      return got ? ratio(tensor.value[x], (*got)[x], tolerance_of(tensor, x)) : 0;
    };
    if (shown.size() > kMostChannels) {
      std::stable_sort(shown.begin(), shown.end(),
                       [&](std::size_t a, std::size_t b) { return off(a) > off(b); });
      shown.resize(kMostChannels);
      std::sort(shown.begin(), shown.end());
    }
    for (const std::size_t x : shown) {
      table.push_back(
          {element_name(p, output_of(gradient), x), fmt::format("{:.9g}", tensor.value[x])});
      if (!answered) continue;
      const double tolerance = tolerance_of(tensor, x), r = off(x);
      for (const std::string& cell :
           {fmt::format("{:.9g}", (*got)[x]),
            std::isfinite(tolerance) ? fmt::format("{:.3g}", tolerance) : "not judged",
            fmt::format("{:.3g}", r), std::string(r > 1 ? "wrong" : "")})
        table.back().push_back(cell);
    }
    if (shown.size() < tensor.value.size())
      table.push_back(
          std::vector<std::string>{fmt::format("{} of {} elements of {}", shown.size(),
                                               tensor.value.size(), name(output_of(gradient)))});
    table.back().resize(table.front().size());
  }
  fmt::print("\n");
  print_table(table);
}

ExitCode run(const Arguments& arguments) {
  const Request request = read_request(arguments);
  const AttentionProblem& p = request.problem;
  std::optional<Row> wanted;
  if (arguments.has("--row")) wanted = read_row(arguments.value("--row"), p);
  fmt::print("{}\n", print_case(p));
  const bool is_rope = p.operation == Operation::rope;
  if (!is_rope) fmt::print("scale {}\n", print_number(effective_scale(p)));
  const AttentionInputs inputs = make_inputs(p);
  const std::optional<Answer> answer = ask(request, inputs);
  if (num_rows(p) == 0) {
    fmt::print("no {}row: nothing to compute\n", is_rope ? "" : "query ");
    return ExitCode::conformant;
  }
  for (const Row& row : wanted ? std::vector<Row>{*wanted} : rows_to_show(p, answer))
    is_rope ? print_turned_row(p, inputs, row, answer) : print_row(p, inputs, row, answer);
  if (p.operation == Operation::backward) print_gradients(p, inputs, answer);
  return ExitCode::conformant;
}

ATTEST_COMMAND(
    explain,
    {
        .name = "explain",
        .summary = "every intermediate of one case, expected beside actual",
        .examples = "Examples:\n"
                    "  attest explain 'attention.forward lq=2 lk=3 base=causal data=integers'\n"
                    "  attest explain 'attention.forward lq=2 lk=3 base=causal' ./libmine.so\n"
                    "  attest explain 1 --from out.json     the smallest case of the first cause "
                    "of a record\n"
                    "  attest explain '...' naive --row 0,1,17   one query row of a large case",
        .positionals = {{"CASE", "a case line in quotes, or with --from the number of a cause"},
                        {"SUBJECT", "a built-in name, a library, or library#kernel", false}},
        .options = {{"--from", "FILE", "a record (attest check --json FILE)"},
                    {"--row", "B,H,I", "this query row: sequence, head, row"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
