// SPDX-License-Identifier: Apache-2.0
#include "properties/probe_promises.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/unit.hpp"
#include "properties/perturb.hpp"
#include "properties/support.hpp"
#include "reference/visible.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kSeed = 7;

std::vector<AttentionProblem> drawn(const Declaration& declaration, std::string_view stream,
                                    std::size_t count,
                                    const std::function<bool(const AttentionProblem&)>& wanted) {
  constexpr std::uint64_t kMostTries = 4000;
  std::vector<AttentionProblem> problems;
  for (std::uint64_t n = 0; n < kMostTries && problems.size() < count; ++n) {
    const AttentionProblem p = draw(declaration, kSeed, stream, n);
    if (p.q_len * p.kv_len * p.head_dim < 200'000 && wanted(p)) problems.push_back(p);
  }
  return problems;
}

const Observation& call(CaseContext& context, const AttentionProblem& problem) {
  context.limits = call_limits(problem);
  return context.first(problem);
}

/// What one number of an empty or padding row is.
std::string kind_of(double value, bool junk) {
  if (junk) return "unwritten";
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "neg_inf" : "pos_inf";
  if (value == 0) return "zero";
  return value < -1e4 + 1 ? "very low" : "other";
}

struct Kinds {
  std::map<std::string, std::int64_t> count;
  std::string evidence;
  void add(const std::string& kind, const std::string& where) {
    if (count[kind]++ == 0) evidence += (evidence.empty() ? "" : "; ") + where;
  }
  /// "" where rows differ.
  std::string only() const { return count.size() == 1 ? count.begin()->first : ""; }
  std::string text() const {
    std::string words;
    for (const auto& [kind, n] : count)
      words += fmt::format("{}{} in {}", words.empty() ? "" : ", ", kind, n);
    return words.empty() ? "no such row" : only().empty() ? words : only();
  }
};

bool is_mean(const AttentionProblem& p, const AttentionInputs& inputs, std::int64_t b,
             std::int64_t h, std::int64_t i, const double* o) {
  const Rows rows = rows_of(p, b);
  if (!rows.real_query(i)) return false;
  const Segment& s = rows.of_query(i);
  for (std::int64_t c = 0; c < p.v_head_dim; ++c) {
    double mean = 0, size = 0;
    for (std::int64_t j = s.k0; j < s.k1; ++j) {
      const double v = inputs.v.at(b, kv_head(p, h), j, c);
      mean += v / static_cast<double>(s.k1 - s.k0);
      size = std::max(size, std::fabs(v));
    }
    if (!(std::fabs(o[c] - mean) <= 0.01 * size)) return false;
  }
  return true;
}

struct RowAnswers {
  Kinds empty_o, empty_lse, sink_o, sink_lse, padding_o, padding_lse;
};

void look_at_rows(CaseContext& context, const AttentionProblem& p, RowAnswers& answers) {
  const Observation& seen = call(context, p);
  if (!seen.ok()) return;
  const Expected& expected = context.expected(p);
  const AttentionInputs& inputs = context.inputs(p);
  const auto width = static_cast<std::size_t>(p.v_head_dim);
  for (std::size_t row = 0; row < expected.rows.size(); ++row) {
    const RowKind kind = expected.rows[row];
    if (kind != RowKind::empty && kind != RowKind::empty_sink && kind != RowKind::padding) continue;
    const auto index = static_cast<std::int64_t>(row);
    const std::int64_t i = index % p.q_len, h = index / p.q_len % p.num_heads;
    const std::int64_t b = index / p.q_len / p.num_heads;
    const std::string where = fmt::format("row [{},{},{}] of '{}'", b, h, i, print_case(p));
    Kinds& o_kinds = kind == RowKind::padding ? answers.padding_o
                     : kind == RowKind::empty ? answers.empty_o
                                              : answers.sink_o;
    Kinds& lse_kinds = kind == RowKind::padding ? answers.padding_lse
                       : kind == RowKind::empty ? answers.empty_lse
                                                : answers.sink_lse;
    if (width > 0) {
      const double* o = seen.o.data() + row * width;
      std::set<std::string> kinds;
      for (std::size_t c = 0; c < width; ++c)
        kinds.insert(kind_of(o[c], seen.o_junk[row * width + c] != 0));
      std::string all = kinds.size() == 1 ? *kinds.begin() : "other";
      const bool mean = kind == RowKind::empty && is_mean(p, inputs, b, h, i, o);
      if (all == "other" && mean) all = "mean_v";
      // A mean of 0, or of no keys, tells nothing.
      if (all != "zero" || !mean) o_kinds.add(all, where);
    }
    if (seen.lse.empty()) continue;
    const double sink = kind == RowKind::empty_sink ? inputs.sink.at(0, h, 0, 0) : 0;
    const bool is_sink = kind == RowKind::empty_sink &&
                         std::fabs(seen.lse[row] - sink) <= 1e-3 * (1 + std::fabs(sink));
    lse_kinds.add(is_sink ? "the sink" : kind_of(seen.lse[row], seen.lse_junk[row] != 0), where);
  }
}

/// What a row with NaN in q has for its lse.
void look_at_nan_row(CaseContext& context, Kinds& kinds) {
  for (const AttentionProblem& p :
       drawn(context.declaration(), "probe NaN rows", 3, [](const AttentionProblem& p) {
         return p.want_lse && p.q_len > 0 && p.base == Base::full && p.mask == MaskKind::none &&
                p.seqlens_k.empty() && p.seqlens_q.empty() && p.cu_seqlens_q.empty() && !p.blocks &&
                p.window_left < 0 && p.window_right < 0 && p.bias == BiasKind::none;
       })) {
    AttentionInputs inputs = context.inputs(p);
    if (context.expected(p).rows.empty() || context.expected(p).rows[0] != RowKind::ordinary)
      continue;
    inputs.q.at(0, 0, 0, 0) = std::numeric_limits<double>::quiet_NaN();
    context.limits = call_limits(p);
    const Observation seen = context.call(p, inputs);
    if (seen.ok() && !seen.lse.empty())
      kinds.add(kind_of(seen.lse[0], seen.lse_junk[0] != 0),
                fmt::format("NaN in q[0,0,0,0] of '{}'", print_case(p)));
  }
}

}  // namespace

void probe_rows(CaseContext& context, Declaration& declaration,
                std::vector<ProbeFinding>& findings) {
  RowAnswers answers;
  const auto problems = drawn(declaration, "probe rows", 60, [](const AttentionProblem& p) {
    return p.v_head_dim > 0 && p.mask != MaskKind::none
               ? true
               : !p.seqlens_q.empty() || !p.seqlens_k.empty() || !p.cu_seqlens_q.empty() ||
                     p.base == Base::causal;
  });
  for (const AttentionProblem& p : problems) look_at_rows(context, p, answers);
  const auto say = [&findings](const char* topic, const Kinds& kinds) {
    if (!kinds.count.empty()) findings.push_back({topic, kinds.text(), kinds.evidence});
  };
  say("empty row, o", answers.empty_o);
  say("empty row, lse", answers.empty_lse);
  say("empty row with a sink, o", answers.sink_o);
  say("empty row with a sink, lse", answers.sink_lse);
  say("padding query row, o", answers.padding_o);
  say("padding query row, lse", answers.padding_lse);
  Kinds nan_lse;
  look_at_nan_row(context, nan_lse);
  say("NaN row, lse", nan_lse);
  const std::string o = answers.empty_o.only(), lse = answers.empty_lse.only();
  if (!answers.empty_o.count.empty())
    declaration.empty_output = o == "zero"     ? EmptyOutput::zero
                               : o == "nan"    ? EmptyOutput::nan
                               : o == "mean_v" ? EmptyOutput::mean_v
                                               : EmptyOutput::unspecified;
  if (!answers.empty_lse.count.empty())
    declaration.empty_lse = lse == "neg_inf"   ? EmptyLse::neg_inf
                            : lse == "pos_inf" ? EmptyLse::pos_inf
                            : lse == "zero"    ? EmptyLse::zero
                                               : EmptyLse::unspecified;
}

namespace {

/// Presets from the tightest to the loosest, as far as they differ for the type.
std::vector<std::string> presets_for(DType dtype) {
  if (dtype == DType::f64) return {"f32"};
  if (dtype == DType::f32) return {"f32", "f32_tf32", "fp16acc"};
  return {"f32", "mma_f32acc", "fp16acc"};
}

/// Failed problems of `problems` under the context's declaration, and the worst error of the rest.
int failures(CaseContext& context, const std::vector<AttentionProblem>& problems, double& worst,
             std::string& first) {
  int failed = 0;
  for (const AttentionProblem& p : problems) {
    const Observation& seen = call(context, p);
    if (!seen.ok()) continue;
    const Expected& expected = context.expected(p);
    for (const Output output : {Output::o, Output::lse}) {
      const auto& actual = output == Output::o ? seen.o : seen.lse;
      if (actual.empty()) continue;
      const CaseResult result = judge_values(p, expected, output, actual, is_generic(p));
      worst = std::max(worst, result.worst_ratio);
      if (!is_failure(result.verdict)) continue;
      ++failed;
      if (first.empty()) first = fmt::format("'{}': {}", print_case(p), result.detail);
      break;
    }
  }
  return failed;
}

void set_precision(Declaration& declaration, DType dtype, const std::string& preset) {
  declaration.precision[static_cast<std::size_t>(dtype)] = preset;
  declaration.profile[static_cast<std::size_t>(dtype)] = *precision_preset(preset, dtype);
}

}  // namespace

void probe_precision(const OpenDeclared& open, Declaration& declaration,
                     std::vector<ProbeFinding>& findings) {
  constexpr std::size_t kProblems = 100;
  for (const DType dtype : declaration.dtypes) {
    const auto problems = drawn(declaration, "probe precision", kProblems,
                                [dtype](const AttentionProblem& p) { return p.dtype == dtype; });
    std::string answer, evidence;
    for (const std::string& preset : presets_for(dtype)) {
      set_precision(declaration, dtype, preset);
      OpenError error;
      const std::unique_ptr<Subject> subject = open(print_declaration(declaration), error);
      if (!subject) return;
      CaseContext context(*subject);
      double worst = 0;
      std::string first;
      const int failed = failures(context, problems, worst, first);
      if (failed == 0) {
        answer = preset;
        evidence = fmt::format("{} problems pass, worst error {:.2f} of the tolerance{}",
                               problems.size(), worst, evidence);
        break;
      }
      evidence += fmt::format("; {}: {} fail, first {}", preset, failed, first);
    }
    if (answer.empty()) {
      // Nothing passes: the tightest, so that a check says what is wrong.
      set_precision(declaration, dtype, presets_for(dtype).front());
      answer = "none of the presets";
    }
    findings.push_back({"precision, " + std::string(name(dtype)), answer, evidence});
  }
}

namespace {

bool same_bits(const Observation& a, const Observation& b) {
  return a.ok() && b.ok() && a.o_bits == b.o_bits && a.lse_bits == b.lse_bits;
}

/// Sequence b of a problem alone, and its inputs.
AttentionProblem one_sequence(const AttentionProblem& p, std::int64_t b) {
  AttentionProblem one = p;
  one.batch = 1;
  for (auto* list : {&one.q_offset, &one.prefix_len, &one.seqlens_q, &one.seqlens_k,
                     &one.left_pad_q, &one.left_pad_k})
    if (!list->empty()) list->assign(1, (*list)[static_cast<std::size_t>(b)]);
  return one;
}
template <class T>
Dense<T> slice(const Dense<T>& tensor, std::int64_t b) {
  if (!tensor.present || tensor.shape[0] == 1) return tensor;
  Dense<T> one({1, tensor.shape[1], tensor.shape[2], tensor.shape[3]});
  const auto size = static_cast<std::ptrdiff_t>(one.values.size());
  std::copy_n(tensor.values.begin() + b * size, size, one.values.begin());
  return one;
}
AttentionInputs slice(const AttentionInputs& in, std::int64_t b) {
  return {slice(in.q, b),    slice(in.k, b),      slice(in.v, b),
          slice(in.bias, b), slice(in.slopes, b), in.sink,
          slice(in.mask, b), slice(in.blocks, b), slice(in.keep, b)};
}

bool sequence_alone_is_same(CaseContext& context, const AttentionProblem& p) {
  const Observation whole = call(context, p);
  const AttentionInputs inputs = context.inputs(p);
  if (!whole.ok()) return true;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Observation alone = context.call(one_sequence(p, b), slice(inputs, b));
    if (!alone.ok()) continue;
    const auto part = [b](const std::vector<std::uint64_t>& bits, std::size_t size) {
      const auto first = bits.begin() + b * static_cast<std::ptrdiff_t>(size);
      return std::vector<std::uint64_t>(first, first + static_cast<std::ptrdiff_t>(size));
    };
    if (part(whole.o_bits, alone.o_bits.size()) != alone.o_bits ||
        part(whole.lse_bits, alone.lse_bits.size()) != alone.lse_bits)
      return false;
  }
  return true;
}

struct Promise {
  const char* topic;
  bool Declaration::*flag;
  std::function<bool(const AttentionProblem&)> wanted;
  std::function<bool(CaseContext&, const AttentionProblem&)> holds;
};

const std::vector<Promise>& promises() {
  static const std::vector<Promise> all = {
      {"deterministic", &Declaration::deterministic, [](const AttentionProblem&) { return true; },
       [](CaseContext& context, const AttentionProblem& p) {
         const Observation first = call(context, p);
         for (int n = 0; first.ok() && n < 3; ++n)
           if (!same_bits(first, context.call(p, context.inputs(p)))) return false;
         return true;
       }},
      {"thread_invariant", &Declaration::thread_invariant,
       [](const AttentionProblem& p) { return p.q_len > 1; },
       [](CaseContext& context, const AttentionProblem& p) {
         const Observation first = call(context, p);
         for (const int threads : {2, 3, 4})
           if (first.ok() &&
               !same_bits(first, context.call(p, context.inputs(p), {.num_threads = threads})))
             return false;
         return true;
       }},
      {"batch_invariant", &Declaration::batch_invariant,
       [](const AttentionProblem& p) { return p.batch > 1 && p.layout != Layout::broadcast; },
       sequence_alone_is_same},
      {"masked_nan_safe", &Declaration::masked_nan_safe,
       [](const AttentionProblem& p) {
         return p.base != Base::full || p.mask != MaskKind::none || p.window_left >= 0 ||
                p.window_right >= 0;
       },
       [](CaseContext& context, const AttentionProblem& p) {
         const auto adapted = adapt_to_invisible(p, context.declaration());
         if (!adapted) return true;
         context.limits = call_limits(*adapted);
         return !is_failure(check_invisible(context, *adapted, Replacement::non_finite,
                                            Reason::nan_leak, "NaN where nobody looks")
                                .verdict);
       }},
  };
  return all;
}

}  // namespace

void probe_promises(CaseContext& context, Declaration& declaration,
                    std::vector<ProbeFinding>& findings) {
  constexpr std::size_t kProblems = 40;
  for (const Promise& promise : promises()) {
    const auto problems = drawn(declaration, promise.topic, kProblems, promise.wanted);
    std::string broken;
    for (const AttentionProblem& p : problems)
      if (broken.empty() && !promise.holds(context, p)) broken = print_case(p);
    if (problems.empty()) continue;
    declaration.*promise.flag = broken.empty();
    findings.push_back({promise.topic, broken.empty() ? "yes" : "no",
                        broken.empty() ? fmt::format("held on {} problems", problems.size())
                                       : "'" + broken + "'"});
  }
}

}  // namespace attest
