// SPDX-License-Identifier: Apache-2.0
// One observed call, seen through kernels that echo what they are given.
#include "harness/observe.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "harness/machine_support.hpp"
#include "reference/definition.hpp"

namespace attest::machine_test {
namespace {

constexpr Layout kLayouts[] = {Layout::bhld,      Layout::blhd,      Layout::bhdl, Layout::strided,
                               Layout::kv_packed, Layout::broadcast, Layout::far};
constexpr Flush kEnds[] = {Flush::high, Flush::low};
constexpr Poison kPoisons[] = {Poison::nan, Poison::finite};

/// The bits of v in the type.
std::uint64_t stored(double value, DType type) {
  std::uint64_t bits = 0;
  store(&bits, type, value);
  return bits;
}

class Echo : public testing::Test {
 protected:
  static Observation run(const char* kernel, const AttentionProblem& problem,
                         const AttentionInputs& inputs, const CallOptions& options = {}) {
    auto subject = host_of("echo", kernel);
    Observation seen = observe(*subject, problem, inputs, options);
    EXPECT_FALSE(seen.call.accident) << kernel << ": " << seen.call.accident->sentence;
    EXPECT_EQ(seen.call.status, 0) << kernel;
    return seen;
  }
};

TEST_F(Echo, EveryLayoutReadsBackWhatWasPutIn) {
  for (DType type : kAllDTypes)
    for (const char* kernel : {"copy_q", "copy_k", "copy_v"}) {
      auto subject = host_of("echo", kernel);
      for (Layout layout : kLayouts)
        for (Flush flush : kEnds)
          for (Poison poison : kPoisons) {
            AttentionProblem problem = small_problem();
            problem.dtype = type;
            problem.layout = layout;
            // Of twelve far rows in each of five tensors f64 takes 960 GiB of addresses; beside its
            // shadow the thread sanitizer has 1.5 TiB, less up to 1 TiB of randomised base.
            if (layout == Layout::far && type == DType::f64) problem.batch = 1;
            const AttentionInputs inputs = small_inputs(problem);
            CallOptions options;
            options.flush = flush;
            options.poison = poison;
            const Observation seen = observe(*subject, problem, inputs, options);
            ASSERT_TRUE(seen.ok())
                << kernel
                << (seen.call.accident ? seen.call.accident->sentence : seen.call.message);
            const Dense<double>& source = kernel[5] == 'q'   ? inputs.q
                                          : kernel[5] == 'k' ? inputs.k
                                                             : inputs.v;
            EXPECT_EQ(seen.o, source.values)
                << kernel << " layout " << static_cast<int>(layout) << ' ' << name(type);
            for (std::size_t i = 0; i < seen.o.size(); ++i)
              ASSERT_EQ(seen.o_bits[i], stored(source.values[i], type));
            EXPECT_TRUE(unwritten(seen.o_junk, seen.o_junk).empty());
            EXPECT_TRUE(seen.writes_outside.empty());
            EXPECT_TRUE(seen.inputs_modified.empty());
          }
    }
}

TEST_F(Echo, AnAlignmentIsKept) {
  // 64 bytes: v cannot stand beside k, whose rows take 12 bytes.
  for (Layout layout : kLayouts)
    for (Flush flush : kEnds) {
      AttentionProblem problem = small_problem();
      problem.head_dim = problem.v_head_dim = 3;
      problem.layout = layout;
      const AttentionInputs inputs = small_inputs(problem);
      CallOptions options;
      options.flush = flush;
      EXPECT_EQ(run("aligned", problem, inputs, options).o, inputs.v.values);
    }
}

TEST_F(Echo, LseHasTheLayoutToo) {
  for (Layout layout : kLayouts) {
    AttentionProblem problem = small_problem();
    problem.layout = layout;
    const AttentionInputs inputs = small_inputs(problem);
    const Observation natural = run("ones_lse", problem, inputs);
    ASSERT_EQ(natural.lse.size(), 12u);
    EXPECT_EQ(natural.lse[0], 0);
    EXPECT_EQ(natural.lse[11], 112);  // [1, 1, 2]
    EXPECT_EQ(natural.lse[7], 101);   // [1, 0, 1]
    const Observation two = run("base_two", problem, inputs);
    EXPECT_EQ(two.lse_bits, natural.lse_bits);
    EXPECT_EQ(two.lse[11], 112 * std::numbers::ln2);
    // o was not written: junk in both, so unwritten; lse was.
    EXPECT_EQ(unwritten(natural.o_junk, natural.o_junk).size(), natural.o.size());
    EXPECT_TRUE(unwritten(natural.lse_junk, natural.lse_junk).empty());
  }
}

TEST_F(Echo, PaddingRowsArePoisonInMemory) {
  AttentionProblem problem = small_problem();
  problem.seqlens_q = {2, 3};
  problem.seqlens_k = {3, 2};
  problem.left_pad_k = {1, 0};
  const AttentionInputs inputs = small_inputs(problem);
  for (Layout layout : kLayouts) {
    problem.layout = layout;
    const AttentionInputs values = small_inputs(problem);
    const Observation q = run("copy_q", problem, values);
    const Observation k = run("copy_k", problem, values);
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 2; ++h)
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t c = 0; c < 4; ++c) {
            const std::size_t at = values.q.index(b, h, i, c);
            const bool real_query = b == 0 ? i < 2 : true;
            // A key row that the batch shares is read where any sequence reads it.
            const bool real_key = layout == Layout::broadcast ? true : b == 0 ? i >= 1 : i < 2;
            EXPECT_EQ(std::isnan(q.o[at]), !real_query);
            EXPECT_EQ(std::isnan(k.o[at]), !real_key);
            if (real_query) {
              EXPECT_EQ(q.o[at], values.q.values[at]);
            }
            if (real_key) {
              EXPECT_EQ(k.o[at], values.k.values[at]);
            }
          }
  }
  CallOptions finite;
  finite.poison = Poison::finite;
  problem.layout = Layout::bhld;
  const double poison =
      std::abs(run("copy_q", problem, inputs, finite).o[inputs.q.index(0, 0, 2, 0)]);
  EXPECT_TRUE(std::isfinite(poison));
  EXPECT_GT(poison, 1e29);
}

TEST_F(Echo, BiasOfPaddingIsPoisonUnlessASequenceSharesIt) {
  AttentionProblem problem = small_problem();
  problem.v_head_dim = 3;  // o takes the shape of bias
  problem.bias = BiasKind::list;
  problem.seqlens_k = {1, 2};
  AttentionInputs inputs = small_inputs(problem);
  inputs.bias = counting<double>({2, 2, 3, 3});
  const Observation own = run("copy_bias", problem, inputs);
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t j = 0; j < 3; ++j) {
      const std::size_t at = inputs.bias.index(b, 1, 2, j);
      EXPECT_EQ(std::isnan(own.o[at]), j >= problem.seqlens_k[static_cast<std::size_t>(b)]);
    }
  problem.bias_axes.b = false;
  inputs.bias = counting<double>({1, 2, 3, 3});
  const Observation shared = run("copy_bias", problem, inputs);
  for (std::int64_t j = 0; j < 3; ++j)
    EXPECT_EQ(std::isnan(shared.o[inputs.q.index(0, 0, 0, 0) + static_cast<std::size_t>(j)]),
              j == 2);
  problem.bias_axes.k = false;
  inputs.bias = counting<double>({1, 2, 3, 1});
  for (double value : run("copy_bias", problem, inputs).o) EXPECT_FALSE(std::isnan(value));
}

TEST_F(Echo, BooleansHaveTheDeclaredPolarity) {
  AttentionProblem problem = small_problem();
  problem.v_head_dim = 3;
  problem.mask = MaskKind::list;
  problem.dropout_p = 0.5;
  for (Layout layout : kLayouts) {
    problem.layout = layout;
    AttentionInputs inputs = small_inputs(problem);
    inputs.mask = Dense<std::uint8_t>({2, 2, 3, 3});
    inputs.keep = inputs.mask;
    for (std::size_t i = 0; i < inputs.mask.values.size(); ++i) {
      inputs.mask.values[i] = i % 3 == 0;
      inputs.keep.values[i] = i % 5 == 0;
    }
    const Observation keep = run("copy_mask", problem, inputs);
    const Observation drop = run("copy_dropped", problem, inputs);
    const Observation dropout = run("copy_keep", problem, inputs);
    for (std::size_t i = 0; i < keep.o.size(); ++i) {
      EXPECT_EQ(keep.o[i], i % 3 == 0 ? 1 : 0);
      EXPECT_EQ(drop.o[i], i % 3 == 0 ? 0 : 1);
      EXPECT_EQ(dropout.o[i], i % 5 == 0 ? 1 : 0);
    }
  }
}

TEST_F(Echo, LengthsAreToldAsDeclared) {
  AttentionProblem problem = small_problem();
  problem.batch = 1;
  problem.v_head_dim = 1;
  problem.seqlens_k = {3};
  problem.left_pad_k = {2};
  const AttentionInputs inputs = small_inputs(problem);
  EXPECT_EQ(run("copy_seqlens_k", problem, inputs).o.at(0), 3);
  EXPECT_EQ(run("copy_real_counts", problem, inputs).o.at(0), 1);
}

TEST_F(Echo, SlopesHaveTheirRank) {
  AttentionProblem problem = small_problem();
  problem.batch = 1;
  problem.q_len = 1;
  problem.v_head_dim = 2;
  problem.alibi = AlibiKind::absolute;
  AttentionInputs inputs = small_inputs(problem);
  inputs.slopes = counting<double>({1, 2, 1, 1});
  EXPECT_EQ(run("copy_slopes", problem, inputs).o, (std::vector<double>{1, 2, 1, 2}));
}

TEST_F(Echo, RopeTablesCoverAllPositions) {
  // Lq = 5, Lk = 3, bottom right: query positions -2 .. 2, key positions 0 .. 2.
  AttentionProblem problem;
  problem.q_len = 5;
  problem.kv_len = 3;
  problem.head_dim = 4;
  problem.v_head_dim = 2;
  problem.rope = RopePairing::half;
  const AttentionInputs inputs = small_inputs(problem);
  const Observation seen = run("copy_cos", problem, inputs);
  ASSERT_EQ(seen.o.size(), 10u);
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t t = 0; t < 2; ++t) {
      const double angle = static_cast<double>(row - 2) * (t == 0 ? 1.0 : 0.01);
      EXPECT_NEAR(seen.o[static_cast<std::size_t>(2 * row + t)], std::cos(angle), 1e-7);
    }
  AttentionProblem told = problem;
  told.v_head_dim = 19;
  EXPECT_EQ(run("scalars", told, small_inputs(told)).o[12], -2);
}

TEST_F(Echo, ScalarsAreTold) {
  AttentionProblem problem;
  problem.v_head_dim = 19;
  problem.head_dim = 4;
  problem.q_len = 1;
  problem.kv_len = 2;
  problem.softcap = 7;
  problem.base = Base::causal;
  problem.align = Align::top_left;
  problem.window_left = 3;
  problem.window_right = 1;
  problem.global_tokens = 2;
  problem.blocks = true;
  problem.block_q = 8;
  problem.block_k = 9;
  AttentionInputs inputs = small_inputs(problem);
  inputs.blocks = Dense<std::uint8_t>({1, 1, 1, 1});
  CallOptions options;
  options.num_threads = 2;
  const std::vector<double> told = run("scalars", problem, inputs, options).o;
  EXPECT_EQ(told, (std::vector<double>{0.5, 7, 0, 0, 0, 0, 3, 1, 2, 8, 9, 0, 0, 1, 1, 0, 0, 0, 2}));
  EXPECT_EQ(run("exclusive", problem, inputs).o[6], 4);
  problem.window_left = -1;
  EXPECT_EQ(run("exclusive", problem, inputs).o[6], -1);
}

TEST_F(Echo, AnAlignmentThatDoesNotMatterIsADeclaredOne) {
  AttentionProblem problem;
  problem.v_head_dim = 19;
  problem.base = Base::causal;  // Lq = Lk: both alignments are the same
  EXPECT_EQ(run("top_left", problem, small_inputs(problem)).o[14], 1);
  EXPECT_EQ(run("scalars", problem, small_inputs(problem)).o[14], 0);
  problem.kv_len = 2;
  EXPECT_EQ(run("top_left", problem, small_inputs(problem)).o[14], 0);
  problem.align = Align::top_left;
  EXPECT_EQ(run("scalars", problem, small_inputs(problem)).o[14], 1);
  problem.base = Base::full;  // nothing looks at positions
  EXPECT_EQ(run("scalars", problem, small_inputs(problem)).o[14], 0);
}

TEST_F(Echo, OptionalTensorsAreThereWhereTheProblemHasThem) {
  AttentionProblem problem;
  const auto bits = [&](const AttentionProblem& p, const AttentionInputs& inputs) {
    return static_cast<int>(run("present", p, inputs).o.at(0));
  };
  problem.want_lse = false;
  EXPECT_EQ(bits(problem, small_inputs(problem)), 0);
  problem.want_lse = true;
  EXPECT_EQ(bits(problem, small_inputs(problem)), 1);
  problem.base = Base::causal;
  problem.align = Align::q_offset;
  problem.q_offset = {5};
  EXPECT_EQ(bits(problem, small_inputs(problem)), 1 + (1 << 13));
  problem.base = Base::full;  // the offset does not matter: bottom_right is told, without it
  EXPECT_EQ(bits(problem, small_inputs(problem)), 1);
  problem.align = Align::bottom_right;
  problem.q_offset.clear();
  problem.base = Base::prefix;
  problem.prefix_len = {1};
  problem.cu_seqlens_q = problem.cu_seqlens_k = {0, 1};
  AttentionInputs inputs = small_inputs(problem);
  problem.sink = SinkKind::list;
  inputs.sink = counting<double>({1, 1, 1, 1});
  EXPECT_EQ(bits(problem, inputs), 1 + (1 << 6) + (1 << 11) + (1 << 12) + (1 << 14));
}

TEST(Observe, SeesWritesOutsideAndModifiedInputs) {
  struct Planted {
    const char* kernel;
    Layout layout;
    Flush flush;
    std::vector<std::string> outside, modified;
  };
  const Planted all[] = {
      {"honest", Layout::strided, Flush::high, {}, {}},
      {"write_before_o", Layout::bhld, Flush::high, {"write, 4 bytes before o"}, {}},
      {"write_past_o", Layout::bhld, Flush::low, {"write, 0 bytes past the end of o"}, {}},
      {"write_past_v", Layout::bhld, Flush::low, {"write, 4 bytes past the end of v"}, {}},
      {"write_past_v", Layout::kv_packed, Flush::low, {"write, 4 bytes past the end of v"}, {}},
      {"write_gap", Layout::strided, Flush::high, {"write, between the elements of o"}, {}},
      {"write_gap", Layout::strided, Flush::low, {"write, between the elements of o"}, {}},
      {"honest", Layout::far, Flush::high, {}, {}},
      {"write_gap", Layout::far, Flush::high, {"write, beside a row of o"}, {}},
      {"write_before_o", Layout::far, Flush::high, {"write, beside a row of o"}, {}},
      {"modify_q", Layout::far, Flush::low, {}, {"q"}},
      {"modify_q", Layout::bhld, Flush::high, {}, {"q"}},
      {"modify_q", Layout::strided, Flush::high, {}, {"q"}},
      {"modify_v", Layout::kv_packed, Flush::high, {}, {"v"}},
      {"modify_v", Layout::broadcast, Flush::high, {}, {"v"}},
  };
  for (const Planted& planted : all)
    for (Poison poison : kPoisons) {
      auto subject = host_of("accidents", planted.kernel);
      AttentionProblem problem = small_problem();
      problem.layout = planted.layout;
      CallOptions options;
      options.flush = planted.flush;
      options.poison = poison;
      const Observation seen = observe(*subject, problem, small_inputs(problem), options);
      ASSERT_TRUE(seen.ok()) << planted.kernel;
      EXPECT_EQ(seen.writes_outside, planted.outside) << planted.kernel;
      EXPECT_EQ(seen.inputs_modified, planted.modified) << planted.kernel;
    }
}

#if !defined(ATTEST_SANITIZED)
TEST(Observe, AKernelFindsJunkInMemoryThatItDidNotWrite) {
  auto subject = host_of("accidents", "memory_found");
  const AttentionProblem problem = small_problem();
  for (const Poison poison : kPoisons)
    for (int call = 0; call < 3; ++call) {
      CallOptions options;
      options.poison = poison;
      const Observation seen = observe(*subject, problem, small_inputs(problem), options);
      ASSERT_TRUE(seen.ok());
      for (const std::size_t c : {0, 1, 2}) {
        EXPECT_EQ(std::isnan(seen.o[c]), poison == Poison::nan) << c;
        if (poison == Poison::finite) {
          EXPECT_GT(std::abs(seen.o[c]), 1e29) << c;
        }
      }
    }
}
#endif

TEST(Observe, FindsAnElementThatWasNotWritten) {
  auto subject = host_of("accidents", "skip_last");
  const AttentionProblem problem = small_problem();
  const AttentionInputs inputs = small_inputs(problem);
  CallOptions second;
  second.flush = Flush::low;
  second.poison = Poison::finite;
  const Observation a = observe(*subject, problem, inputs);
  const Observation b = observe(*subject, problem, inputs, second);
  EXPECT_EQ(unwritten(a.o_junk, b.o_junk), std::vector<std::size_t>{47});
}

TEST(Observe, EmptySizesPointIntoTheGuard) {
  for (const char* kernel : {"honest", "read_past_k"})
    for (Flush flush : kEnds) {
      auto subject = host_of("accidents", kernel);
      AttentionProblem problem = small_problem();
      problem.kv_len = 0;
      CallOptions options;
      options.flush = flush;
      const Observation seen = observe(*subject, problem, small_inputs(problem), options);
      if (kernel[0] == 'h') {
        ASSERT_TRUE(seen.ok());
        EXPECT_EQ(seen.o, std::vector<double>(48, 0.0));
      } else {
        // k has no last element: the kernel reads at data - 8.
        ASSERT_TRUE(seen.call.accident);
        EXPECT_EQ(seen.call.accident->verdict, Verdict::fail);
      }
    }
  auto subject = host_of("accidents", "honest");
  AttentionProblem empty = small_problem();
  empty.q_len = 0;
  const Observation seen = observe(*subject, empty, small_inputs(empty));
  EXPECT_TRUE(seen.ok());
  EXPECT_TRUE(seen.o.empty());
}

TEST(Observe, ValuesOfAnotherShapeAreTheSuitesFault) {
  auto subject = host_of("accidents", "honest");
  AttentionProblem problem = small_problem();
  const AttentionInputs inputs = small_inputs(problem);
  problem.kv_len = 4;
  const Observation seen = observe(*subject, problem, inputs);
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->verdict, Verdict::error);
  EXPECT_EQ(seen.call.accident->sentence,
            "the values of k do not have the shape that the problem gives it");
}

TEST(ArenaBytes, SaysWhatAProblemTakes) {
  AttentionProblem problem = small_problem();
  EXPECT_GE(arena_bytes(problem), 4 * 48 * 4);
  EXPECT_LE(arena_bytes(problem), 64 * 1024);
  problem.kv_len = std::int64_t{1} << 40;
  EXPECT_GE(arena_bytes(problem), (std::int64_t{1} << 40) * 2 * 2 * 2 * 4 * 4);
  problem.kv_len = std::int64_t{1} << 62;
  EXPECT_EQ(arena_bytes(problem), INT64_MAX);
  problem.layout = Layout::far;
  EXPECT_EQ(arena_bytes(problem), INT64_MAX);
  problem.kv_len = 7;
  EXPECT_LE(arena_bytes(problem), 8 << 20);
}

}  // namespace
}  // namespace attest::machine_test
