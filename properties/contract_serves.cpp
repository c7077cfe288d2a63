// SPDX-License-Identifier: Apache-2.0
#include "attest/names.hpp"
#include "harness/data.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"
#include "properties/support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x7365727665730000u;

AttentionProblem plain(const AttentionProblem& like, const Declaration& declaration) {
  AttentionProblem problem;
  problem.operation = like.operation;
  problem.cache = like.cache;
  problem.page_size = like.page_size;
  problem.dtype = like.dtype;
  problem.seed = like.seed;
  problem.q_len = problem.kv_len = 3;
  problem.head_dim = problem.v_head_dim = 2;
  problem.want_lse = false;
  return make_legal(problem, declaration);
}

Feature feature_of_seed(const Declaration& declaration, std::uint64_t seed) {
  std::vector<Feature> declared;
  for (int f = 0; f < kNumFeatures; ++f)
    if (declaration.features[static_cast<std::size_t>(f)])
      declared.push_back(static_cast<Feature>(f));
  return declared[mix(seed, kTag, 0, 0, 0, 0) % declared.size()];
}

std::optional<std::string> skip(const Declaration& declaration) {
  for (const bool declared : declaration.features)
    if (declared) return std::nullopt;
  return "no feature is declared";
}

/// A function of dtype and seed alone, so that applying it twice changes nothing.
std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  const Feature feature = feature_of_seed(declaration, problem.seed);
  AttentionProblem small = plain(problem, declaration);
  add_feature(small, feature);
  small = make_legal(small, declaration);
  for (const Feature used : features_of(small))
    if (used == feature) return small;
  return std::nullopt;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const Observation& seen = context.first(problem);
  auto result = judge_call(seen, context.declaration(), problem);
  if (!result) return {};
  if (result->verdict != Verdict::unsupported) return *result;
  // A kernel that refuses even the plain problem is too little tested, which is another verdict.
  // Plain is the simplest cache that is declared.
  AttentionProblem like = problem;
  like.cache = CacheKind::contiguous;
  like.page_size = 0;
  const AttentionProblem simple = plain(like, context.declaration());
  const Observation served = context.call(simple, make_inputs(simple));
  if (judge_call(served, context.declaration(), simple)) return *result;
  const Feature feature = feature_of_seed(context.declaration(), problem.seed);
  result->verdict = Verdict::fail;
  result->reason = Reason::wrong_reject;
  const std::string cache = problem.operation == Operation::decode
                                ? " on cache=" + std::string(enum_name(problem.cache))
                                : "";
  result->detail = "declares " + std::string(name(feature)) + cache +
                   " and refuses its simplest case: " + seen.call.message;
  return *result;
}

ATTEST_REQUIREMENT(
    contract_serves,
    {
        .id = "CONTRACT-SERVES",
        .sentence = "every declared feature is served, at least in its simplest case",
        .skip = skip,
        .adapt = adapt,
        .check = check,
        .share = 60,
        .of_decode = "CACHE-SERVES",
        .of_rope = "ROPE-SERVES",
    });

}  // namespace
}  // namespace attest
