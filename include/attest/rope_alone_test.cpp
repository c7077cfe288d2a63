// SPDX-License-Identifier: Apache-2.0
// The rotary embedding alone: which lines are problems of it, which declarations have it.
#include <gtest/gtest.h>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"

namespace attest {
namespace {

AttentionProblem problem(const std::string& line) {
  const auto read = parse_case(line);
  EXPECT_TRUE(read) << line << "\n" << read.error();
  return read ? *read : AttentionProblem{};
}
std::string error(const std::string& line) {
  const auto read = parse_case(line);
  return read ? "" : read.error();
}

TEST(RopeAlone, ReadsTheExample) {
  const std::string line =
      "attention.rope dtype=bf16 b=2 hq=3 lq=5 d=8 q_offset=7,0 rope=half rope_dim=4 seed=1";
  const AttentionProblem p = problem(line);
  EXPECT_EQ(p.operation, Operation::rope);
  EXPECT_EQ(p.num_kv_heads, 3);
  EXPECT_EQ(row_position(p, 0, 4), 11);
  EXPECT_EQ(row_position(p, 1, 4), 4);
  EXPECT_EQ(row_positions(p).first, 0);
  EXPECT_EQ(row_positions(p).count, 12);
  EXPECT_EQ(rope_alone(p), p);
}

TEST(RopeAlone, PositionsOfEveryRow) {
  const AttentionProblem p = problem("attention.rope b=2 lq=2 d=2 rope=half positions=5,-3,9,5");
  EXPECT_EQ(row_position(p, 0, 1), -3);
  EXPECT_EQ(row_position(p, 1, 0), 9);
  EXPECT_EQ(row_positions(p).first, -3);
  EXPECT_EQ(row_positions(p).count, 13);
  EXPECT_EQ(row_positions(problem("attention.rope lq=0 d=2 rope=half")).count, 0);
}

TEST(RopeAlone, RefusesWhatItDoesNotHave) {
  const std::pair<const char*, const char*> kTable[] = {
      {"attention.rope d=4", "attention.rope needs rope=interleaved or rope=half"},
      {"attention.rope d=1 rope=half", "rope needs d of at least 2, but d is 1"},
      {"attention.rope d=4 rope=half lk=2", "attention.rope takes no lk"},
      {"attention.rope d=4 hq=4 hkv=2 rope=half", "attention.rope has no heads of keys: hkv is hq"},
      {"attention.rope d=4 dv=2 rope=half", "attention.rope has no values: dv is d"},
      {"attention.rope d=4 rope=half base=causal", "attention.rope takes no base"},
      {"attention.rope d=4 rope=half lse=0", "attention.rope takes no lse"},
      {"attention.rope d=4 rope=half mask=random", "attention.rope takes no mask"},
      {"attention.rope d=4 rope=half scale=2", "attention.rope takes no scale"},
      {"attention.rope d=4 rope=half layout=broadcast", "attention.rope takes no layout=broadcast"},
      {"attention.rope d=4 rope=half q_offset=1 positions=1",
       "q_offset and positions exclude each other"},
      {"attention.rope b=2 d=4 rope=half q_offset=1",
       "q_offset has 1 entries, but there are 2 sequences"},
      {"attention.rope b=2 lq=2 d=4 rope=half positions=1,2,3",
       "positions has 3 entries; b*lq=2*2 rows need one each"},
      {"attention.rope d=4 rope=half positions=2147483648",
       "positions[0] is 2147483648; it must lie in -2147483648..2147483647"},
      {"attention.rope lq=2 d=4 rope=half positions=0,16777216",
       "positions lie up to 16777216 apart; tables have at most 16777216 rows"},
      {"attention.rope d=2 rope=half data=list q=1,2 k=1,2", "attention.rope takes no k"},
      {"attention.forward positions=1", "positions needs attention.rope"},
      {"attention.forward d=2 rope=half rope_inverse=1", "rope_inverse needs attention.rope"},
  };
  for (const auto& [line, what] : kTable)
    EXPECT_EQ(error(line), std::string("case line: ") + what) << line;
}

TEST(RopeAlone, HasFewFeatures) {
  const AttentionProblem p =
      problem("attention.rope lq=3 d=5 q_offset=4 rope=half rope_scale=2 rope_ntk=2 layout=blhd");
  EXPECT_EQ(features_of(p),
            (std::vector{Feature::rope_half, Feature::rope_partial, Feature::rope_linear,
                         Feature::rope_ntk, Feature::layout_blhd}));
  EXPECT_EQ(features_of(problem("attention.rope lq=0 d=4 rope=interleaved")),
            (std::vector{Feature::rope_interleaved, Feature::empty_dims}));
}

TEST(RopeAlone, IsDeclaredAsAComponent) {
  const auto kernel = parse_declaration("dtype=f32 forward=none component=rope rope=half");
  ASSERT_TRUE(kernel) << kernel.error();
  EXPECT_EQ(kernel->rope, (RopeScope{true, false}));
  EXPECT_EQ(print_declaration(*kernel), "dtype=f32 rope=half forward=none component=rope");
  const auto missing = [&](const char* line) {
    return not_declared(*kernel, problem(line)).value_or("");
  };
  EXPECT_EQ(missing("attention.rope d=4 rope=half"), "");
  EXPECT_EQ(missing("attention.rope d=4 rope=interleaved"), "feature rope_interleaved");
  EXPECT_EQ(missing("attention.rope d=4 rope=half rope_inverse=1"), "component rope_inverse");
  EXPECT_EQ(missing("attention.forward"), "forward");
  const auto attention = parse_declaration("dtype=f32 features=all");
  EXPECT_EQ(not_declared(*attention, problem("attention.rope d=4 rope=half")), "component rope");
}

TEST(RopeAlone, ContradictoryDeclarations) {
  const std::pair<const char*, const char*> kTable[] = {
      {"dtype=f32 component=rope", "declaration: component=rope needs rope=interleaved or half"},
      {"dtype=f32 forward=none", "declaration: forward=none needs cache or component"},
      {"dtype=f32 component=rope rope=half head_dim=1,3,5",
       "declaration: component=rope needs a head_dim of at least 2 that is even, or rope_partial"},
      {"dtype=f32 component=rope_inverse rope=half",
       "declaration, line 1, column 11: component: rope_inverse needs rope"},
      {"dtype=f32 component=norm rope=half",
       "declaration, line 1, column 11: component: 'norm' is none of rope, rope_inverse"},
  };
  for (const auto& [text, what] : kTable) {
    const auto read = parse_declaration(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error(), what) << text;
  }
  EXPECT_TRUE(parse_declaration("dtype=f32 component=rope rope=half rope_partial head_dim=3"));
  EXPECT_TRUE(parse_declaration("dtype=f32 component=rope rope=half head_dim=1..3"));
  EXPECT_TRUE(parse_declaration("dtype=f32 component=rope rope=half head_dim=1,3..9%3"));
  EXPECT_FALSE(parse_declaration("dtype=f32 component=rope rope=half head_dim=1,3..5%3"));
}

}  // namespace
}  // namespace attest
