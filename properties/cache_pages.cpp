// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x70616765u;

bool has_choice(const CacheScope& cache) {
  return cache.paged || cache.contiguous + cache.ring > 1;
}

std::optional<std::string> skip(const Declaration& declaration) {
  if (!has_choice(declaration.cache)) return "one kind of cache is declared, and not cache=paged";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  const bool shares = problem.pages == PageOrder::shared;
  problem = law_sized(std::move(problem), declaration);
  if (problem.operation != Operation::decode) return std::nullopt;
  // The rows are those of one sequence, whether it has them to itself or not.
  if (shares && problem.cache == CacheKind::paged) problem.pages = PageOrder::shared;
  return problem_error(problem) ? std::nullopt : std::optional(std::move(problem));
}

/// The same rows in another cache: other pages, another page size, another kind.
std::vector<AttentionProblem> elsewhere(const AttentionProblem& problem,
                                        const Declaration& declaration) {
  std::vector<AttentionProblem> others;
  AttentionProblem other = problem;
  // A larger cache: nothing depends on how much room is left.
  other.cache_rows = problem.kv_len + 1 + chosen(problem, kTag, 7);
  ++other.seed;
  if (problem.cache == CacheKind::paged) {
    other.pages = problem.pages == PageOrder::in_order ? PageOrder::shuffled : PageOrder::in_order;
    others.push_back(other);
    other.pages = PageOrder::shuffled;
    for (const std::int64_t size : {1, 2, 3, 5, 16, 64, 256})
      if (size != problem.page_size && contains(declaration.cache.page_sizes, size)) {
        other.page_size = size;
        if (chosen(problem, kTag + static_cast<std::uint64_t>(size), 2) == 0) break;
      }
    others.push_back(other);
  }
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged}) {
    if (kind == problem.cache || !declaration.cache.serves(kind)) continue;
    other.cache = kind;
    other.pages = kind == CacheKind::paged ? PageOrder::shuffled : PageOrder::in_order;
    other.page_size = 0;
    for (const std::int64_t size : {3, 16, 64, 256})
      if (kind == CacheKind::paged && other.page_size == 0 &&
          contains(declaration.cache.page_sizes, size))
        other.page_size = size;
    others.push_back(other);
  }
  return others;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  LawCall base;
  if (auto result = first_call(context, problem, base)) return *result;
  LawJudge judge(problem, "another place for the same rows");
  bool said = false;
  for (const AttentionProblem& other : elsewhere(problem, context.declaration())) {
    Restatement moved = restate(other, context.inputs(problem));
    if (!settle(moved, context.declaration())) continue;
    LawCall call;
    if (auto result = further_call(context, base, moved, true, call)) return *result;
    compare_same(base, call, {}, judge);
    said = true;
  }
  return said ? std::move(judge).finish() : not_sayable();
}

ATTEST_REQUIREMENT(
    cache_pages,
    {
        .id = "CACHE-PAGES",
        .sentence = "where the rows lie does not matter: pages in any order, shared or not, of any "
                    "size, one block or a ring give the same, with any room behind them",
        .operation = Operation::decode,
        .skip = skip,
        .adapt = adapt,
        .check = check,
        .share = 100,
    });

}  // namespace
}  // namespace attest
