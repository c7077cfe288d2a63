// SPDX-License-Identifier: Apache-2.0
// Decode calls as a kernel finds them, and what is seen of what it does to the caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "attest/case_line.hpp"
#include "attest/plugin.hpp"
#include "harness/cache.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/observe.hpp"

namespace attest {
namespace {

/// Does what the test says.
class ProbeKernel : public Kernel {
 public:
  static inline std::function<void(const attest_attention&)> body;
  void decode(const attest_attention& p, const Context&) override { body(p); }
};

constexpr const char* kDeclaration =
    "dtype=f32 v_head_dim=any features=all rope=half cache=contiguous,ring,paged "
    "cache_keys=raw,rotated splits";

Observation probe(const AttentionProblem& problem, const AttentionInputs& inputs,
                  const std::function<void(const attest_attention&)>& body,
                  const CallOptions& options = {}) {
  static const attest_plugin table = detail::table<ProbeKernel>("probe", "1", kDeclaration);
  OpenError error;
  const auto subject = open_in_process(&table, error);
  EXPECT_NE(subject, nullptr) << error.message;
  ProbeKernel::body = body;
  Observation seen = observe(*subject, problem, inputs, options);
  EXPECT_FALSE(seen.call.accident) << seen.call.accident->sentence;
  return seen;
}

AttentionProblem problem_of(const std::string& keys) {
  const auto parsed = parse_case("attention.decode " + keys);
  EXPECT_TRUE(parsed) << keys << ": " << parsed.error();
  return parsed ? *parsed : AttentionProblem{};
}

AttentionProblem random_decode(std::uint64_t index) {
  static const Declaration declaration = *parse_declaration(kDeclaration);
  return to_decode(draw(declaration, 4, "observe", index), declaration);
}

float& element(const DLTensor* t, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
  return static_cast<float*>(
      t->data)[a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3]];
}

std::int32_t entry(const DLTensor* list, std::int64_t n) {
  return static_cast<const std::int32_t*>(list->data)[n];
}

void write_outputs(const attest_attention& p) {
  for (std::int64_t b = 0; b < p.o->shape[0]; ++b)
    for (std::int64_t h = 0; h < p.o->shape[1]; ++h)
      for (std::int64_t i = 0; i < p.o->shape[2]; ++i) {
        for (std::int64_t c = 0; c < p.o->shape[3]; ++c) element(p.o, b, h, i, c) = 0;
        if (p.lse) TensorView<float>(p.lse)(b, h, i) = 0;
      }
}

/// From nothing but the call.
void append_rows(const attest_attention& p) {
  for (std::int64_t b = 0; b < p.q->shape[0]; ++b)
    for (std::int64_t i = 0; i < (p.seqlens_q ? entry(p.seqlens_q, b) : p.q->shape[2]); ++i) {
      const std::int64_t position = entry(p.cache_len, b) + i, rows = p.k_cache->shape[2];
      std::int64_t at = b, row = position;
      if (p.cache == ATTEST_CACHE_RING) row = position % rows;
      if (p.cache == ATTEST_CACHE_PAGED) {
        row = position % rows;
        at = entry(p.block_table, b * p.block_table->shape[1] + position / rows);
      }
      for (std::int64_t g = 0; g < p.k->shape[1]; ++g) {
        for (std::int64_t c = 0; c < p.k->shape[3]; ++c)
          element(p.k_cache, at, g, row, c) = element(p.k, b, g, i, c);
        for (std::int64_t c = 0; c < p.v->shape[3]; ++c)
          element(p.v_cache, at, g, row, c) = element(p.v, b, g, i, c);
      }
    }
}

void honest(const attest_attention& p) {
  append_rows(p);
  write_outputs(p);
}

const std::vector<CallOptions>& both_ways() {
  static const std::vector<CallOptions> ways{{.flush = Flush::high, .poison = Poison::nan},
                                             {.flush = Flush::low, .poison = Poison::finite}};
  return ways;
}

bool is_poison(float value, Poison poison) {
  return poison == Poison::nan ? std::isnan(value) : std::fabs(value) > 1e18F;
}

std::vector<std::int64_t> shape_of(const DLTensor* t) { return {t->shape, t->shape + t->ndim}; }
using Shape = std::vector<std::int64_t>;

TEST(DecodeCall, HasNewRowsCachesLengthsAndPages) {
  int kinds[3] = {}, unequal = 0;
  for (std::uint64_t index = 0; index < 300; ++index) {
    const AttentionProblem problem = random_decode(index);
    ASSERT_EQ(problem.operation, Operation::decode);
    ++kinds[static_cast<int>(problem.cache)];
    unequal += !problem.seqlens_q.empty();
    const CachePlan plan = plan_cache(problem);
    const AttentionInputs inputs = make_inputs(problem);
    for (const CallOptions& options : both_ways()) {
      const auto look = [&](const attest_attention& p) {
        const std::int64_t batch = problem.batch, heads = problem.num_kv_heads;
        EXPECT_EQ(shape_of(p.q),
                  (Shape{batch, problem.num_heads, problem.q_len, problem.head_dim}));
        EXPECT_EQ(shape_of(p.k), (Shape{batch, heads, problem.q_len, problem.head_dim}));
        EXPECT_EQ(shape_of(p.v), (Shape{batch, heads, problem.q_len, problem.v_head_dim}));
        EXPECT_EQ(shape_of(p.k_cache), (Shape{plan.entries, heads, plan.rows, problem.head_dim}));
        EXPECT_EQ(shape_of(p.v_cache), (Shape{plan.entries, heads, plan.rows, problem.v_head_dim}));
        EXPECT_EQ(shape_of(p.cache_len), (Shape{batch}));
        EXPECT_EQ(p.seqlens_k, nullptr);
        EXPECT_EQ(p.q_offset, nullptr);
        EXPECT_EQ(p.align, ATTEST_ALIGN_BOTTOM_RIGHT);
        EXPECT_EQ(p.cache, static_cast<int>(problem.cache));
        EXPECT_EQ(p.cache_rotated != 0, problem.cache_rotated);
        EXPECT_EQ(p.num_splits, problem.num_splits);
        EXPECT_EQ(p.block_table != nullptr, problem.cache == CacheKind::paged);
        EXPECT_EQ(p.seqlens_q != nullptr, !problem.seqlens_q.empty());
        for (std::int64_t b = 0; b < batch; ++b)
          EXPECT_EQ(entry(p.cache_len, b), cached_rows(problem, b));
        if (!p.block_table) return;
        EXPECT_EQ(shape_of(p.block_table), (Shape{batch, plan.pages_per_sequence}));
        for (std::size_t n = 0; n < plan.table.size(); ++n) {
          const std::int32_t page = entry(p.block_table, static_cast<std::int64_t>(n));
          if (plan.table[n] != CachePlan::kNoPage)
            EXPECT_EQ(page, plan.table[n]);
          else  // no page of any cache
            EXPECT_TRUE(options.poison == Poison::nan ? page > (1 << 30) : page < -1) << page;
        }
      };
      probe(
          problem, inputs,
          [&](const attest_attention& p) {
            look(p);
            honest(p);
          },
          options);
      if (HasFailure()) FAIL() << print_case(problem);
    }
  }
  for (const int count : kinds) EXPECT_GT(count, 40);
  EXPECT_GT(unequal, 10);
}

TEST(DecodeCall, CachesHoldTheEarlierRowsAndJunkElsewhere) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    const AttentionProblem problem = random_decode(index);
    const AttentionInputs inputs = make_inputs(problem);
    const CachePlan plan = plan_cache(problem);
    // Entry and row of what is held, with one sequence that holds it.
    std::vector<std::int64_t> holder(static_cast<std::size_t>(plan.entries * plan.rows), -1), at;
    at = holder;
    for (std::int64_t b = 0; b < problem.batch; ++b) {
      const Positions held = held_positions(problem, b);
      for (std::int64_t position = held.first; position < held.end; ++position) {
        const CachePlace place = place_of(problem, plan, b, position);
        const auto n = static_cast<std::size_t>(place.entry * plan.rows + place.row);
        holder[n] = b;
        at[n] = position;
      }
    }
    for (const CallOptions& options : both_ways()) {
      const auto look = [&](const DLTensor* cache, const Dense<double>& whole) {
        for (std::int64_t e = 0; e < plan.entries; ++e)
          for (std::int64_t g = 0; g < cache->shape[1]; ++g)
            for (std::int64_t r = 0; r < plan.rows; ++r)
              for (std::int64_t c = 0; c < cache->shape[3]; ++c) {
                const auto n = static_cast<std::size_t>(e * plan.rows + r);
                const float value = element(cache, e, g, r, c);
                if (holder[n] < 0) {
                  ASSERT_TRUE(is_poison(value, options.poison)) << value;
                  continue;
                }
                const auto expected = static_cast<float>(whole.at(holder[n], g, at[n], c));
                ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)));
              }
      };
      const auto look_at_rows = [&](const DLTensor* rows, const Dense<double>& whole) {
        for (std::int64_t b = 0; b < problem.batch; ++b)
          for (std::int64_t g = 0; g < rows->shape[1]; ++g)
            for (std::int64_t i = 0; i < problem.q_len; ++i)
              for (std::int64_t c = 0; c < rows->shape[3]; ++c) {
                const float value = element(rows, b, g, i, c);
                if (i >= new_rows(problem, b)) {
                  ASSERT_TRUE(is_poison(value, options.poison)) << value;
                  continue;
                }
                const auto expected =
                    static_cast<float>(whole.at(b, g, cached_rows(problem, b) + i, c));
                ASSERT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected)));
              }
      };
      probe(
          problem, inputs,
          [&](const attest_attention& p) {
            look(p.k_cache, inputs.k);
            look(p.v_cache, inputs.v);
            look_at_rows(p.k, inputs.k);
            look_at_rows(p.v, inputs.v);
            honest(p);
          },
          options);
      if (HasFailure()) FAIL() << print_case(problem);
    }
  }
}

TEST(DecodeCall, AppendedRowsAreReadBackAndAreNoChange) {
  for (std::uint64_t index = 0; index < 300; ++index) {
    const AttentionProblem problem = random_decode(index);
    const AttentionInputs inputs = make_inputs(problem);
    for (const CallOptions& options : both_ways()) {
      const Observation seen = probe(problem, inputs, honest, options);
      ASSERT_TRUE(seen.ok()) << seen.call.message << "\n" << print_case(problem);
      ASSERT_TRUE(seen.inputs_modified.empty()) << print_case(problem);
      ASSERT_TRUE(seen.writes_outside.empty()) << print_case(problem);
      const auto compare = [&](const SeenTensor& appended, const Dense<double>& whole) {
        std::size_t flat = 0;
        for (std::int64_t b = 0; b < problem.batch; ++b)
          for (std::int64_t g = 0; g < problem.num_kv_heads; ++g)
            for (std::int64_t i = 0; i < problem.q_len; ++i)
              for (std::int64_t c = 0; c < whole.shape[3]; ++c, ++flat) {
                const double expected =
                    i < new_rows(problem, b) ? whole.at(b, g, cached_rows(problem, b) + i, c) : 0;
                ASSERT_TRUE(appended.values.at(flat) == expected ||
                            (std::isnan(appended.values[flat]) && std::isnan(expected)));
              }
        ASSERT_EQ(appended.values.size(), flat);
      };
      compare(seen.appended_k, inputs.k);
      compare(seen.appended_v, inputs.v);
      if (HasFatalFailure()) FAIL() << print_case(problem);
    }
  }
}

TEST(DecodeCall, RowsThatWereNotAppendedAreReadAsJunk) {
  const AttentionProblem problem = problem_of("b=2 lq=2 lk=5 d=3");
  for (const CallOptions& options : both_ways()) {
    const Observation seen = probe(problem, make_inputs(problem), write_outputs, options);
    ASSERT_TRUE(seen.ok());
    ASSERT_EQ(seen.appended_k.values.size(), 12u);
    for (const SeenTensor* rows : {&seen.appended_k, &seen.appended_v})
      for (const double value : rows->values)
        EXPECT_TRUE(is_poison(static_cast<float>(value), options.poison));
  }
}

/// Something that a kernel does wrong beside its work, and what is to be seen of it.
struct Mistake {
  const char* what;
  const char* keys;
  std::function<void(const attest_attention&)> extra;
  std::vector<std::string> modified, outside;
};

std::int64_t page_of(const attest_attention& p, std::int64_t b, std::int64_t position) {
  return entry(p.block_table, b * p.block_table->shape[1] + position / p.k_cache->shape[2]);
}

/// A page that no entry of the table of these sequences names.
std::int64_t unused_page(const attest_attention& p) {
  for (std::int64_t page = 0; page < p.k_cache->shape[0]; ++page) {
    bool used = false;
    for (std::int64_t n = 0; n < p.block_table->shape[0] * p.block_table->shape[1]; ++n)
      used = used || entry(p.block_table, n) == page;
    if (!used) return page;
  }
  ADD_FAILURE() << "every page is used";
  return 0;
}

const std::vector<Mistake>& mistakes() {
  constexpr const char* kContiguous = "b=2 hq=2 lq=2 lk=5 d=3 cache_rows=7";
  constexpr const char* kStrided = "b=2 hq=2 lq=2 lk=5 d=3 cache_rows=7 layout=strided";
  constexpr const char* kRing = "b=2 lq=2 lk=9 d=3 cache=ring cache_rows=6 window=3,0";
  // Sequence 0 has 9 rows before the call, 10 after it; pages 0 and 1 are shared.
  constexpr const char* kPaged = "b=2 lk=10 d=3 cache=paged page_size=4 pages=shared cache_rows=16";
  using P = attest_attention;
  static const std::vector<Mistake> all{
      {"none", kContiguous, [](const P&) {}, {}, {}},
      {"none", kStrided, [](const P&) {}, {}, {}},
      {"none", kRing, [](const P&) {}, {}, {}},
      {"none", kPaged, [](const P&) {}, {}, {}},
      {"row behind the new ones",
       kContiguous,
       [](const P& p) { element(p.k_cache, 0, 0, 5, 0) = 1; },
       {"k_cache"},
       {}},
      {"row before them",
       kContiguous,
       [](const P& p) { element(p.v_cache, 1, 1, 2, 2) += 1; },
       {"v_cache"},
       {}},
      {"both caches",
       kStrided,
       [](const P& p) {
         element(p.k_cache, 0, 0, 6, 1) = 1;
         element(p.v_cache, 1, 0, 0, 1) += 1;
       },
       {"k_cache", "v_cache"},
       {}},
      {"between rows",
       kStrided,
       [](const P& p) { (&element(p.k_cache, 0, 0, 3, 0))[p.k_cache->shape[3]] = 1; },
       {},
       {"write, between the elements of k_cache"}},
      {"past the end",
       kContiguous,
       [](const P& p) { (&element(p.v_cache, 1, 1, 6, 2))[1] = 1; },
       {},
       {"write, 0 bytes past the end of v_cache"}},
      {"ring row that is still seen",
       kRing,
       [](const P& p) { element(p.k_cache, 0, 0, 0, 0) += 1; },
       {"k_cache"},
       {}},
      {"tail of a page",
       kPaged,
       [](const P& p) { element(p.k_cache, page_of(p, 1, 9), 0, 3, 0) = 1; },
       {"k_cache"},
       {}},
      {"shared page",
       kPaged,
       [](const P& p) { element(p.v_cache, page_of(p, 0, 0), 0, 1, 0) += 1; },
       {"v_cache"},
       {}},
      {"unused page",
       kPaged,
       [](const P& p) { element(p.k_cache, unused_page(p), 0, 0, 0) = 1; },
       {"k_cache"},
       {}},
      {"table",
       kPaged,
       [](const P& p) { static_cast<std::int32_t*>(p.block_table->data)[0] += 1; },
       {"block_table"},
       {}},
      {"entry of no page",
       kPaged,
       [](const P& p) { static_cast<std::int32_t*>(p.block_table->data)[3] = 0; },
       {"block_table"},
       {}},
      {"lengths",
       kContiguous,
       [](const P& p) { static_cast<std::int32_t*>(p.cache_len->data)[1] += 1; },
       {"cache_len"},
       {}},
      {"new rows", kContiguous, [](const P& p) { element(p.k, 0, 0, 1, 1) += 1; }, {"k"}, {}},
  };
  return all;
}

TEST(DecodeCall, WritesBesideTheNewRowsAreSeen) {
  for (const Mistake& mistake : mistakes()) {
    const AttentionProblem problem = problem_of(mistake.keys);
    // Low: what lies past the end is no guard page.
    for (const Poison poison : {Poison::nan, Poison::finite}) {
      const Observation seen = probe(problem, make_inputs(problem),
                                     [&](const attest_attention& p) {
                                       honest(p);
                                       mistake.extra(p);
                                     },
                                     {.flush = Flush::low, .poison = poison});
      EXPECT_TRUE(seen.ok()) << mistake.what;
      EXPECT_EQ(seen.inputs_modified, mistake.modified) << mistake.what << ' ' << mistake.keys;
      EXPECT_EQ(seen.writes_outside, mistake.outside) << mistake.what << ' ' << mistake.keys;
    }
  }
}

TEST(DecodeCall, ARefusalThatHasWrittenIsSeen) {
  AttentionProblem problem = problem_of("b=2 lq=2 lk=6 d=3 seqlens_k=6,3");
  const AttentionInputs inputs = make_inputs(problem);
  const auto refuse = [](const attest_attention&) { throw Invalid("no room"); };
  const auto refuse_late = [](const attest_attention& p) {
    // The rows of the second sequence, which would fit.
    element(p.k_cache, 1, 0, 1, 0) = 1;
    throw Invalid("no room");
  };
  for (const std::int64_t rows : {0, 5}) {  // with room, and without
    problem.cache_rows = rows;
    const Observation clean = probe(problem, inputs, refuse);
    EXPECT_EQ(clean.call.status, ATTEST_INVALID);
    EXPECT_TRUE(clean.inputs_modified.empty());
    EXPECT_TRUE(clean.appended_k.values.empty());
    const Observation late = probe(problem, inputs, refuse_late);
    EXPECT_EQ(late.call.status, ATTEST_INVALID);
    EXPECT_EQ(late.inputs_modified, std::vector<std::string>{"k_cache"});
  }
  // One that accepts what does not fit has no rows to append: all that it writes is a change.
  const Observation accepted = probe(problem, inputs, [](const attest_attention& p) {
    element(p.v_cache, 1, 0, 1, 0) = 1;
    write_outputs(p);
  });
  EXPECT_TRUE(accepted.ok());
  EXPECT_EQ(accepted.inputs_modified, std::vector<std::string>{"v_cache"});
}

TEST(DecodeCall, ValuesThatAreNotWholeSequencesAreTheSuitesFault) {
  const AttentionProblem problem = problem_of("lq=2 lk=5 d=3");
  AttentionProblem longer = problem;
  longer.kv_len = 6;
  static const attest_plugin table = detail::table<ProbeKernel>("probe", "1", kDeclaration);
  OpenError error;
  const auto subject = open_in_process(&table, error);
  ProbeKernel::body = honest;
  const Observation seen = observe(*subject, longer, make_inputs(problem));
  ASSERT_TRUE(seen.call.accident);
  EXPECT_EQ(seen.call.accident->verdict, Verdict::error);
  EXPECT_EQ(seen.call.accident->sentence, "the values of k or v are not those of whole sequences");
}

}  // namespace
}  // namespace attest
