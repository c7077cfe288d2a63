// SPDX-License-Identifier: Apache-2.0
// Every requirement on the rotary embedding alone: an honest kernel passes it, and kernels that
// break just that are caught by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attest/case_line.hpp"
#include "attest/plugin.hpp"
#include "attest/tensor.hpp"
#include "harness/generate.hpp"
#include "harness/unit.hpp"
#include "properties/run_requirement_test.hpp"

namespace attest {
namespace {

enum class Slip : std::uint8_t {
  none,
  sine_sign,
  half_cosine,
  position_squared,
  positions_of_first,
  position_by_head,
  position_by_row_length,
  row_index_added,
  inverse_ignored,
  passes_rounded,
  passes_zero,
  pairs_half,
  linear_ignored,
  linear_floor,
  ntk_plain,
  no_position_beyond_4096,
  last_of_128_lost,
  unwritten,
  writes_gap,
  input_changed,
  reads_gap,
  second_call_differs,
  rows_lost_with_threads,
  refuses_ntk,
  answers_forward,
};

/// f32, in double from angles of its own; one head after the other.
class RopeTestKernel : public Kernel {
 public:
  static inline Slip slip = Slip::none;
  static constexpr const char* kDeclaration =
      "dtype=f32 forward=none component=rope,rope_inverse rope=interleaved,half rope_partial "
      "rope_scaling=linear,ntk layout=bhld,blhd,strided deterministic thread_invariant";

  void forward(const attest_attention& problem, const Context& context) override {
    if (slip != Slip::answers_forward) Kernel::forward(problem, context);
  }
  void rope(const RopeCall& call, const Context& context) override {
    const auto dtype = dtype_of(call.x->dtype);
    if (dtype != DType::f32) throw Unsupported("f32 alone");
    if (call.x->strides[3] != 1) throw Unsupported("channels must lie side by side");
    if (slip == Slip::refuses_ntk && call.ntk != 1) throw Unsupported("no NTK");
    ++calls_;
    const std::int64_t* const shape = call.x->shape;
    const std::int64_t rows =
        slip == Slip::rows_lost_with_threads && context.num_threads > 2 ? shape[2] - 1 : shape[2];
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < rows; ++i) turn(call, b, h, i);
    if (slip == Slip::input_changed) static_cast<float*>(call.x->data)[0] = 0;
  }

 private:
  static std::int64_t position(const RopeCall& call, std::int64_t b, std::int64_t h,
                               std::int64_t i) {
    const TensorView<const std::int32_t> ids(call.positions);
    switch (slip) {
      case Slip::positions_of_first: return ids(0, i);
      case Slip::position_by_head: return ids(b, i) + h;
      case Slip::position_squared: return std::int64_t{ids(b, i)} * ids(b, i);
      case Slip::position_by_row_length: return ids(b, i) + call.x->shape[2];
      case Slip::row_index_added: return ids(b, i) + i;
      default: return ids(b, i);
    }
  }
  static double theta(const RopeCall& call, std::int64_t position, std::int64_t t) {
    const auto dims = static_cast<double>(call.rope_dim);
    double base = call.base, at = static_cast<double>(position) / call.scale;
    if (slip == Slip::linear_ignored) at = static_cast<double>(position);
    if (slip == Slip::linear_floor) at = std::floor(at);
    if (slip == Slip::no_position_beyond_4096) at = std::min(at, 4096.0);
    if (call.ntk != 1)
      base *= slip == Slip::ntk_plain ? call.ntk : std::pow(call.ntk, dims / (dims - 2));
    return at * std::pow(base, -2 * static_cast<double>(t) / dims);
  }
  void turn(const RopeCall& call, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const TensorView<const float> x(call.x);
    const TensorView<float> y(call.y);
    if (slip == Slip::unwritten && i == 1) return;
    const std::int64_t pairs = call.rope_dim / 2, channels = call.x->shape[3];
    const bool interleaved = call.pairing == ATTEST_ROPE_INTERLEAVED && slip != Slip::pairs_half;
    for (std::int64_t t = 0; t < pairs; ++t) {
      const std::int64_t first = interleaved ? 2 * t : t,
                         second = interleaved ? 2 * t + 1 : t + pairs;
      const double angle = theta(call, position(call, b, h, i), t);
      double c = std::cos(angle), s = std::sin(angle);
      if (call.inverse && slip != Slip::inverse_ignored) s = -s;
      if (slip == Slip::sine_sign) s = -s;
      if (slip == Slip::half_cosine) c *= 0.999;
      const double u = x(b, h, i, first), v = x(b, h, i, second);
      y(b, h, i, first) = static_cast<float>(u * c - v * s);
      y(b, h, i, second) = static_cast<float>(u * s + v * c);
      if (slip == Slip::last_of_128_lost && t == 63) y(b, h, i, first) = 0;
    }
    for (std::int64_t c = 2 * pairs; c < channels; ++c) {
      y(b, h, i, c) = slip == Slip::passes_zero ? 0 : x(b, h, i, c);
      if (slip == Slip::passes_rounded) y(b, h, i, c) = x(b, h, i, c) * 0.99999994F;
    }
    if (slip == Slip::second_call_differs && calls_ % 2 == 0) y(b, h, i, 0) += 1;
    if (slip == Slip::writes_gap && y.stride(2) > channels && y.stride(1) > y.stride(2) &&
        i + 1 < call.x->shape[2])
      (&y(b, h, i, 0))[channels] = 1;
    if (slip == Slip::reads_gap && i + 1 < call.x->shape[2])
      y(b, h, i, 0) += 0 * (&x(b, h, i, 0))[channels];
  }
  int calls_ = 0;
};

struct Outcome {
  int failed = 0, judged = 0;
  CaseResult first;
  std::string first_case;
};

Outcome run(const std::string& id, Slip slip, std::int64_t count) {
  static const attest_plugin table =
      detail::table<RopeTestKernel>("rope_test", "1", RopeTestKernel::kDeclaration);
  RopeTestKernel::slip = slip;
  OpenError error;
  const auto subject = open_in_process(&table, error);
  EXPECT_NE(subject, nullptr) << error.message;
  Outcome outcome;
  const Requirement* requirement = find_requirement(id);
  EXPECT_NE(requirement, nullptr) << id;
  if (!subject || !requirement) return outcome;
  EXPECT_FALSE(skipped(*requirement, subject->declaration()));
  CaseContext context(*subject);
  WorkList work;
  work.declaration = subject->declaration();
  work.requirements = {requirement};
  for (std::int64_t index = 0; index < count; ++index) {
    const auto problem = problem_of_only(work, static_cast<std::uint64_t>(index));
    if (!problem) continue;
    const CaseResult result = check_case(*requirement, context, *problem);
    outcome.judged += result.verdict == Verdict::pass;
    if (!is_failure(result.verdict)) continue;
    if (++outcome.failed > 1) continue;
    outcome.first = result;
    outcome.first_case = print_case(*problem);
  }
  RopeTestKernel::slip = Slip::none;
  return outcome;
}

struct Catch {
  const char* requirement;
  Slip slip;
  std::int64_t count;  ///< of problems
  Reason reason;
};

class Rope : public testing::TestWithParam<Catch> {};

TEST_P(Rope, CatchesItAndPassesTheHonestKernel) {
  const Catch& expected = GetParam();
  const Outcome honest = run(expected.requirement, Slip::none, expected.count);
  EXPECT_EQ(honest.failed, 0) << honest.first.detail << "\n" << honest.first_case;
  EXPECT_GT(honest.judged, 0);
  const Outcome broken = run(expected.requirement, expected.slip, expected.count);
  ASSERT_GT(broken.failed, 0);
  EXPECT_EQ(name(broken.first.reason), name(expected.reason)) << broken.first.detail;
}

INSTANTIATE_TEST_SUITE_P(
    EachKind, Rope,
    testing::Values(Catch{"ROPE-ORACLE", Slip::sine_sign, 40, Reason::wrong_value},
                    Catch{"ROPE-NORM", Slip::half_cosine, 40, Reason::law_broken},
                    Catch{"ROPE-SHIFT", Slip::position_squared, 60, Reason::law_broken},
                    Catch{"ROPE-RELATIVE", Slip::position_squared, 60, Reason::law_broken},
                    Catch{"ROPE-ROWS", Slip::position_by_head, 40, Reason::law_broken},
                    Catch{"ROPE-ORDER", Slip::row_index_added, 40, Reason::law_broken},
                    Catch{"ROPE-ORDER", Slip::positions_of_first, 60, Reason::law_broken},
                    Catch{"ROPE-OFFSET", Slip::position_by_row_length, 40, Reason::law_broken},
                    Catch{"ROPE-INVERSE", Slip::inverse_ignored, 40, Reason::law_broken},
                    Catch{"ROPE-PASS", Slip::passes_rounded, 80, Reason::law_broken},
                    Catch{"ROPE-PASS", Slip::passes_zero, 80, Reason::law_broken},
                    Catch{"ROPE-PAIRING", Slip::pairs_half, 40, Reason::law_broken},
                    Catch{"ROPE-LINEAR", Slip::linear_ignored, 40, Reason::law_broken},
                    Catch{"ROPE-ORACLE", Slip::linear_floor, 100, Reason::wrong_value},
                    Catch{"ROPE-NTK", Slip::ntk_plain, 40, Reason::law_broken},
                    Catch{"ROPE-GRID", Slip::no_position_beyond_4096, 60, Reason::wrong_value},
                    Catch{"ROPE-GRID", Slip::last_of_128_lost, 200, Reason::wrong_value},
                    Catch{"ROPE-BOUNDS", Slip::writes_gap, 100, Reason::out_of_bounds_write},
                    Catch{"ROPE-INPUTS", Slip::input_changed, 40, Reason::input_modified},
                    Catch{"ROPE-RUN", Slip::second_call_differs, 40, Reason::not_deterministic},
                    Catch{"ROPE-THREADS", Slip::rows_lost_with_threads, 20, Reason::nan_leak},
                    Catch{"ROPE-NEVER-READ", Slip::reads_gap, 100, Reason::nan_leak},
                    Catch{"ROPE-WRITTEN", Slip::unwritten, 60, Reason::unwritten},
                    Catch{"ROPE-REFUSES", Slip::answers_forward, 100, Reason::wrong_accept},
                    Catch{"ROPE-SERVES", Slip::refuses_ntk, 100, Reason::wrong_reject}),
    [](const auto& parameter) {
      std::string name = parameter.param.requirement;
      std::replace(name.begin(), name.end(), '-', '_');
      return name + "_" + std::to_string(parameter.index);
    });

TEST(RopeRequirements, EachHasADistinctSentenceAndSkipsOtherKernels) {
  const auto attention = parse_declaration("dtype=f32 features=all backward=all cache=ring");
  ASSERT_TRUE(attention);
  int count = 0;
  for (const Requirement& requirement : requirements()) {
    if (requirement.operation != Operation::rope) continue;
    ++count;
    EXPECT_TRUE(requirement.id.starts_with("ROPE-")) << requirement.id;
    EXPECT_EQ(skipped(requirement, *attention), "not declared: rope") << requirement.id;
  }
  EXPECT_EQ(count, 21);
}

}  // namespace
}  // namespace attest
