// SPDX-License-Identifier: Apache-2.0
// The formulas of this folder against a count: the definition and the built-in kernels run on
// numbers that count what is done with them.
#include <gtest/gtest.h>

#include <set>

#include "attest/case_line.hpp"
#include "bench/cost/attention_cost.hpp"
#include "bench/cost/counted.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/observe.hpp"
#include "impls/chunked_backward.hpp"
#include "impls/chunked_forward.hpp"
#include "impls/naive_backward.hpp"
#include "impls/naive_forward.hpp"
#include "reference/gradients.hpp"

namespace attest {
namespace {

using Number32 = Counted<float>;
using Number64 = Counted<double>;

constexpr const char* kServes = "dtype=f32 features=all backward=all precision=f32";

std::int64_t operations_of(const std::function<void()>& work) {
  const std::int64_t before = counted_operations();
  work();
  return counted_operations() - before;
}

/// Of the last call of a counting kernel.
std::int64_t last_count = 0;

template <template <class> class Forward, template <class> class Backward>
class CountingKernel : public Kernel {
  void forward(const attest_attention& problem, const Context&) override {
    const Sizes sizes = read_sizes(problem);
    last_count = operations_of([&] { Forward<Number32>(problem, sizes).run(1); });
  }
  void backward(const attest_attention& problem, const Context&) override {
    const Sizes sizes = read_sizes(problem);
    check_gradients(problem, sizes);
    last_count = operations_of([&] { Backward<Number32>(problem, sizes).run(1); });
  }
};

using CountingNaive = CountingKernel<naive::Forward, naive::Backward>;
using CountingChunked = CountingKernel<chunked::Forward, chunked::Backward>;

template <class Type>
std::unique_ptr<Subject> counting() {
  static const attest_plugin plugin = detail::table<Type>("counting", "1", kServes);
  OpenError error;
  auto subject = open_in_process(&plugin, error);
  EXPECT_TRUE(subject) << error.message;
  return subject;
}

/// Random problems of a few thousand pairs. Values are ordinary numbers: a weight that underflows
/// to 0 and a row of NaN cost less.
std::vector<AttentionProblem> random_problems(std::size_t count, bool backward) {
  const auto declaration = parse_declaration(kServes);
  EXPECT_TRUE(declaration);
  std::vector<AttentionProblem> problems;
  for (std::uint64_t n = 0; problems.size() < count; ++n) {
    AttentionProblem problem = draw(*declaration, 5, "FLOPS", n);
    problem.data = problem.d_o_data = Family::gaussian;
    problem.v_data.reset();
    problem.literal = {};
    problem.want_lse = problem.want_lse || backward;
    if (problem.bias == BiasKind::lowest) problem.bias = BiasKind::neg_inf;
    if (problem.kv_len > 64) problem.alibi = AlibiKind::none;
    if (backward) {
      problem = to_backward(problem, *declaration);
      problem.d_o_data = Family::gaussian;
      // The sums over heads and rows are made in double, which is not counted.
      for (const Gradient which : {Gradient::bias, Gradient::slopes, Gradient::sink})
        problem.no_gradient[static_cast<std::size_t>(which)] = true;
    }
    if (!problem_error(problem) && triples(problem) < 200'000) problems.push_back(problem);
  }
  return problems;
}

/// How often the maximum of a row moves from one block of 64 keys to the next.
double moves_of_maximum(const AttentionProblem& problem, const AttentionInputs& inputs) {
  double moves = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        if (!rows.real_query(i)) continue;
        const std::int64_t position = qpos(rows.of_query(i), i);
        const auto q = positioned_row<double>(problem, inputs.q, b, h, i, position);
        double max = sink_at(inputs, h), next = max;
        std::int64_t block = 0;
        for (const std::int64_t j : visible_keys(problem, inputs, rows, b, h, i)) {
          if (bias_hides(inputs, b, h, i, j)) continue;
          if (const std::int64_t at = kpos(rows.of_key(j), j) / 64; at != block) {
            moves += next > max;
            max = next;
            block = at;
          }
          // As float: a softcap that saturates makes equals of them.
          const auto z =
              static_cast<float>(score_terms<double>(problem, inputs, rows, b, h, i, j, q, position,
                                                     exact_scale<double>(problem))
                                     .z);
          next = std::max<double>(next, z);
        }
        moves += next > max;
      }
  }
  return moves;
}

const AttentionCostModel& model_of(const char* name) {
  const AttentionCostModel* model = find_attention_cost_model(name);
  EXPECT_TRUE(model);
  return *model;
}

std::int64_t count_definition(const AttentionProblem& problem, const AttentionInputs& inputs) {
  if (problem.operation == Operation::backward) {
    gradients<Number64>(problem, inputs);  // once for the tables of RoPE
    return operations_of([&] { gradients<Number64>(problem, inputs); });
  }
  const auto forward = [&] {
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      const Rows rows = rows_of(problem, b);
      for (std::int64_t h = 0; h < problem.num_heads; ++h)
        for (std::int64_t i = 0; i < problem.q_len; ++i)
          forward_row<Number64>(problem, inputs, rows, b, h, i);
    }
  };
  forward();
  return operations_of(forward);
}

void expect_count(const AttentionProblem& problem, std::int64_t counted, double expected) {
  EXPECT_EQ(static_cast<double>(counted), expected) << print_case(problem);
}

class CountedFlops : public ::testing::TestWithParam<bool> {};

TEST_P(CountedFlops, AreThoseOfTheDefinition) {
  const AttentionCostModel& model = model_of("definition");
  for (const AttentionProblem& problem : random_problems(200, GetParam())) {
    const AttentionInputs inputs = make_inputs(problem);
    const auto cost = attention_cost(model, problem);
    ASSERT_TRUE(cost);
    expect_count(problem, count_definition(problem, inputs), cost->flops.total());
  }
}

TEST_P(CountedFlops, AreThoseOfNaive) {
  const auto subject = counting<CountingNaive>();
  const AttentionCostModel& model = model_of("naive");
  for (const AttentionProblem& problem : random_problems(200, GetParam())) {
    const Observation seen = observe(*subject, problem, make_inputs(problem));
    ASSERT_TRUE(seen.ok()) << print_case(problem);
    expect_count(problem, last_count, attention_cost(model, problem)->flops.total());
  }
}

TEST_P(CountedFlops, AreThoseOfChunkedButForMaximaThatStay) {
  const auto subject = counting<CountingChunked>();
  const AttentionCostModel& model = model_of("chunked");
  for (const AttentionProblem& problem : random_problems(200, GetParam())) {
    const AttentionInputs inputs = make_inputs(problem);
    const Observation seen = observe(*subject, problem, inputs);
    ASSERT_TRUE(seen.ok()) << print_case(problem);
    const double stay = GetParam() ? 0
                                   : count_pairs(problem, inputs, model.tile).row_tiles -
                                         moves_of_maximum(problem, inputs);
    expect_count(problem, last_count,
                 attention_cost(model, problem)->flops.total() -
                     stay * (2 + static_cast<double>(problem.v_head_dim)));
  }
}

INSTANTIATE_TEST_SUITE_P(, CountedFlops, ::testing::Bool(),
                         [](const auto& which) { return which.param ? "Backward" : "Forward"; });

TEST(CountedProblems, HaveEveryFeature) {
  std::set<Base> bases;
  std::set<AlibiKind> alibi;
  int masks = 0, blocks = 0, dropout = 0, softcaps = 0, sinks = 0, rope = 0, packed = 0,
      windows = 0, hidden = 0;
  for (const AttentionProblem& problem : random_problems(200, false)) {
    bases.insert(problem.base), alibi.insert(problem.alibi);
    masks += problem.mask != MaskKind::none, blocks += problem.blocks;
    dropout += problem.dropout_p > 0, softcaps += problem.softcap > 0;
    sinks += problem.sink != SinkKind::none, rope += problem.rope != RopePairing::none;
    packed += !problem.cu_seqlens_q.empty(), windows += problem.window_left >= 0;
    hidden += problem.bias == BiasKind::neg_inf;
  }
  EXPECT_EQ(bases.size(), 3u);
  EXPECT_EQ(alibi.size(), 4u);
  for (const int seen : {masks, blocks, dropout, softcaps, sinks, rope, packed, windows, hidden})
    EXPECT_GE(seen, 5);
}

}  // namespace
}  // namespace attest
