// SPDX-License-Identifier: Apache-2.0
#include "properties/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"
#include "harness/narrow.hpp"
#include "harness/unit.hpp"
#include "properties/probe_operations.hpp"
#include "properties/probe_promises.hpp"
#include "properties/probe_questions.hpp"

namespace attest {

const char* const kProbeDeclaration =
    "dtype=f64,f32,f16,bf16 head_dim=1..4096 v_head_dim=0..4096 features=all layout=any "
    "precision.f32=f32_tf32 precision.f16=mma_f32acc precision.bf16=mma_f32acc "
    // What an empty row holds is a question of its own, and no mistake of the feature that made it.
    "empty_row=unspecified empty_lse=unspecified";

namespace {

/// What all problems of a probe start from: the plainest one that the kernel takes.
struct Plain {
  std::int64_t batch = 2, heads = 2, q_len = 5, kv_len = 7, dim = 64;
  Base base = Base::full;
  Layout layout = Layout::bhld;
  bool lse = true;
  Align align = Align::bottom_right;  ///< of causal problems: one that the kernel gets right
};

constexpr const char* kUnwrittenPadding = "unwritten padding";

struct Question {
  Feature feature;
  std::vector<Alternative> others;  ///< beside the call as asked
};

class Probe {
 public:
  explicit Probe(CaseContext& context) : context_(context) {}

  std::optional<std::string> find_plain();
  void dims();
  void lengths();
  void features();

  Declaration declaration;
  std::vector<ProbeFinding> findings;
  bool refuses_forward = false;  ///< every plain problem

 private:
  AttentionProblem plain(std::uint64_t seed = 1) const;
  std::vector<AttentionProblem> problems_with(Feature feature) const;
  void ask_feature(const Question& question);
  void served(Feature feature) { declaration.features[static_cast<std::size_t>(feature)] = true; }
  void say(const std::string& topic, const std::string& answer, const std::string& evidence) {
    findings.push_back({topic, answer, evidence});
  }
  bool right(const AttentionProblem& problem) {
    return ask(context_, {problem}, as_written({{"as asked", {}}})).is(0);
  }
  std::vector<Alternative> as_written(std::vector<Alternative> alternatives) const;
  void choose_alignment();
  void ask_lengths();
  void tell_apart(Feature feature, AttentionProblem& p) const;
  DimSet sweep(bool of_v);

  CaseContext& context_;
  Plain plain_;
  DType dtype_ = DType::f32;
};

AttentionProblem Probe::plain(std::uint64_t seed) const {
  AttentionProblem p;
  p.dtype = dtype_;
  p.batch = plain_.batch;
  p.num_heads = p.num_kv_heads = plain_.heads;
  p.q_len = plain_.q_len;
  p.kv_len = plain_.kv_len;
  p.head_dim = p.v_head_dim = plain_.dim;
  p.base = plain_.base;
  p.align = plain_.align;
  p.layout = plain_.layout;
  p.want_lse = plain_.lse;
  p.seed = seed;
  return p;
}

/// Sizes, layout and base that the kernel takes; the types that are right there.
std::optional<std::string> Probe::find_plain() {
  constexpr std::array<std::int64_t, 14> kDims{64, 32,  16, 8,  4,  128, 80,
                                               96, 256, 48, 40, 24, 2,   1};
  constexpr std::array<std::array<std::int64_t, 4>, 6> kShapes{
      {{2, 2, 5, 7}, {2, 2, 6, 6}, {1, 1, 5, 7}, {1, 1, 6, 6}, {1, 1, 64, 64}, {1, 1, 128, 128}}};
  std::string refusal;
  const auto takes = [&] {
    const AttentionProblem p = plain();
    context_.limits = call_limits(p);
    const Observation& seen = context_.first(p);
    if (!seen.ok() && refusal.empty()) refusal = seen.call.message;
    return seen.ok();
  };
  const auto find = [&] {
    for (const auto& [b, h, lq, lk] : kShapes)
      for (const std::int64_t dim : kDims)
        for (const Base base : {Base::full, Base::causal})
          for (const Layout layout : {Layout::bhld, Layout::blhd})
            for (const bool lse : {true, false}) {
              plain_ = {b, h, lq, lk, dim, base, layout, lse, Align::bottom_right};
              if (!takes()) continue;
              if (base == Base::causal) choose_alignment();
              return true;
            }
    return false;
  };
  std::optional<DType> first;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    dtype_ = dtype;
    if (first ? takes() : find()) {
      if (!first) first = dtype;
      const std::vector<Alternative> scales = {
          {"1/sqrt(D) on scores", {}},
          alternative("none", "scale_missing"),
          alternative("twice", "scale_twice"),
          alternative("1/D", "scale_one_over_dim"),
          alternative("1/sqrt(heads x D)", "scale_by_model_dim"),
          alternative("1/sqrt(D), always causal", "always_causal"),
          alternative("1/sqrt(D) on scores", "lse_base_2")};
      constexpr std::size_t kAsAsked = 0, kBaseTwo = 6;
      const Answer answer = ask(context_, {plain(1), plain(2)}, scales);
      if (answer.is(kBaseTwo)) declaration.lse_base = LseBase::two;
      if (answer.is(kAsAsked) || answer.is(kBaseTwo) || answer.kind == Answer::Kind::undecided)
        declaration.dtypes.push_back(dtype);
      say(fmt::format("{}, default scale", name(dtype)),
          answer.agrees() ? scales[answer.chosen].label : "agrees with nothing known",
          answer.evidence);
    } else {
      say(std::string(name(dtype)), "refused", refusal);
    }
  }
  refuses_forward = !first;
  if (!first) return "refuses every plain problem: " + refusal;
  if (declaration.dtypes.empty()) return "is wrong on plain attention: " + findings[0].evidence;
  std::sort(declaration.dtypes.begin(), declaration.dtypes.end());
  // Everything else is asked in the type that shows most.
  dtype_ = declaration.has(DType::f32) ? DType::f32 : declaration.dtypes.front();
  declaration.base_full = plain_.base == Base::full;
  if (!declaration.base_full) served(Feature::causal);
  declaration.layout_bhld = plain_.layout == Layout::bhld;
  if (!declaration.layout_bhld) served(Feature::layout_blhd);
  if (plain_.lse) {
    served(Feature::lse);
    say("lse base", declaration.lse_base == LseBase::two ? "2" : "e", findings[0].evidence);
  } else {
    say("feature lse", "refused", refusal);
  }
  return std::nullopt;
}

/// The values as ranges: the whole as multiples of one step where that says it.
DimSet as_ranges(const std::vector<std::int64_t>& values) {
  DimSet set;
  if (values.size() > 2) {
    const std::int64_t step = values[1] - values[0];
    bool even = values[0] % step == 0;
    for (std::size_t n = 1; n < values.size(); ++n) even &= values[n] - values[n - 1] == step;
    if (even) return {{values.front(), values.back(), step}};
  }
  for (const std::int64_t value : values) append(set, value);
  return set;
}

DimSet Probe::sweep(bool of_v) {
  constexpr std::int64_t kMost = 256;
  std::vector<std::int64_t> values;
  for (std::int64_t dim = 1; dim <= kMost; ++dim) {
    AttentionProblem p = plain();
    p.batch = p.num_heads = p.num_kv_heads = 1;
    (of_v ? p.v_head_dim : p.head_dim) = dim;
    if (!of_v) p.v_head_dim = dim;
    if (right(p)) values.push_back(dim);
  }
  return as_ranges(values);
}

std::string dims_text(const DimSet& set) {
  std::string text;
  for (const DimRange& range : set) {
    text += (text.empty() ? "" : ",") + std::to_string(range.first);
    if (range.last != range.first) text += ".." + std::to_string(range.last);
    if (range.step != 1) text += "%" + std::to_string(range.step);
  }
  return text.empty() ? "none" : text;
}

void Probe::dims() {
  declaration.head_dims = sweep(false);
  if (declaration.head_dims.empty()) declaration.head_dims = {{plain_.dim, plain_.dim, 1}};
  say("head_dim", dims_text(declaration.head_dims),
      "each value up to 256 tried, right where named");
  const DimSet v = sweep(true);
  std::int64_t values = 0;
  for (const DimRange& range : v) values += (range.last - range.first) / range.step + 1;
  if (values > 1 || (values == 1 && !contains(v, plain_.dim))) declaration.v_head_dims = v;
  say("v_head_dim", declaration.v_head_dims ? dims_text(v) : "same",
      fmt::format("each value up to 256 tried with head_dim {}", plain_.dim));
}

void Probe::lengths() {
  constexpr std::array<std::int64_t, 12> kLengths{1,   2,    3,    17,   64,   65,
                                                  128, 1000, 1024, 4096, 8191, 16384};
  const auto longest = [&](bool of_q) {
    std::int64_t most = 0;
    std::string refused;
    for (const std::int64_t length : kLengths) {
      AttentionProblem p = plain();
      p.batch = p.num_heads = p.num_kv_heads = 1;
      (of_q ? p.q_len : p.kv_len) = length;
      if (plain_.q_len == plain_.kv_len) p.q_len = p.kv_len = std::min<std::int64_t>(length, 1024);
      if (right(p))
        most = length;
      else
        refused += (refused.empty() ? "" : ", ") + std::to_string(length);
    }
    say(of_q ? "longest q_len right" : "longest kv_len right", std::to_string(most),
        refused.empty() ? "nothing longer was tried" : "not right: " + refused);
    return refused.empty() ? 0 : most;
  };
  declaration.max_q_len = longest(true);
  declaration.max_kv_len = longest(false);
}

/// What one of the alternatives would give must differ from what is right.
void Probe::tell_apart(Feature feature, AttentionProblem& p) const {
  if (feature == Feature::prefix)  // neither causal nor full
    p.prefix_len.assign(static_cast<std::size_t>(p.batch), std::max<std::int64_t>(p.kv_len - 2, 0));
  if (feature == Feature::global_tokens) {
    p.window_right = 0;
    p.global_tokens = 2;
  }
  if (feature == Feature::packed && p.q_len > 4 && p.kv_len > 4) {
    p.cu_seqlens_q = {0, 2, p.q_len - 1};  // the last row is padding
    p.cu_seqlens_k = {0, 3, p.kv_len - 1};
  }
  if (feature != Feature::softcap) return;
  if (declaration.has(Feature::mask))
    p.mask = MaskKind::random;
  else if (declaration.has(Feature::causal))
    p.base = Base::causal;
}

/// Three problems that use the feature, where the sizes that the kernel takes allow it.
std::vector<AttentionProblem> Probe::problems_with(Feature feature) const {
  constexpr std::array<std::array<std::int64_t, 2>, 4> kLengths{{{5, 7}, {7, 5}, {6, 9}, {8, 8}}};
  std::vector<AttentionProblem> problems;
  for (std::uint64_t seed = 1; seed <= kLengths.size(); ++seed) {
    AttentionProblem p = plain(seed);
    if (plain_.q_len != plain_.kv_len) {
      p.q_len = kLengths[seed - 1][0];
      p.kv_len = kLengths[seed - 1][1];
    }
    add_feature(p, feature);
    p.head_dim = plain_.dim;  // add_feature may make room that is there already
    if (feature != Feature::v_head_dim) p.v_head_dim = plain_.dim;
    if (feature == Feature::gqa) {
      p.num_kv_heads = 3;
      p.num_heads = 6;
    }
    tell_apart(feature, p);
    p = make_legal(p, *parse_declaration(kProbeDeclaration));
    const std::vector<Feature> used = features_of(p);
    if (std::find(used.begin(), used.end(), feature) != used.end()) problems.push_back(p);
  }
  return problems;
}

/// With the lse to the base that the kernel writes.
std::vector<Alternative> Probe::as_written(std::vector<Alternative> alternatives) const {
  if (declaration.lse_base != LseBase::two) return alternatives;
  for (Alternative& a : alternatives)
    a.change = [before = a.change](Variant& v) {
      if (before) before(v);
      v.last = [last = v.last](Prediction& out) {
        if (last) last(out);
        for (double& lse : out.lse) lse /= std::numbers::ln2;
      };
    };
  return alternatives;
}

/// Bottom-right where the kernel is right there, or nowhere; a kernel that knows one alignment
/// would be wrong in all that is asked of positions otherwise.
void Probe::choose_alignment() {
  const std::vector<Alternative> right = {{"as asked", {}}, alternative("", "lse_base_2")};
  for (const Align align : {Align::bottom_right, Align::top_left}) {
    plain_.align = align;
    std::vector<AttentionProblem> problems = {plain(1), plain(2)};
    for (AttentionProblem& p : problems) p.base = Base::causal;
    if (ask(context_, problems, right).agrees()) return;
  }
  plain_.align = Align::bottom_right;
}

void Probe::ask_feature(const Question& question) {
  const std::string topic = "feature " + std::string(name(question.feature));
  std::vector<Alternative> alternatives{{"as asked", {}}};
  alternatives.insert(alternatives.end(), question.others.begin(), question.others.end());
  const Answer answer = ask(context_, problems_with(question.feature), as_written(alternatives));
  switch (answer.kind) {
    case Answer::Kind::refused: say(topic, "refused", answer.evidence); return;
    case Answer::Kind::accident: say(topic, "accident", answer.evidence); return;
    case Answer::Kind::undecided: say(topic, "undecided", answer.evidence); return;
    case Answer::Kind::unknown: {
      const std::string likely = diagnosis_text(likely_mistakes(answer.samples));
      say(topic, "accepted and wrong", likely.empty() ? answer.evidence : likely);
      return;
    }
    case Answer::Kind::decided: break;
  }
  if (answer.chosen == 0) {
    served(question.feature);
    say(topic, "right", answer.evidence);
    return;
  }
  const std::string& label = alternatives[answer.chosen].label;
  // Other encodings of the same thing are served, and declared.
  bool encoding = true;
  if (question.feature == Feature::mask && label == "true = drop")
    declaration.mask_polarity = MaskPolarity::drop;
  else if (question.feature == Feature::window_left && label == "exclusive bound")
    declaration.window_bound = WindowBound::exclusive;
  else if (label == kUnwrittenPadding)
    declaration.padding_row = PaddingRow::unspecified;
  else
    encoding = false;
  if (encoding) served(question.feature);
  say(topic, encoding ? label : "acts as: " + label, answer.evidence);
}

void Probe::features() {
  const auto alt = [](const char* label, const char* id) { return alternative(label, id); };
  const std::vector<Question> questions = {
      {Feature::causal,
       {alt("ignored", "causal_ignored"), alt("diagonal hidden", "causal_strict"),
        alt("one key too many", "causal_plus_one")}},
      {Feature::align_bottom_right,
       {alt("top_left", "align_top_left"), alt("causal ignored", "causal_ignored")}},
      {Feature::align_top_left,
       {alt("bottom_right", "align_bottom_right"), alt("causal ignored", "causal_ignored")}},
      {Feature::align_q_offset,
       {alt("top_left", "offset_as_top_left"), alt("bottom_right", "offset_as_bottom_right"),
        alt("causal ignored", "causal_ignored")}},
      {Feature::prefix, {alt("causal", "prefix_ignored"), alt("full", "prefix_full")}},
      {Feature::window_left,
       {alt("exclusive bound", "window_exclusive"), alt("one key more", "window_plus_one"),
        alt("ignored", "window_ignored")}},
      {Feature::window_right,
       {alt("exclusive bound", "window_right_exclusive"),
        alt("one key more", "window_right_plus_one"), alt("ignored", "window_ignored")}},
      {Feature::global_tokens,
       {alt("ignored", "global_tokens_ignored"), alt("keys alone", "global_keys_only")}},
      {Feature::gqa,
       {alt("h mod Hkv", "gqa_modulo"), alt("head 0 for all", "gqa_first_head"),
        alt("h / Hkv", "gqa_divides_by_kv_heads")}},
      {Feature::seqlens_q, {alt(kUnwrittenPadding, "padding_queries_unwritten")}},
      {Feature::seqlens_k, {alt("ignored", "seqlens_k_ignored")}},
      {Feature::left_pad_q, {alt(kUnwrittenPadding, "padding_queries_unwritten")}},
      {Feature::left_pad_k, {alt("ignored", "left_pad_k_ignored")}},
      {Feature::packed,
       {alt("one sequence", "segments_ignored"), alt("leaks", "segments_leak"),
        alt(kUnwrittenPadding, "padding_queries_unwritten")}},
      {Feature::mask,
       {alt("true = drop", "mask_polarity_inverted"), alt("ignored", "mask_ignored")}},
      {Feature::blocks, {alt("ignored", "blocks_ignored"), alt("inverted", "blocks_inverted")}},
      {Feature::bias,
       {alt("ignored", "bias_ignored"), alt("added before the scale", "bias_before_scale")}},
      {Feature::bias_neg_inf, {alt("ignored", "bias_ignored")}},
      {Feature::alibi_absolute,
       {alt("signed", "alibi_signed"), alt("key-anchored", "alibi_key_anchored"),
        alt("ignored", "alibi_ignored")}},
      {Feature::alibi_signed,
       {alt("absolute", "alibi_absolute"), alt("key-anchored", "alibi_key_anchored"),
        alt("ignored", "alibi_ignored")}},
      {Feature::alibi_key_anchored,
       {alt("absolute", "alibi_absolute"), alt("signed", "alibi_signed"),
        alt("ignored", "alibi_ignored")}},
      {Feature::rope_interleaved,
       {alt("half", "rope_half_for_interleaved"), alt("ignored", "rope_ignored"),
        alt("other direction", "rope_sign_flipped")}},
      {Feature::rope_half,
       {alt("interleaved", "rope_interleaved_for_half"), alt("ignored", "rope_ignored"),
        alt("other direction", "rope_sign_flipped")}},
      {Feature::rope_partial, {alt("all channels", "rope_partial_ignored")}},
      {Feature::rope_linear, {alt("ignored", "rope_linear_ignored")}},
      {Feature::rope_ntk, {alt("ignored", "rope_ntk_ignored")}},
      {Feature::scale,
       {alt("ignored", "user_scale_ignored"), alt("no scale", "scale_missing"),
        alt("root of the scale", "scale_sqrt")}},
      {Feature::scale_nonpositive,
       {alt("sign lost", "scale_absolute"), alt("ignored", "user_scale_ignored")}},
      {Feature::softcap,
       {alt("after the mask", "softcap_after_mask"), alt("ignored", "softcap_ignored"),
        alt("before the scale", "softcap_before_scale"),
        alt("not multiplied", "softcap_not_multiplied")}},
      {Feature::alibi_inside_softcap, {alt("outside", "alibi_outside_softcap")}},
      {Feature::sink,
       {alt("in o, not in lse", "sink_not_in_lse"), alt("ignored", "sink_dropped"),
        alt("scaled", "sink_scaled_or_softcapped")}},
      {Feature::dropout,
       {alt("ignored", "dropout_ignored"), alt("not divided by 1 - p", "dropout_not_scaled"),
        alt("keep inverted", "dropout_inverted")}},
      {Feature::layout_blhd, {}},
      {Feature::layout_bhdl, {}},
      {Feature::layout_strided, {}},
      {Feature::layout_kv_packed, {}},
      {Feature::layout_broadcast, {}},
      {Feature::empty_dims, {}},
  };
  if (plain_.base == Base::full) choose_alignment();
  for (const Question& question : questions)
    if (!declaration.has(question.feature)) ask_feature(question);
  if (declaration.has(Feature::left_pad_k) && declaration.has(Feature::seqlens_k)) ask_lengths();
}

/// What lengths count where there is a pad as well: shown only where a sequence has both.
void Probe::ask_lengths() {
  std::vector<AttentionProblem> problems;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    AttentionProblem p = plain(seed);
    p.left_pad_k.assign(static_cast<std::size_t>(p.batch), 2);
    p.seqlens_k.assign(static_cast<std::size_t>(p.batch), 4);
    problems.push_back(p);
  }
  const Answer answer =
      ask(context_, problems,
          as_written({{"end_row", {}}, alternative("real_count", "lengths_real_count")}));
  if (answer.kind != Answer::Kind::decided) {
    declaration.features[static_cast<std::size_t>(Feature::left_pad_k)] = false;
    say("lengths with a left pad", "undecided", answer.evidence);
    return;
  }
  if (answer.chosen == 1) declaration.lengths = Lengths::real_count;
  say("lengths with a left pad", answer.chosen == 1 ? "real_count" : "end_row", answer.evidence);
}

/// Without what needs something that is not served, and in plain precision.
Declaration consistent(Declaration d) {
  drop_ownerless(d);
  d.features[static_cast<std::size_t>(Feature::v_head_dim)] = d.v_head_dims.has_value();
  d.precision.fill("f32");
  for (const DType dtype : d.dtypes)
    d.profile[static_cast<std::size_t>(dtype)] = *precision_preset("f32", dtype);
  return d;
}

}  // namespace

Result<ProbeReport> probe(const OpenDeclared& open) {
  OpenError error;
  std::unique_ptr<Subject> subject = open(kProbeDeclaration, error);
  if (!subject) return Error{error.message};
  ProbeReport report;
  report.kernel = subject->kernel_name();
  report.version = subject->version();
  CaseContext context(*subject);
  Probe first(context);
  if (const auto trouble = first.find_plain()) {
    const auto decoding = first.refuses_forward ? probe_decode_alone(open, report.findings)
                                                : std::optional<Declaration>();
    if (!decoding) return Error{report.kernel + " " + *trouble};
    report.declaration = *parse_declaration(print_declaration(*decoding));
    return report;
  }
  first.dims();
  first.lengths();
  first.features();
  report.findings = std::move(first.findings);
  report.declaration = consistent(first.declaration);
  // From here on the kernel is told in its own encodings.
  subject = open(print_declaration(report.declaration), error);
  if (!subject) return Error{error.message};
  CaseContext declared(*subject);
  probe_rows(declared, report.declaration, report.findings);
  probe_precision(open, report.declaration, report.findings);
  subject = open(print_declaration(report.declaration), error);
  if (!subject) return Error{error.message};
  CaseContext precise(*subject);
  probe_promises(precise, report.declaration, report.findings);
  probe_backward(open, report.declaration, report.findings);
  probe_decode(open, report.declaration, report.findings);
  report.declaration = *parse_declaration(print_declaration(report.declaration));
  return report;
}

}  // namespace attest
