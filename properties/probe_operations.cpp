// SPDX-License-Identifier: Apache-2.0
#include "properties/probe_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/narrow.hpp"
#include "harness/unit.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {

namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kProblems = 24;

/// What came of some calls that ask one question.
struct Trials {
  int right = 0;
  std::string refused, wrong, accident;  ///< the first of each
  bool served() const { return right > 0 && refused.empty() && wrong.empty() && accident.empty(); }
  bool asked() const {
    return right > 0 || !refused.empty() || !wrong.empty() || !accident.empty();
  }
  std::string answer() const {
    if (!accident.empty()) return "accident";
    if (!wrong.empty()) return "accepted and wrong";
    if (!asked()) return "not asked";
    if (refused.empty()) return "right";
    if (right > 0) return "refused in part";
    return refused.find("the plug-in offers no ") == std::string::npos ? "refused" : "not offered";
  }
  std::string evidence() const {
    for (const std::string* said : {&accident, &wrong, &refused})
      if (!said->empty()) return *said;
    return fmt::format("right in {} calls", right);
  }
};

using Check = std::function<CaseResult(CaseContext&, const AttentionProblem&)>;

CaseResult check_gradients(CaseContext& context, const AttentionProblem& p) {
  const Observation& seen = context.first(p);
  if (auto result = judge_call(seen, context.declaration(), p)) return *result;
  CaseResult last;
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const auto gradient = static_cast<Gradient>(n);
    if (!wants_gradient(p, gradient)) continue;
    last = judge_gradient(p, context.inputs(p), context.expected(p), gradient,
                          seen.gradients[n].values, is_generic(p));
    if (is_failure(last.verdict)) break;
  }
  return last;
}

CaseResult check_decoded(CaseContext& context, const AttentionProblem& p) {
  const CaseResult outputs = check_outputs(context, p);
  if (is_failure(outputs.verdict) || outputs.verdict == Verdict::unsupported) return outputs;
  const CaseResult appended = find_requirement("CACHE-APPEND")->check(context, p);
  return is_failure(appended.verdict) ? appended : outputs;
}

Trials try_all(CaseContext& context, const std::vector<AttentionProblem>& problems,
               const Check& check) {
  Trials trials;
  for (const AttentionProblem& p : problems) {
    context.limits = call_limits(p);
    const CaseResult result = check(context, p);
    const auto note = [&](std::string& first) {
      if (first.empty()) first = fmt::format("'{}': {}", print_case(p), result.detail);
    };
    if (result.verdict == Verdict::unsupported)
      note(trials.refused);
    else if (context.first(p).call.accident)
      note(trials.accident);
    else if (is_failure(result.verdict))
      note(trials.wrong);
    else
      trials.right += result.verdict != Verdict::not_judged;
    if (!trials.wrong.empty() || !trials.accident.empty()) break;
  }
  return trials;
}

/// Small drawn calls of an operation under a declaration, of the wanted kind.
std::vector<AttentionProblem> drawn(const Declaration& declaration, Operation operation,
                                    std::string_view stream, std::size_t count,
                                    const std::function<bool(const AttentionProblem&)>& wanted) {
  constexpr std::uint64_t kMostTries = 3000;
  constexpr std::int64_t kMostTriples = 50'000;
  std::vector<AttentionProblem> problems;
  for (std::uint64_t n = 0; n < kMostTries && problems.size() < count; ++n) {
    AttentionProblem p = draw(declaration, kSeed, stream, n);
    p = operation == Operation::backward ? to_backward(std::move(p), declaration)
                                         : to_decode(std::move(p), declaration);
    if (p.operation == operation && triples(p) < kMostTriples && triples(p) > 0 && wanted(p))
      problems.push_back(std::move(p));
  }
  return problems;
}

/// The question asked under a declaration of its own, which says what is asked for.
Trials ask_declared(const OpenDeclared& open, const Declaration& asked, Operation operation,
                    std::size_t count, const std::function<bool(const AttentionProblem&)>& wanted) {
  Trials trials;
  OpenError error;
  const std::string text = print_declaration(asked);
  if (!parse_declaration(text)) return trials;
  const std::unique_ptr<Subject> subject = open(text, error);
  if (!subject) {
    trials.accident = error.message;
    return trials;
  }
  CaseContext context(*subject);
  const bool backward = operation == Operation::backward;
  return try_all(context,
                 drawn(subject->declaration(), operation,
                       backward ? "probe backward" : "probe decode", count, wanted),
                 backward ? check_gradients : check_decoded);
}

bool always(const AttentionProblem&) { return true; }

}  // namespace

void probe_backward(const OpenDeclared& open, Declaration& declaration,
                    std::vector<ProbeFinding>& findings) {
  Declaration asked = declaration;
  asked.backward = {};
  asked.backward.served = true;
  const auto ask = [&](const std::string& topic,
                       const std::function<bool(const AttentionProblem&)>& wanted) {
    const Trials trials = ask_declared(open, asked, Operation::backward, kProblems, wanted);
    findings.push_back({topic, trials.answer(), trials.evidence()});
    return trials.served();
  };
  declaration.backward = {};
  if (!ask("backward", always)) return;
  declaration.backward.served = true;
  struct More {
    const char* topic;
    bool BackwardScope::*served;
    bool has_input;
    bool (*wanted)(const AttentionProblem&);
  };
  const bool alibi = declaration.has(Feature::alibi_absolute) ||
                     declaration.has(Feature::alibi_signed) ||
                     declaration.has(Feature::alibi_key_anchored);
  const More kMore[] = {
      {"backward, dBias", &BackwardScope::bias, declaration.has(Feature::bias),
       [](const AttentionProblem& p) { return wants_gradient(p, Gradient::bias); }},
      {"backward, dSlope", &BackwardScope::slopes, alibi,
       [](const AttentionProblem& p) { return wants_gradient(p, Gradient::slopes); }},
      {"backward, dSink", &BackwardScope::sink, declaration.has(Feature::sink),
       [](const AttentionProblem& p) { return wants_gradient(p, Gradient::sink); }},
      {"backward, gradient of lse", &BackwardScope::lse, declaration.has(Feature::lse),
       [](const AttentionProblem& p) { return p.d_lse; }}};
  for (const More& more : kMore) {
    if (!more.has_input) continue;
    asked.backward = {};
    asked.backward.served = asked.backward.*more.served = true;
    declaration.backward.*more.served = ask(more.topic, more.wanted);
  }
}

namespace {

bool has_rope(const Declaration& d) {
  return d.has(Feature::rope_interleaved) || d.has(Feature::rope_half);
}
bool& flag_of(CacheScope& scope, CacheKind kind) {
  return kind == CacheKind::contiguous ? scope.contiguous
         : kind == CacheKind::ring     ? scope.ring
                                       : scope.paged;
}

/// What probe_decode() asks, one thing after the other.
class DecodeProbe {
 public:
  DecodeProbe(const OpenDeclared& open, Declaration& declaration,
              std::vector<ProbeFinding>& findings)
      : open_(open), declaration_(declaration), findings_(findings) {}

  void run() {
    declaration_.cache = {};
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged})
      if (!ask_kind(kind)) return;
    if (declaration_.cache.served() && has_rope(declaration_)) ask_keys();
    if (declaration_.cache.served()) ask_splits();
  }

 private:
  Trials ask(const CacheScope& scope, std::size_t count,
             const std::function<bool(const AttentionProblem&)>& wanted) const {
    Declaration asked = declaration_;
    asked.cache = scope;
    return ask_declared(open_, asked, Operation::decode, count, wanted);
  }
  bool say(const std::string& topic, const Trials& trials) {
    findings_.push_back({topic, trials.answer(), trials.evidence()});
    return trials.served();
  }

  /// False where nothing more need be asked: the plug-in has no decode.
  bool ask_kind(CacheKind kind) {
    const auto without_rope = [](const AttentionProblem& p) { return p.rope == RopePairing::none; };
    CacheScope scope;
    flag_of(scope, kind) = true;
    const std::string topic = fmt::format("decode, {} cache", enum_name(kind));
    if (kind == CacheKind::paged) {
      scope.page_sizes = page_sizes(scope);
      declaration_.cache.page_sizes = scope.page_sizes;
    }
    const Trials trials = ask(scope, kProblems, without_rope);
    if (kind == CacheKind::contiguous && trials.answer() == "not offered") {
      say("decode", trials);
      return false;
    }
    flag_of(declaration_.cache, kind) = say(topic, trials);
    if (!declaration_.cache.paged) declaration_.cache.page_sizes = {};
    return true;
  }

  /// Those with which it is right; empty where each one is, or none.
  DimSet page_sizes(const CacheScope& scope) {
    constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 256};
    DimSet right;
    std::string text;
    for (const std::int64_t size : kSizes) {
      CacheScope of_size = scope;
      of_size.page_sizes = {{size, size, 1}};
      const Trials trials =
          ask(of_size, 3, [](const AttentionProblem& p) { return p.rope == RopePairing::none; });
      if (!trials.served()) continue;
      right.push_back({size, size, 1});
      text += (text.empty() ? "" : ", ") + std::to_string(size);
    }
    if (right.empty()) return {};
    const bool all = right.size() == std::size(kSizes);
    findings_.push_back({"decode, page size", all ? "any" : text, "right with " + text});
    return all ? DimSet{} : right;
  }

  void ask_keys() {
    CacheScope& cache = declaration_.cache;
    CacheScope raw = cache, rotated = cache;
    raw.rotated = false;
    rotated.raw = false;
    rotated.rotated = true;
    cache.raw = say("decode, keys before RoPE", ask(raw, kProblems, [](const AttentionProblem& p) {
                      return p.rope != RopePairing::none && !p.cache_rotated;
                    }));
    cache.rotated =
        say("decode, keys after RoPE",
            ask(rotated, kProblems, [](const AttentionProblem& p) { return p.cache_rotated; }));
    if (cache.raw || cache.rotated) return;
    findings_.push_back({"decode", "not declared", "RoPE is served without a cache alone"});
    cache = {};
  }

  void ask_splits() {
    CacheScope scope = declaration_.cache;
    scope.splits = true;
    declaration_.cache.splits =
        say("decode, number of splits",
            ask(scope, kProblems, [](const AttentionProblem& p) { return p.num_splits > 1; }));
  }

  const OpenDeclared& open_;
  Declaration& declaration_;
  std::vector<ProbeFinding>& findings_;
};

}  // namespace

void probe_decode(const OpenDeclared& open, Declaration& declaration,
                  std::vector<ProbeFinding>& findings) {
  DecodeProbe(open, declaration, findings).run();
}

namespace {

constexpr const char* kDecodeAlone =
    "dtype=f64,f32,f16,bf16 head_dim=64 forward=none cache=contiguous,ring,paged "
    "precision.f32=f32_tf32 precision.f16=mma_f32acc precision.bf16=mma_f32acc";

/// Types, head dims, features and precision of a kernel that decodes alone.
class DecodeAloneProbe {
 public:
  DecodeAloneProbe(const OpenDeclared& open, std::vector<ProbeFinding>& findings)
      : open_(open), findings_(findings), asked_(*parse_declaration(kDecodeAlone)) {}

  std::optional<Declaration> run() {
    types();
    if (asked_.dtypes.empty()) return std::nullopt;
    dims();
    // Once more for those that need one that comes later.
    std::vector<Feature> left;
    for (int f = 0; f < kNumFeatures; ++f)
      if (!ask_feature(static_cast<Feature>(f))) left.push_back(static_cast<Feature>(f));
    for (const Feature feature : left) ask_feature(feature);
    precision();
    return asked_;
  }

 private:
  Trials ask(const Declaration& asked, std::size_t count,
             const std::function<bool(const AttentionProblem&)>& wanted) const {
    return ask_declared(open_, asked, Operation::decode, count, wanted);
  }
  bool say(const std::string& topic, const Trials& trials) {
    findings_.push_back({topic, trials.answer(), trials.evidence()});
    return trials.served();
  }

  /// Of each type alone, in the one kind of cache that serves it.
  void types() {
    std::vector<DType> right;
    CacheScope served;
    for (const DType dtype : kAllDTypes) {
      Declaration one = asked_;
      one.dtypes = {dtype};
      Trials first;
      for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged}) {
        one.cache = of_kind(kind);
        first = ask(one, 6, always);
        if (!first.served()) continue;
        served = one.cache;
        break;
      }
      if (say(fmt::format("decode, {}", name(dtype)), first)) right.push_back(dtype);
    }
    asked_.dtypes = right;
    asked_.cache = served;
  }
  static CacheScope of_kind(CacheKind kind) {
    CacheScope scope;
    flag_of(scope, kind) = true;
    if (kind == CacheKind::paged) scope.page_sizes = {{16, 16, 1}};  // what most kernels serve
    return scope;
  }

  void dims() {
    DimSet dims;
    for (std::int64_t dim = 1; dim <= 256; dim = dim < 16 ? dim + 1 : dim + 8) {
      Declaration one = asked_;
      one.head_dims = {{dim, dim, 1}};
      if (!ask(one, 2, always).served()) continue;
      dims.push_back({dim, dim, 1});
    }
    std::string text;
    for (const DimRange& range : dims)
      text += (text.empty() ? "" : ",") + std::to_string(range.first);
    constexpr std::size_t kTried = 15 + 31;
    if (dims.size() == kTried) dims = {{1, 256, 1}};
    findings_.push_back({"head_dim", dims.size() == 1 ? "1..256" : text,
                         "1 to 16, then multiples of 8 up to 256 tried"});
    asked_.head_dims = dims.empty() ? DimSet{{64, 64, 1}} : dims;
  }

  /// False where no decode call has it, as far as the kernel is known.
  bool ask_feature(Feature feature) {
    if (asked_.has(feature)) return true;
    Declaration one = asked_;
    one.features[static_cast<std::size_t>(feature)] = true;
    if (feature == Feature::v_head_dim) one.v_head_dims = one.head_dims;
    const Trials trials = ask(one, 8, [feature](const AttentionProblem& p) {
      const std::vector<Feature> used = features_of(p);
      return std::find(used.begin(), used.end(), feature) != used.end();
    });
    if (!trials.asked()) return false;
    if (!say("feature " + std::string(name(feature)), trials)) return true;
    asked_.features[static_cast<std::size_t>(feature)] = true;
    if (feature == Feature::v_head_dim) asked_.v_head_dims = asked_.head_dims;
    return true;
  }

  void precision() {
    for (const DType dtype : asked_.dtypes) {
      Declaration one = asked_;
      one.dtypes = {dtype};
      std::string answer = "none of the presets", evidence;
      for (const std::string_view preset : precision_preset_names()) {
        one.precision[static_cast<std::size_t>(dtype)] = preset;
        one.profile[static_cast<std::size_t>(dtype)] = *precision_preset(preset, dtype);
        const Trials trials = ask(one, 3 * kProblems, always);
        evidence = trials.evidence();
        if (!trials.served()) continue;
        answer = preset;
        break;
      }
      const std::string preset = answer.starts_with("none") ? "f32" : answer;
      asked_.precision[static_cast<std::size_t>(dtype)] = preset;
      asked_.profile[static_cast<std::size_t>(dtype)] = *precision_preset(preset, dtype);
      findings_.push_back({"precision, " + std::string(name(dtype)), answer, evidence});
    }
  }

  const OpenDeclared& open_;
  std::vector<ProbeFinding>& findings_;
  Declaration asked_;  ///< what is known to be right so far
};

}  // namespace

std::optional<Declaration> probe_decode_alone(const OpenDeclared& open,
                                              std::vector<ProbeFinding>& findings) {
  std::optional<Declaration> declaration = DecodeAloneProbe(open, findings).run();
  if (!declaration) return std::nullopt;
  const CacheScope known = declaration->cache;
  probe_decode(open, *declaration, findings);
  if (!declaration->cache.served()) declaration->cache = known;
  drop_ownerless(*declaration);
  return declaration;
}

}  // namespace attest
