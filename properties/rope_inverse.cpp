// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "properties/rope_laws.hpp"
#include "properties/support.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

std::optional<std::string> skip(const Declaration& declaration) {
  if (!declaration.rope.inverse) return "not declared: component rope_inverse";
  return std::nullopt;
}

std::optional<AttentionProblem> adapt(AttentionProblem problem, const Declaration& declaration) {
  return rope_sized(std::move(problem), declaration);
}

CaseResult check(CaseContext& context, const AttentionProblem& problem) {
  RopeRun there, back;
  if (auto result = run_rope(context, problem, there)) return *result;
  AttentionProblem inverse = problem;
  inverse.rope_inverse = !problem.rope_inverse;
  // The y that the kernel gave; a row that is not finite says nothing and is not turned back.
  Dense<double> y = there.inputs.q;
  for (std::size_t flat = 0; flat < y.values.size(); ++flat)
    y.values[flat] = std::isfinite(there.y(flat)) ? there.y(flat) : 0;
  if (auto result = run_rope(context, inverse, std::move(y), back)) return *result;

  const bool interleaved = problem.rope == RopePairing::interleaved;
  const std::int64_t pairs = effective_rope_dim(problem) / 2;
  RopeLaw law(problem);
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t i = 0; i < problem.q_len; ++i) {
      const std::vector<RopeAngle> angles = rope_angles(problem, row_position(problem, b, i));
      for (std::int64_t h = 0; h < problem.num_heads; ++h) {
        if (!there.telling(b, h, i) || !back.telling(b, h, i)) continue;
        for (std::int64_t t = 0; t < pairs; ++t) {
          const std::size_t first = there.flat(b, h, i, interleaved ? 2 * t : t),
                            second = there.flat(b, h, i, interleaved ? 2 * t + 1 : t + pairs);
          const RopeAngle& angle = angles[static_cast<std::size_t>(t)];
          const double cos = std::fabs(angle.cos_high), sin = std::fabs(angle.sin_high);
          for (const auto& [here, partner] : {std::pair{first, second}, std::pair{second, first}})
            law.add(here, there.inputs.q.values[here], back.y(here),
                    back.allowed(here) +
                        (1 + 0x1p-50) * (cos * there.allowed(here) + sin * there.allowed(partner)),
                    [&] {
                      return element_name(problem, Output::o, here) + ", turned there and back,";
                    });
        }
      }
    }
  return std::move(law).finish();
}

ATTEST_REQUIREMENT(rope_inverse, {
                                     .id = "ROPE-INVERSE",
                                     .sentence = "turning back after turning gives every row again",
                                     .operation = Operation::rope,
                                     .skip = skip,
                                     .adapt = adapt,
                                     .check = check,
                                     .share = 60,
                                 });

}  // namespace
}  // namespace attest
