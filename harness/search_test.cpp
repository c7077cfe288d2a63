// SPDX-License-Identifier: Apache-2.0
// Planted faults, as predicates on the problem alone or as wrong answers, must shrink to the
// minimum that can be named beforehand.
#include "harness/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "attest/case_line.hpp"
#include "harness/complexity.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

/// A kernel that is never called: it only has a declaration.
class DeclaredOnly final : public Subject {
 public:
  explicit DeclaredOnly(const std::string& text) : declaration_(*parse_declaration(text)) {}
  const std::string& kernel_name() const override { return name_; }
  const std::string& version() const override { return name_; }
  const Declaration& declaration() const override { return declaration_; }
  int alignment() const override { return 0; }
  Arena& arena() override { std::abort(); }
  CallStatus call(const PlacedCall&, const CallLimits&) override { std::abort(); }

 private:
  std::string name_ = "declared-only";
  Declaration declaration_;
};

using P = AttentionProblem;

CaseResult fails_if(bool fault) {
  CaseResult result;
  if (!fault) return result;
  result.verdict = Verdict::fail;
  result.reason = Reason::wrong_value;
  return result;
}

struct Planted {
  const char* name;
  CaseResult (*check)(CaseContext&, const P&);
  const char* minimum;  ///< without its data and seed
};

const Planted kPlanted[] = {
    {"causal_top_left",
     [](CaseContext&, const P& p) {
       return fails_if(p.base == Base::causal && p.q_len != p.kv_len && p.kv_len > 1);
     },
     "attention.forward lk=2 base=causal"},
    {"gqa",
     [](CaseContext&, const P& p) {
       return fails_if(p.num_kv_heads > 1 && p.num_heads > p.num_kv_heads);
     },
     "attention.forward hq=4 hkv=2"},
    {"window",
     [](CaseContext&, const P& p) {
       return fails_if(p.window_left >= 0 && p.window_left < p.kv_len - 1);
     },
     "attention.forward lk=2 window=0,-1"},
    {"tail",
     [](CaseContext&, const P& p) {
       return fails_if(p.kv_len % 16 != 0 && p.kv_len > 16 && p.dtype == DType::f16);
     },
     "attention.forward dtype=f16 lk=17"},
    {"equal_lengths",
     [](CaseContext&, const P& p) { return fails_if(p.q_len == p.kv_len && p.q_len >= 3); },
     "attention.forward lq=3 lk=3"},
    {"softcap_and_mask",
     [](CaseContext&, const P& p) {
       return fails_if(p.softcap > 0 && p.mask != MaskKind::none && p.kv_len >= 17);
     },
     "attention.forward lk=17 softcap=1 mask=all_true"},
    {"large_blocks",
     [](CaseContext&, const P& p) { return fails_if(p.kv_len > 64 && p.head_dim > 64); },
     "attention.forward lk=65 d=65 dv=1"},
    {"wide_values", [](CaseContext&, const P& p) { return fails_if(p.v_head_dim > p.head_dim); },
     "attention.forward dv=2"},
    {"second_segment",
     [](CaseContext&, const P& p) {
       return fails_if(p.cu_seqlens_k.size() > 2 && p.cu_seqlens_k[1] > 0);
     },
     "attention.forward cu_seqlens_q=0,0,1 cu_seqlens_k=0,1,1"},
    {"padded_keys",
     [](CaseContext&, const P& p) {
       return fails_if(!p.seqlens_k.empty() && p.seqlens_k.back() < p.kv_len &&
                       p.seqlens_k.back() > 0 && p.base == Base::causal);
     },
     "attention.forward lk=2 base=causal seqlens_k=1"},
    {"rope_far_away",
     [](CaseContext&, const P& p) {
       return fails_if(p.rope == RopePairing::half && !p.q_offset.empty() && p.q_offset[0] >= 100);
     },
     "attention.forward d=2 dv=1 align=q_offset q_offset=100 rope=half"},
    {"layout",
     [](CaseContext&, const P& p) {
       return fails_if(p.layout == Layout::strided && p.sink == SinkKind::large && p.batch > 1);
     },
     "attention.forward b=2 sink=large layout=strided"},
};

/// The case line without what stands for the values.
std::string shape_of(P p) {
  p.data = Family::gaussian;
  p.v_data.reset();
  p.literal.q.clear();
  p.literal.k.clear();
  p.literal.v.clear();
  p.seed = 0;
  return print_case(p);
}

TEST(Shrink, PlantedFaultsEndAtTheirMinimum) {
  DeclaredOnly subject("dtype=f64,f32,f16,bf16 features=all");
  CaseContext context(subject);
  for (const Planted& planted : kPlanted) {
    Requirement requirement;
    requirement.check = planted.check;
    int found = 0, tries = 0, accepted = 0;
    for (std::uint64_t index = 0; index < 20'000 && found < 8; ++index) {
      const P drawn = draw(subject.declaration(), 31, planted.name, index);
      const CaseResult result = planted.check(context, drawn);
      if (result.verdict == Verdict::pass) continue;
      ++found;
      const Shrunk shrunk = shrink(requirement, context, drawn, result, ShrinkBudget{});
      EXPECT_EQ(shape_of(shrunk.problem), planted.minimum) << print_case(drawn);
      EXPECT_TRUE(shrunk.fully);
      EXPECT_EQ(shrunk.problem.seed, 0u);
      tries += shrunk.tries;
      accepted += shrunk.accepted;
    }
    EXPECT_EQ(found, 8) << planted.name;
    // Measured: 20 to 221 tries, 3 to 43 of them accepted.
    EXPECT_LT(tries / 8, 600) << planted.name;
    EXPECT_LT(accepted / 8, 80) << planted.name;
  }
}

/// The outputs that two readings of a problem give, by the definition.
bool answers_differ(const P& right, const P& wrong) {
  const AttentionInputs inputs = make_inputs(right);
  for (std::int64_t b = 0; b < right.batch; ++b)
    for (std::int64_t h = 0; h < right.num_heads; ++h)
      for (std::int64_t i = 0; i < right.q_len; ++i) {
        const ExactRow a = definition_row(right, inputs, b, h, i);
        const ExactRow c = definition_row(wrong, inputs, b, h, i);
        for (std::size_t n = 0; n < a.o.size(); ++n)
          if (!(std::fabs(a.o[n].high - c.o[n].high) <= 1e-5 * std::fabs(a.o[n].high))) return true;
      }
  return false;
}

// The causal mask aligned top-left by a kernel that is declared bottom-right, by its values.
TEST(Shrink, TopLeftForBottomRightEndsAsOneLineOfLiteralData) {
  DeclaredOnly subject(
      "dtype=f32 base=full,causal align=bottom_right gqa v_head_dim=1..256 lse mask softcap");
  CaseContext context(subject);
  Requirement requirement;
  requirement.check = [](CaseContext&, const P& p) {
    if (p.base != Base::causal) return CaseResult{};
    P wrong = p;
    wrong.align = Align::top_left;
    return fails_if(answers_differ(p, wrong));
  };
  int found = 0;
  for (std::uint64_t index = 0; index < 2000 && found < 5; ++index) {
    const P drawn = draw(subject.declaration(), 32, "shared", index);
    if (drawn.q_len * drawn.kv_len * drawn.num_heads > 400) continue;
    const CaseResult result = requirement.check(context, drawn);
    if (result.verdict == Verdict::pass) continue;
    ++found;
    const Shrunk shrunk = shrink(requirement, context, drawn, result, ShrinkBudget{});
    // Either one query and two keys, of which top-left hides the second; or two queries and one
    // key, which top-left shows to the first.
    const std::string line = print_case(shrunk.problem);
    EXPECT_TRUE(line == "attention.forward lk=2 base=causal data=list q=0 k=0,0 v=0,1" ||
                line == "attention.forward lk=2 base=causal data=list q=0 k=0,0 v=1,0" ||
                line == "attention.forward lq=2 base=causal data=list q=0,0 k=0 v=1")
        << line << "\n"
        << print_case(drawn);
  }
  EXPECT_EQ(found, 5);
}

TEST(Shrink, KeepsVerdictAndReason) {
  DeclaredOnly subject("dtype=f32 base=full,causal align=bottom_right lse");
  CaseContext context(subject);
  Requirement requirement;
  // Below eight keys the fault turns into another one, which is another finding.
  requirement.check = [](CaseContext&, const P& p) {
    CaseResult result = fails_if(true);
    if (p.kv_len < 8) result.verdict = Verdict::crash;
    if (p.q_len < 3) result.reason = Reason::nan_leak;
    return result;
  };
  const P start = *parse_case("attention.forward lq=20 lk=40 d=4");
  const Shrunk shrunk =
      shrink(requirement, context, start, requirement.check(context, start), ShrinkBudget{});
  EXPECT_EQ(shape_of(shrunk.problem), "attention.forward lq=3 lk=8");
  EXPECT_EQ(shrunk.result.verdict, Verdict::fail);
  EXPECT_EQ(shrunk.result.reason, Reason::wrong_value);
}

TEST(Shrink, StaysWithinTheDeclaration) {
  DeclaredOnly subject("dtype=bf16 head_dim=16,32 base=causal layout=blhd");
  CaseContext context(subject);
  Requirement requirement;
  requirement.check = [](CaseContext&, const P&) { return fails_if(true); };
  const P start = draw(subject.declaration(), 1, "shared", 0);
  const Shrunk shrunk =
      shrink(requirement, context, start, requirement.check(context, start), ShrinkBudget{});
  EXPECT_EQ(not_declared(subject.declaration(), shrunk.problem), std::nullopt);
  EXPECT_EQ(print_case(shrunk.problem),
            "attention.forward dtype=bf16 d=16 base=causal lse=0 layout=blhd data=list "
            "q=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 k=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 "
            "v=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0");
}

// adapt() widens what it is given; shrinking follows it only downwards.
TEST(Shrink, AppliesAdaptToEveryCandidate) {
  DeclaredOnly subject("dtype=f32 base=full,causal mask lse");
  CaseContext context(subject);
  Requirement requirement;
  requirement.adapt = [](P p, const Declaration&) -> std::optional<P> {
    p.mask = MaskKind::empty_rows;
    p.q_len = std::max<std::int64_t>(p.q_len, 5);
    p.literal.mask.clear();
    return p;
  };
  requirement.applies = [](const P& p, const Declaration&) { return p.kv_len != 6; };
  requirement.check = [](CaseContext&, const P& p) {
    EXPECT_EQ(p.mask, MaskKind::empty_rows);
    EXPECT_GE(p.q_len, 5);
    EXPECT_NE(p.kv_len, 6);
    return fails_if(p.kv_len >= 4);
  };
  const P start = *parse_case("attention.forward lq=9 lk=30 d=4 mask=empty_rows seed=8");
  const Shrunk shrunk =
      shrink(requirement, context, start, requirement.check(context, start), ShrinkBudget{});
  EXPECT_EQ(shape_of(shrunk.problem), "attention.forward lq=5 lk=4 mask=empty_rows");
}

TEST(Shrink, ABudgetEndsItAndSaysSo) {
  DeclaredOnly subject("dtype=f32 lse");
  CaseContext context(subject);
  Requirement requirement;
  requirement.check = [](CaseContext&, const P& p) { return fails_if(p.kv_len >= 5); };
  const P start = *parse_case("attention.forward lq=9 lk=30 d=4 seed=8");
  ShrinkBudget budget;
  budget.tries = 3;
  const Shrunk shrunk = shrink(requirement, context, start, fails_if(true), budget);
  EXPECT_EQ(shrunk.tries, 3);
  EXPECT_FALSE(shrunk.fully);
  EXPECT_TRUE(is_simpler(shrunk.problem, start));
  budget.tries = 1000;
  budget.seconds = 0;
  EXPECT_FALSE(shrink(requirement, context, start, fails_if(true), budget).fully);
}

}  // namespace
}  // namespace attest
