// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "attest/plugin.h"
#include "harness/data.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"
#include "properties/judge_outputs.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x726f7065726566u;

Declaration all_of_rope() {
  Declaration all = everything();
  all.rope = {true, true};
  return all;
}

/// Ways to leave the declaration: each pairing, scaling, type and layout that is not in it.
std::vector<AttentionProblem> undeclared(const AttentionProblem& problem,
                                         const Declaration& declaration) {
  std::vector<AttentionProblem> ways;
  const auto add = [&](auto&& change) {
    AttentionProblem changed = problem;
    change(changed);
    changed = make_legal(std::move(changed), all_of_rope());
    if (not_declared(declaration, changed)) ways.push_back(std::move(changed));
  };
  using P = AttentionProblem;
  add([](P& p) { p.rope = RopePairing::interleaved; });
  add([](P& p) { p.rope = RopePairing::half; });
  add([](P& p) { p.head_dim += p.rope_dim = effective_rope_dim(p); });
  add([](P& p) { p.rope_scale = 2; });
  add([](P& p) {
    p.head_dim = std::max<std::int64_t>(p.head_dim, 4);
    p.rope_dim = 0;
    p.rope_ntk = 2;
  });
  add([](P& p) { p.rope_inverse = true; });
  for (const DType dtype : kAllDTypes) add([dtype](P& p) { p.dtype = dtype; });
  for (const Layout layout : {Layout::bhld, Layout::blhd, Layout::bhdl, Layout::strided})
    add([layout](P& p) { p.layout = layout; });
  return ways;
}

std::optional<std::string> skip(const Declaration& declaration) {
  AttentionProblem probe;
  probe.operation = Operation::rope;
  probe.head_dim = 4;
  if (undeclared(probe, declaration).empty()) return "everything is declared";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  if (problem.operation != Operation::rope) return std::nullopt;
  if (problem.q_len == 0 || problem.batch == 0) return std::nullopt;
  if (not_declared(declaration, problem)) return problem;
  const std::vector<AttentionProblem> ways = undeclared(problem, declaration);
  if (ways.empty()) return std::nullopt;
  return ways[mix(problem.seed, kTag, 0, 0, 0, 0) % ways.size()];
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const std::string what = not_declared(context.declaration(), problem).value_or("nothing");
  const Observation& seen = context.first(problem);
  if (!seen.call.accident && seen.call.status >= ATTEST_UNSUPPORTED &&
      seen.call.status <= ATTEST_FAILED)
    return {};
  CaseResult result = check_outputs(context, problem);
  if (seen.call.accident || seen.call.status != ATTEST_OK) {
    result.detail += " (on " + what + ", which is not declared and should be refused)";
    return result;
  }
  result.ratio_output.clear();
  result.reason = Reason::wrong_accept;
  if (is_failure(result.verdict)) {
    result.detail = "accepts " + what + ", which it does not declare, and gives a wrong answer";
  } else {
    result.verdict = Verdict::warn;
    result.detail = "serves " + what + " without declaring it";
  }
  return result;
}

ATTEST_REQUIREMENT(rope_refuses, {
                                     .id = "ROPE-REFUSES",
                                     .sentence = "what is not declared of the rotary embedding "
                                                 "alone is refused, not ignored",
                                     .operation = Operation::rope,
                                     .skip = skip,
                                     .adapt = adapt,
                                     .check = check,
                                     .share = 60,
                                 });

}  // namespace
}  // namespace attest
