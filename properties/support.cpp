// SPDX-License-Identifier: Apache-2.0
#include "properties/support.hpp"

#include <algorithm>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "reference/definition.hpp"

namespace attest {

std::size_t num_rows(const AttentionProblem& problem) {
  return static_cast<std::size_t>(problem.batch * problem.num_heads * problem.q_len);
}

std::vector<std::uint8_t> visible_everywhere(const AttentionProblem& problem,
                                             const AttentionInputs& inputs) {
  std::vector<std::uint8_t> all;
  all.reserve(num_rows(problem) * static_cast<std::size_t>(problem.kv_len));
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t h = 0; h < problem.num_heads; ++h) {
      const std::vector<std::uint8_t> one = visible_set(problem, inputs, b, h);
      all.insert(all.end(), one.begin(), one.end());
    }
  return all;
}

namespace {

/// The shape of an output as inputs.hpp has it; o and lse by rows.
std::vector<std::int64_t> output_shape(const AttentionProblem& p, Output output) {
  const auto axes = [&p](const Axes& stored) -> std::vector<std::int64_t> {
    return {stored.b ? p.batch : 1, stored.h ? p.num_heads : 1, stored.q ? p.q_len : 1,
            stored.k ? p.kv_len : 1};
  };
  switch (output) {
    case Output::y:
    case Output::o: return {p.batch, p.num_heads, p.q_len, p.v_head_dim};
    case Output::lse: return {p.batch, p.num_heads, p.q_len};
    case Output::d_q: return {p.batch, p.num_heads, p.q_len, p.head_dim};
    case Output::d_k: return {p.batch, p.num_kv_heads, p.kv_len, p.head_dim};
    case Output::d_v: return {p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim};
    case Output::d_bias: return axes(p.bias_axes);
    case Output::d_slopes: return {p.slopes == SlopesKind::per_batch ? p.batch : 1, p.num_heads};
    case Output::d_sink: return {p.num_heads};
    case Output::appended_k: return {p.batch, p.num_kv_heads, p.q_len, p.head_dim};
    case Output::appended_v: return {p.batch, p.num_kv_heads, p.q_len, p.v_head_dim};
  }
  return {};
}

}  // namespace

std::vector<std::int64_t> output_index(const AttentionProblem& problem, Output output,
                                       std::size_t flat) {
  auto rest = static_cast<std::int64_t>(flat);
  std::vector<std::int64_t> index;
  const std::vector<std::int64_t> shape = output_shape(problem, output);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const std::int64_t extent = std::max<std::int64_t>(shape[axis], 1);
    index.push_back(rest % extent);
    rest /= extent;
  }
  std::reverse(index.begin(), index.end());
  return index;
}

std::optional<CaseResult> judge_pair(CaseContext& context, const AttentionProblem& problem) {
  if (auto result = judge_call(context.first(problem), context.declaration(), problem))
    return result;
  return judge_call(context.second(problem), context.declaration(), problem);
}

std::string element_name(const AttentionProblem& problem, Output output, std::size_t flat) {
  std::string text(name(shown_as(problem, output)));
  text += '[';
  const char* separator = "";
  for (const std::int64_t i : output_index(problem, output, flat)) {
    text += separator + std::to_string(i);
    separator = ",";
  }
  return text + "]";
}

CaseResult element_failure(const AttentionProblem& problem, Output output, std::size_t flat,
                           double expected, double actual, Reason reason, std::string detail) {
  CaseResult result;
  result.verdict = Verdict::fail;
  result.reason = reason;
  result.detail = std::move(detail);
  result.elements_failed = 1;
  result.failed_elements = {static_cast<std::uint32_t>(flat)};
  Element element;
  element.tensor = name(shown_as(problem, output));
  element.index = output_index(problem, output, flat);
  element.expected = expected;
  element.actual = actual;
  result.worst = element;
  return result;
}

CaseResult differing_bits(const AttentionProblem& problem, const Observation& before,
                          const Observation& after, const std::vector<std::uint8_t>& watched,
                          Reason reason, const std::string& what) {
  CaseResult result;
  std::optional<CaseResult> first;
  for (const Output output : {Output::o, Output::lse}) {
    const bool is_o = output == Output::o;
    const auto& left = is_o ? before.o_bits : before.lse_bits;
    const auto& right = is_o ? after.o_bits : after.lse_bits;
    const std::size_t width = is_o ? static_cast<std::size_t>(problem.v_head_dim) : 1;
    for (std::size_t flat = 0; flat < left.size() && flat < right.size(); ++flat) {
      if (!watched.empty() && !watched[flat / width]) continue;
      ++result.elements_compared;
      if (left[flat] == right[flat]) continue;
      ++result.elements_failed;
      if (first) continue;
      const double was = is_o ? before.o[flat] : before.lse[flat];
      const double is = is_o ? after.o[flat] : after.lse[flat];
      first = element_failure(problem, output, flat, was, is, reason,
                              what + " changes " + element_name(problem, output, flat) + " from " +
                                  print_number(was) + " to " + print_number(is));
    }
  }
  if (!first) return result;
  first->elements_compared = result.elements_compared;
  first->elements_failed = result.elements_failed;
  return *first;
}

CaseResult compare_rows(CaseContext& context, const AttentionProblem& problem,
                        const Observation& base, const Observation& changed,
                        const std::vector<std::uint8_t>& watched, Reason reason,
                        const std::string& what) {
  return compare_rows(context, problem, base, changed, watched, reason, what,
                      context.declaration().deterministic);
}

CaseResult compare_rows(CaseContext& context, const AttentionProblem& problem,
                        const Observation& base, const Observation& changed,
                        const std::vector<std::uint8_t>& watched, Reason reason,
                        const std::string& what, bool bits_are_promised) {
  const CaseResult bits = differing_bits(problem, base, changed, watched, reason, what);
  if (bits.verdict == Verdict::pass || bits_are_promised) return bits;

  // Bits may differ from call to call; the values may not. The rows nobody watches are left out.
  Expected expected = context.expected(problem);
  for (std::size_t row = 0; row < watched.size(); ++row)
    if (!watched[row]) expected.rows[row] = RowKind::unspecified;
  for (const Output output : {Output::o, Output::lse}) {
    const auto& actual = output == Output::o ? changed.o : changed.lse;
    if (actual.empty()) continue;
    const CaseResult judged = judge_values(problem, expected, output, actual, is_generic(problem));
    if (is_failure(judged.verdict)) return bits;
  }
  CaseResult result;
  result.elements_compared = bits.elements_compared;
  result.elements_failed = bits.elements_failed;
  return result;
}

void store_batches_apart(AttentionProblem& problem, const Declaration& declaration) {
  if (problem.pages == PageOrder::shared) problem.pages = PageOrder::shuffled;
  if (problem.layout != Layout::broadcast) return;
  problem.layout = declaration.has(Feature::layout_blhd) ? Layout::blhd : Layout::bhld;
}

std::optional<AttentionProblem> with_hidden_keys(AttentionProblem problem,
                                                 const Declaration& declaration) {
  const bool hides =
      problem.base != Base::full || problem.window_left >= 0 || problem.window_right >= 0 ||
      problem.mask != MaskKind::none || problem.blocks || problem.bias == BiasKind::neg_inf ||
      !problem.seqlens_k.empty() || !problem.left_pad_k.empty() || !problem.cu_seqlens_k.empty();
  if (hides) return problem;
  enum Way { causal, window, mask, neg_inf, lengths };
  std::vector<Way> ways;
  if (declaration.has(Feature::causal)) ways.push_back(causal);
  if (declaration.has(Feature::window_left)) ways.push_back(window);
  if (declaration.has(Feature::mask)) ways.push_back(mask);
  if (declaration.has(Feature::bias_neg_inf)) ways.push_back(neg_inf);
  if (declaration.has(Feature::seqlens_k)) ways.push_back(lengths);
  if (ways.empty()) return std::nullopt;
  const std::uint64_t choice = mix(problem.seed, 0x6869646500u, 0, 0, 0, 0);
  switch (ways[choice % ways.size()]) {
    case causal: problem.base = Base::causal; break;
    case window: problem.window_left = problem.kv_len / 3; break;
    case mask:
      problem.mask = MaskKind::random;
      problem.mask_axes = {};
      break;
    case neg_inf:
      problem.bias = BiasKind::neg_inf;
      problem.bias_axes = {};
      break;
    case lengths:
      problem.seqlens_k.assign(static_cast<std::size_t>(problem.batch), problem.kv_len / 2);
      break;
  }
  return make_legal(problem, declaration);
}

void give_threads_work(AttentionProblem& problem) {
  if (problem.num_heads < 4) {
    const std::int64_t group = problem.num_heads / problem.num_kv_heads;
    problem.num_kv_heads = 4 / group;
    problem.num_heads = group * problem.num_kv_heads;
  }
  problem.q_len = std::clamp<std::int64_t>(problem.q_len, 24, 48);
  problem.kv_len = std::clamp<std::int64_t>(problem.kv_len, 48, 96);
  problem.head_dim = std::clamp<std::int64_t>(problem.head_dim, 8, 32);
  problem.v_head_dim = std::clamp<std::int64_t>(problem.v_head_dim, 8, 32);
}

}  // namespace attest
