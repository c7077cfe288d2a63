// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"
#include "properties/law_support.hpp"

namespace attest {
namespace {

constexpr std::uint64_t kTag = 0x6c61796fu;

/// The same tensors stored in another order, or nullopt where only one order is declared. Strides
/// of 0 need values that repeat; they are the affair of LAW-BROADCAST.
std::optional<Layout> other_layout(const AttentionProblem& problem,
                                   const Declaration& declaration) {
  constexpr Layout kLayouts[] = {Layout::bhld, Layout::blhd, Layout::bhdl, Layout::strided,
                                 Layout::kv_packed};
  std::vector<Layout> ways;
  for (const Layout layout : kLayouts) {
    AttentionProblem other = problem;
    other.layout = layout;
    if (layout != problem.layout && !not_declared(declaration, other)) ways.push_back(layout);
  }
  if (ways.empty()) return std::nullopt;
  return ways[static_cast<std::size_t>(chosen(problem, kTag, std::ssize(ways)))];
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  problem = law_sized(std::move(problem), declaration);
  if (!other_layout(problem, declaration)) return std::nullopt;
  return problem;
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  const auto layout = other_layout(problem, context.declaration());
  if (!layout) return not_sayable();
  Restatement restated = restate(problem, context.inputs(problem));
  restated.problem.layout = *layout;
  return check_same(context, problem, std::move(restated), {}, true,
                    "storing the tensors in another order");
}

ATTEST_REQUIREMENT(law_layout,
                   {
                       .id = "LAW-LAYOUT",
                       .sentence = "the order in which tensors are stored does not matter",
                       .adapt = adapt,
                       .check = check,
                       .share = 60,
                   });

}  // namespace
}  // namespace attest
