// SPDX-License-Identifier: Apache-2.0
#include "harness/compare_kernels.hpp"

#include <fmt/format.h>

#include <cmath>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/judge.hpp"
#include "harness/observe.hpp"
#include "harness/unit.hpp"

namespace attest {

namespace {

/// The ends of the slots, the poisons and the threads in turn: a read past the end shows at one end
/// alone, a race with several threads alone.
constexpr CallOptions kWays[] = {{Flush::high, Poison::nan, 1, {}},
                                 {Flush::low, Poison::finite, 1, {}},
                                 {Flush::high, Poison::finite, 4, {}}};

/// NaNs are alike whatever their payload.
bool same_values(const std::vector<double>& a, const std::vector<std::uint64_t>& a_bits,
                 const std::vector<double>& b, const std::vector<std::uint64_t>& b_bits) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a_bits[i] != b_bits[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

/// "" where both did the same.
std::string told_apart(const Observation& a, const Observation& b) {
  if (a.call.accident.has_value() != b.call.accident.has_value())
    return a.call.accident ? a.call.accident->sentence : "the base has an accident";
  if (a.call.accident)
    return a.call.accident->reason != b.call.accident->reason ? "another accident" : "";
  if (a.call.status != b.call.status) return "another status";
  if (a.writes_outside != b.writes_outside) return "writes elsewhere";
  if (a.inputs_modified != b.inputs_modified) return "changes inputs";
  if (!same_values(a.o, a.o_bits, b.o, b.o_bits)) return "o differs";
  if (!same_values(a.lse, a.lse_bits, b.lse, b.lse_bits)) return "lse differs";
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    const SeenTensor &of_a = a.gradients[n], &of_b = b.gradients[n];
    if (!same_values(of_a.values, of_a.bits, of_b.values, of_b.bits))
      return fmt::format("{} differs", name(output_of(static_cast<Gradient>(n))));
  }
  return "";
}

}  // namespace

std::optional<std::string> difference(Subject& kernel, Subject& base,
                                      const AttentionProblem& problem) {
  const AttentionInputs inputs = make_inputs(problem);
  for (CallOptions options : kWays) {
    options.limits = call_limits(problem);
    const Observation seen = observe(kernel, problem, inputs, options);
    const Observation expected = observe(base, problem, inputs, options);
    const std::string apart = told_apart(seen, expected);
    if (apart.empty()) continue;
    if (!told_apart(observe(base, problem, inputs, options), expected).empty()) continue;
    return apart;
  }
  return std::nullopt;
}

std::optional<std::string> first_difference(Subject& kernel, Subject& base, const WorkList& work,
                                            const std::function<bool()>& proceed) {
  for (const WorkUnit& unit : work.units) {
    if (!proceed()) break;
    const std::optional<AttentionProblem> problem = problem_of(work, unit);
    if (!problem) continue;
    if (unit.is_shared() && not_declared(work.declaration, *problem)) continue;
    if (const auto apart = difference(kernel, base, *problem))
      return *apart + ": " + print_case(*problem);
  }
  return std::nullopt;
}

}  // namespace attest
