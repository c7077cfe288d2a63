// SPDX-License-Identifier: Apache-2.0
// Calls of the rotary embedding alone: how their problems are drawn, mended and shrunk, and what a
// kernel is given.
#include <gtest/gtest.h>

#include <set>

#include "attest/case_line.hpp"
#include "attest/plugin.hpp"
#include "attest/tensor.hpp"
#include "harness/arena.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/legal.hpp"
#include "harness/observe.hpp"
#include "harness/search.hpp"
#include "harness/simpler.hpp"
#include "harness/suite.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

constexpr const char* kAll =
    "dtype=f64,f32,f16,bf16 forward=none component=rope,rope_inverse features=all";

Declaration declaration(const std::string& text) { return *parse_declaration(text); }
AttentionProblem problem(const std::string& line) {
  const auto read = parse_case(line);
  EXPECT_TRUE(read) << read.error();
  return *read;
}

TEST(RopeCall, DrawnProblemsAreLegalDeclaredAndOfAllKinds) {
  const std::string kTexts[] = {
      kAll, "dtype=f32 features=all component=rope",
      "dtype=bf16 forward=none component=rope rope=half",
      "dtype=f16 head_dim=64,128 forward=none component=rope rope=interleaved layout=blhd",
      "dtype=f32 head_dim=3,5 forward=none component=rope rope=half rope_partial"};
  for (const std::string& text : kTexts) {
    const Declaration d = declaration(text);
    for (std::uint64_t index = 0; index < 500; ++index) {
      const AttentionProblem p = drawn_shared(Operation::rope, d, 3, index);
      ASSERT_EQ(p.operation, Operation::rope) << print_case(p);
      ASSERT_EQ(problem_error(p), std::nullopt) << print_case(p);
      ASSERT_EQ(not_declared(d, p), std::nullopt) << text << "\n" << print_case(p);
      ASSERT_EQ(problem(print_case(p)), p);
      ASSERT_EQ(make_legal(p, d), p) << print_case(p);
    }
  }
  int listed = 0, offsets = 0, local = 0, inverse = 0, negative = 0, far = 0, unequal = 0;
  std::set<Feature> features;
  for (std::uint64_t index = 0; index < 2000; ++index) {
    const AttentionProblem p = drawn_shared(Operation::rope, declaration(kAll), 3, index);
    listed += !p.positions.empty();
    offsets += !p.q_offset.empty();
    local += p.positions.empty() && p.q_offset.empty();
    inverse += p.rope_inverse;
    const PositionSpan span = row_positions(p);
    negative += span.first < 0;
    far += span.first >= 131072;
    unequal += p.batch > 1 && p.q_len > 0 && row_position(p, 0, 0) != row_position(p, 1, 0);
    for (const Feature feature : features_of(p)) features.insert(feature);
  }
  for (const int count : {listed, offsets, local, inverse, negative, far, unequal})
    EXPECT_GT(count, 50);
  EXPECT_EQ(features.size(), 9u);  // both pairings, partial, both scalings, three layouts, empty
}

TEST(RopeCall, IsDrawnTheSameWhateverElseTheKernelServes) {
  const Declaration alone = declaration(kAll);
  EXPECT_EQ(drawn_shared(Operation::rope, alone, 1, 7), drawn_shared(Operation::rope, alone, 1, 7));
  EXPECT_NE(drawn_shared(Operation::rope, alone, 1, 7), drawn_shared(Operation::rope, alone, 2, 7));
}

TEST(RopeCall, AKernelThatIsNothingElseGetsNothingElse) {
  const Declaration d = declaration("dtype=f32 forward=none component=rope rope=half");
  const AttentionProblem p = make_legal(problem("attention.forward lq=3 lk=5 d=3 rope=half"), d);
  EXPECT_EQ(p.operation, Operation::rope);
  EXPECT_EQ(not_declared(d, p), std::nullopt) << print_case(p);
}

TEST(RopeCall, MendingCutsPositionsToTheirRows) {
  AttentionProblem p = problem("attention.rope b=2 lq=2 d=4 rope=half positions=1,2,3,4");
  p.q_len = 3;
  EXPECT_TRUE(mend(p).positions.empty());
  p = problem("attention.rope d=4 rope=half q_offset=9");
  p.operation = Operation::forward;
  p.rope_inverse = true;
  p = mend(p);
  EXPECT_EQ(problem_error(p), std::nullopt);
  EXPECT_TRUE(p.q_offset.empty() && !p.rope_inverse);
}

TEST(RopeCall, SimplerProblemsKeepThePositionsOfTheirRows) {
  const AttentionProblem p = problem(
      "attention.rope b=2 hq=2 lq=3 d=8 rope=half rope_dim=4 rope_scale=2 rope_inverse=1 "
      "positions=10,11,12,20,21,22");
  std::set<std::vector<std::int64_t>> positions;
  for (const AttentionProblem& next : simpler(p)) {
    EXPECT_EQ(problem_error(next), std::nullopt) << print_case(next);
    EXPECT_EQ(next.operation, Operation::rope);
    positions.insert(next.positions);
  }
  EXPECT_TRUE(positions.contains({10, 11, 12}));  // the first sequence
  EXPECT_TRUE(positions.contains({20, 21, 22}));  // the second
  EXPECT_TRUE(positions.contains({10, 20}));      // the first rows
  EXPECT_TRUE(positions.contains({}));
}

struct Given {
  RopeCall call;
  std::vector<std::int32_t> positions;
  std::vector<float> cos, sin;
  int num_threads = 0;
};
Given given;

/// Keeps what it is given; y = x.
class Echo : public Kernel {
 public:
  void rope(const RopeCall& call, const Context& context) override {
    given = {call, {}, {}, {}, context.num_threads};
    const std::int64_t* const shape = call.x->shape;
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t i = 0; i < shape[2]; ++i)
        given.positions.push_back(TensorView<const std::int32_t>(call.positions)(b, i));
    for (std::int64_t r = 0; r < call.cos->shape[0]; ++r)
      for (std::int64_t t = 0; t < call.cos->shape[1]; ++t) {
        given.cos.push_back(TensorView<const float>(call.cos)(r, t));
        given.sin.push_back(TensorView<const float>(call.sin)(r, t));
      }
    for (std::int64_t b = 0; b < shape[0]; ++b)
      for (std::int64_t h = 0; h < shape[1]; ++h)
        for (std::int64_t i = 0; i < shape[2]; ++i)
          for (std::int64_t c = 0; c < shape[3]; ++c)
            TensorView<float>(call.y)(b, h, i, c) = TensorView<const float>(call.x)(b, h, i, c);
  }
};

TEST(RopeCall, AKernelIsToldEverything) {
  static const attest_plugin table = detail::table<Echo>(
      "echo", "1", "dtype=f32 forward=none component=rope,rope_inverse features=all");
  OpenError error;
  const auto subject = open_in_process(&table, error);
  ASSERT_NE(subject, nullptr) << error.message;
  for (const char* layout : {"bhld", "blhd", "bhdl", "strided"}) {
    const AttentionProblem p = problem(
        "attention.rope b=2 hq=3 lq=2 d=5 rope=half rope_base=100 rope_scale=2 rope_ntk=3 "
        "rope_inverse=1 positions=7,4,-2,4 layout=" +
        std::string(layout));
    const AttentionInputs inputs = make_inputs(p);
    const Observation seen = observe(*subject, p, inputs, {.num_threads = 3, .limits = {}});
    ASSERT_TRUE(seen.ok()) << seen.call.message;
    EXPECT_EQ(seen.o, inputs.q.values);
    EXPECT_TRUE(seen.writes_outside.empty() && seen.inputs_modified.empty());
    EXPECT_EQ(given.positions, (std::vector<std::int32_t>{7, 4, -2, 4}));
    EXPECT_EQ(given.call.rope_position, -2);
    EXPECT_EQ(given.call.rope_dim, 4);
    EXPECT_EQ(given.call.pairing, ATTEST_ROPE_HALF);
    EXPECT_TRUE(given.call.inverse);
    EXPECT_EQ(given.call.base, 100);
    EXPECT_EQ(given.call.scale, 2);
    EXPECT_EQ(given.call.ntk, 3);
    EXPECT_EQ(given.num_threads, 3);
    ASSERT_EQ(given.cos.size(), 20u);  // positions -2 to 7, two pairs
    for (std::int64_t r = 0; r < 10; ++r)
      for (std::int64_t t = 0; t < 2; ++t) {
        const RopeAngle angle = rope_angle(p, r - 2, t);
        EXPECT_EQ(given.cos[static_cast<std::size_t>(2 * r + t)],
                  static_cast<float>(angle.cos_high));
        EXPECT_EQ(given.sin[static_cast<std::size_t>(2 * r + t)],
                  static_cast<float>(angle.sin_high));
      }
  }
}

TEST(RopeCall, AKernelWithoutComponentsRefuses) {
  attest_plugin table = detail::table<Echo>("echo", "1", "dtype=f32 features=all component=rope");
  table.component = nullptr;
  OpenError error;
  const auto subject = open_in_process(&table, error);
  ASSERT_NE(subject, nullptr) << error.message;
  const AttentionProblem p = problem("attention.rope d=4 rope=half");
  const Observation seen = observe(*subject, p, make_inputs(p));
  EXPECT_EQ(seen.call.status, ATTEST_UNSUPPORTED);
  EXPECT_EQ(seen.call.message, "the plug-in offers no rope");
}

}  // namespace
}  // namespace attest
