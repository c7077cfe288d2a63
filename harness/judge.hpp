// SPDX-License-Identifier: Apache-2.0
// The judge: docs/tolerance.md section 9. Compares what a kernel gave with what the oracle expects;
// `!(err <= tol)` fails, so a NaN never passes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attest/inputs.hpp"
#include "attest/record.hpp"
#include "attest/verdict.hpp"
#include "reference/expected.hpp"

namespace attest {

/// Result of one requirement on one case.
struct CaseResult {
  Verdict verdict = Verdict::pass;
  Reason reason = Reason::none;
  std::vector<Reason> also;
  std::string detail;  ///< one plain sentence
  std::optional<Element> worst;
  std::int64_t elements_compared = 0, elements_failed = 0;
  std::vector<std::uint32_t> failed_elements;  ///< flat indices into worst->tensor, at most 4096
  double worst_ratio = 0;                      ///< err / T, for the ratio table
  std::string ratio_output;                    ///< name(Output); "" = no ratio
};

enum class Output : std::uint8_t {
  o,
  lse,
  d_q,
  d_k,
  d_v,
  d_bias,
  d_slopes,
  d_sink,
  appended_k,  ///< the new rows in the cache of a decode call
  appended_v,
  y,  ///< of a rotary embedding alone, judged as o
};
inline constexpr std::size_t kNumOutputs = 11;
/// "o", "dQ", "k_cache": as reports call it.
std::string_view name(Output output);
std::optional<Output> parse_output(std::string_view text);
constexpr Output output_of(Gradient gradient) {
  return static_cast<Output>(static_cast<int>(Output::d_q) + static_cast<int>(gradient));
}

/// As reports call it: the o of a rotary embedding alone is y.
constexpr Output shown_as(const AttentionProblem& problem, Output output) {
  return problem.operation == Operation::rope && output == Output::o ? Output::y : output;
}

/// Non-finite first, then value. `generic`: T_S < err <= T_M fails; else it warns.
CaseResult judge_values(const AttentionProblem& problem, const Expected& expected, Output output,
                        const std::vector<double>& actual, bool generic);

/// The same for one gradient: `actual` in the shape of its input.
CaseResult judge_gradient(const AttentionProblem& problem, const AttentionInputs& inputs,
                          const Expected& expected, Gradient gradient,
                          const std::vector<double>& actual, bool generic);

/// Bias test of docs/tolerance.md section 8 over all rows of a problem (needs
/// Expected::temperature). |t| > 6 and |z| > 0.5 in one of the directions: `biased`.
CaseResult judge_bias(const AttentionProblem& problem, const Expected& expected, Output output,
                      const std::vector<double>& actual, bool generic);

}  // namespace attest
