// SPDX-License-Identifier: Apache-2.0
// Places in caches against a table of slots that is filled row by row, as the calls before would
// have done.
#include "harness/cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "attest/case_line.hpp"
#include "harness/dice.hpp"

namespace attest {
namespace {

AttentionProblem problem(const std::string& keys) {
  const auto parsed = parse_case("attention.decode " + keys);
  EXPECT_TRUE(parsed) << keys << ": " << parsed.error();
  return parsed ? *parsed : AttentionProblem{};
}

/// Legal or, where the new rows do not fit, illegal for that alone.
AttentionProblem random_problem(std::uint64_t seed) {
  Dice dice(seed, "cache", 0);
  AttentionProblem p;
  p.operation = Operation::decode;
  p.seed = seed;
  p.batch = dice.below(4);
  p.num_heads = p.num_kv_heads = dice.between(1, 2);
  p.head_dim = dice.between(1, 3);
  p.v_head_dim = dice.between(1, 3);
  p.kv_len = dice.below(20);
  p.q_len = dice.between(0, std::min<std::int64_t>(p.kv_len, 5));
  if (dice.one_in(2))
    for (std::int64_t b = 0; b < p.batch; ++b)
      p.seqlens_k.push_back(dice.between(p.q_len, p.kv_len));
  if (dice.one_in(2))
    for (std::int64_t b = 0; b < p.batch; ++b) p.seqlens_q.push_back(dice.between(0, p.q_len));
  p.cache = dice.pick({CacheKind::contiguous, CacheKind::ring, CacheKind::paged});
  if (dice.one_in(2)) p.cache_rows = p.kv_len + dice.between(0, 9);
  if (dice.one_in(2)) p.cache_rows = dice.between(1, p.kv_len + 1);
  if (p.cache == CacheKind::ring && dice.one_in(2)) p.window_left = dice.below(8);
  if (p.cache != CacheKind::paged) return p;
  p.page_size = dice.between(1, 7);
  p.pages = dice.pick({PageOrder::in_order, PageOrder::shuffled, PageOrder::shared});
  return p;
}

std::int64_t length_before(const AttentionProblem& p, std::int64_t b) {
  const auto n = static_cast<std::size_t>(b);
  const std::int64_t rows = p.seqlens_q.empty() ? p.q_len : p.seqlens_q[n];
  return (p.seqlens_k.empty() ? p.kv_len : p.seqlens_k[n]) - rows;
}
std::int64_t rows_of_call(const AttentionProblem& p, std::int64_t b) {
  return p.seqlens_q.empty() ? p.q_len : p.seqlens_q[static_cast<std::size_t>(b)];
}
std::int64_t capacity(const AttentionProblem& p) {
  const std::int64_t rows = p.cache_rows > 0 ? p.cache_rows : std::max<std::int64_t>(p.kv_len, 1);
  if (p.cache != CacheKind::paged) return rows;
  std::int64_t whole_pages = 0;
  while (whole_pages < rows) whole_pages += p.page_size;
  return whole_pages;
}

/// The position in each slot of sequence b after `count` rows of it were written, one by one; rows
/// behind the end of a cache that is no ring are lost.
std::map<std::int64_t, std::int64_t> written(const AttentionProblem& p, std::int64_t count) {
  std::map<std::int64_t, std::int64_t> slots;
  std::int64_t next = 0;
  for (std::int64_t position = 0; position < count; ++position, ++next) {
    if (next == capacity(p) && p.cache == CacheKind::ring) next = 0;
    if (next < capacity(p)) slots[next] = position;
  }
  return slots;
}

std::set<std::int64_t> positions_in(const std::map<std::int64_t, std::int64_t>& slots) {
  std::set<std::int64_t> positions;
  for (const auto& [slot, position] : slots) positions.insert(position);
  return positions;
}

/// Whether each new row finds what it sees once all are written.
bool all_seen_is_held(const AttentionProblem& p, std::int64_t b) {
  const std::int64_t before = length_before(p, b), rows = rows_of_call(p, b);
  const auto held = positions_in(written(p, before + rows));
  for (std::int64_t query = before; query < before + rows; ++query)
    for (std::int64_t key = 0; key < before + rows; ++key) {
      const bool seen = p.window_left < 0 || query - key <= p.window_left;
      if (seen && !held.contains(key)) return false;
    }
  return true;
}

TEST(HeldPositions, AreThoseThatWereNotOverwritten) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      const auto expected = positions_in(written(p, length_before(p, b)));
      const Positions held = held_positions(p, b);
      std::set<std::int64_t> actual;
      for (std::int64_t at = held.first; at < held.end; ++at) actual.insert(at);
      ASSERT_EQ(actual, expected) << print_case(p) << " sequence " << b;
    }
  }
}

TEST(AppendsFit, WhereNothingSeenIsOverwritten) {
  int fits = 0, does_not = 0, wraps = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      if (rows_of_call(p, b) == 0) continue;  // nothing is written, and nothing sees
      const bool expected = all_seen_is_held(p, b);
      ASSERT_EQ(appends_fit(p, b), expected) << print_case(p) << " sequence " << b;
      ++(expected ? fits : does_not);
      wraps += expected && length_before(p, b) + rows_of_call(p, b) > capacity(p);
    }
  }
  EXPECT_GT(fits, 1000);
  EXPECT_GT(does_not, 1000);
  EXPECT_GT(wraps, 100);
}

TEST(AppendsFit, AtTheLastRow) {
  const auto fits = [](const std::string& keys, std::int64_t rows) {
    AttentionProblem p = problem(keys);
    p.cache_rows = rows;
    return appends_fit(p, 0);
  };
  EXPECT_TRUE(fits("lq=2 lk=6", 6));
  EXPECT_FALSE(fits("lq=2 lk=6", 5));
  EXPECT_TRUE(fits("lq=2 lk=6 cache=paged page_size=4", 5));  // two pages have eight rows
  EXPECT_FALSE(fits("lq=2 lk=6 cache=paged page_size=4", 4));
  EXPECT_FALSE(fits("lq=2 lk=6 cache=ring", 5));
  EXPECT_TRUE(fits("lq=2 lk=6 cache=ring window=3,0", 5));
  EXPECT_FALSE(fits("lq=2 lk=6 cache=ring window=3,0", 4));
  // A list of lengths: each sequence for itself.
  AttentionProblem two = problem("b=2 lq=2 lk=6 seqlens_k=6,4");
  two.cache_rows = 4;
  EXPECT_FALSE(appends_fit(two, 0));
  EXPECT_TRUE(appends_fit(two, 1));
}

/// The rows that place_of() names, by what the definition of each cache says.
TEST(PlaceOf, IsWhatTheKindOfCacheSays) {
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const CachePlan plan = plan_cache(p);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      if (!appends_fit(p, b)) continue;
      const auto slots = written(p, length_before(p, b) + rows_of_call(p, b));
      for (const auto& [slot, position] : slots) {
        const CachePlace place = place_of(p, plan, b, position);
        ASSERT_GE(place.entry, 0) << print_case(p);
        ASSERT_LT(place.entry, plan.entries) << print_case(p);
        if (p.cache == CacheKind::paged) {
          ASSERT_EQ(place.row, slot % p.page_size) << print_case(p);
          ASSERT_EQ(place.entry, plan.table[static_cast<std::size_t>(b * plan.pages_per_sequence +
                                                                     slot / p.page_size)]);
        } else {
          ASSERT_EQ(place.entry, b) << print_case(p);
          ASSERT_EQ(place.row, slot) << print_case(p);
        }
      }
    }
  }
}

TEST(PlanCache, HasAnEntryOfTheCapacityForEachSequence) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    if (p.cache == CacheKind::paged) continue;
    const CachePlan plan = plan_cache(p);
    ASSERT_EQ(plan.entries, p.batch);
    ASSERT_EQ(plan.rows, capacity(p));
    ASSERT_TRUE(plan.table.empty());
  }
}

/// Sequences that have a row on each page, and of each how many rows.
std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> owners(const AttentionProblem& p,
                                                                    const CachePlan& plan) {
  std::map<std::int64_t, std::map<std::int64_t, std::int64_t>> owners;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t n = 0; n < plan.pages_per_sequence; ++n) {
      const std::int64_t page =
          plan.table[static_cast<std::size_t>(b * plan.pages_per_sequence + n)];
      if (page == CachePlan::kNoPage) continue;
      EXPECT_FALSE(owners[page].contains(b)) << "twice in one sequence: " << print_case(p);
      owners[page][b] = n;
    }
  return owners;
}

TEST(PlanCache, PagesBelongToOneSequenceOrAreFullAndShared) {
  int with_shared = 0, out_of_order = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    if (p.cache != CacheKind::paged) continue;
    const CachePlan plan = plan_cache(p);
    ASSERT_EQ(plan.rows, p.page_size);
    ASSERT_EQ(plan.pages_per_sequence * p.page_size, capacity(p)) << print_case(p);
    ASSERT_EQ(std::ssize(plan.table), p.batch * plan.pages_per_sequence);
    const auto by_page = owners(p, plan);
    for (const auto& [page, sequences] : by_page) {
      ASSERT_GE(page, 0) << print_case(p);
      ASSERT_LT(page, plan.entries) << print_case(p);
      if (sequences.size() == 1) continue;
      ++with_shared;
      ASSERT_EQ(p.pages, PageOrder::shared) << print_case(p);
      ASSERT_EQ(std::ssize(sequences), p.batch) << print_case(p);
      for (const auto& [b, index] : sequences) {
        ASSERT_EQ(index, sequences.begin()->second) << print_case(p);
        // Nothing of it is written by the call.
        ASSERT_LE((index + 1) * p.page_size, length_before(p, b)) << print_case(p);
      }
    }
    // A page for each row of a sequence, and for nothing else.
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t n = 0; n < plan.pages_per_sequence; ++n) {
        const bool has_row = n * p.page_size < length_before(p, b) + rows_of_call(p, b);
        const std::int64_t page =
            plan.table[static_cast<std::size_t>(b * plan.pages_per_sequence + n)];
        ASSERT_EQ(page != CachePlan::kNoPage, has_row) << print_case(p);
        if (has_row && p.pages == PageOrder::in_order) {
          ASSERT_EQ(page, b * plan.pages_per_sequence + n) << print_case(p);
        }
        out_of_order += has_row && page != b * plan.pages_per_sequence + n;
      }
    if (p.pages != PageOrder::in_order) {
      ASSERT_GT(plan.entries, std::ssize(by_page)) << "no unused page: " << print_case(p);
    }
    // All that could be shared is, and the same problem has the same pages.
    if (p.pages == PageOrder::shared && p.batch > 1) {
      const auto shared = std::count_if(by_page.begin(), by_page.end(),
                                        [](const auto& entry) { return entry.second.size() > 1; });
      ASSERT_EQ(shared, std::min(shared_pages(p), plan.pages_per_sequence)) << print_case(p);
    }
    ASSERT_EQ(plan_cache(p).table, plan.table);
  }
  EXPECT_GT(with_shared, 300);
  EXPECT_GT(out_of_order, 1000);
}

TEST(PlanCache, TheSeedDecidesOnTheOrderOfPages) {
  AttentionProblem p = problem("b=2 lk=40 cache=paged page_size=4 pages=shuffled");
  std::set<std::vector<std::int64_t>> orders;
  for (p.seed = 0; p.seed < 20; ++p.seed) orders.insert(plan_cache(p).table);
  EXPECT_GT(orders.size(), 15u);
}

TEST(ForEachAppend, NamesEveryNewRowOnceInOrderWhereAllFit) {
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const CachePlan plan = plan_cache(p);
    std::vector<std::pair<std::int64_t, std::int64_t>> expected, actual;
    bool all_fit = true;
    for (std::int64_t b = 0; b < p.batch; ++b) {
      all_fit = all_fit && appends_fit(p, b);
      for (std::int64_t i = 0; i < rows_of_call(p, b); ++i)
        expected.emplace_back(b, length_before(p, b) + i);
    }
    if (!all_fit) {
      expected.clear();
      ++refused;
    }
    std::set<std::pair<std::int64_t, std::int64_t>> places;
    for_each_append(p, plan, [&](std::int64_t b, std::int64_t position, CachePlace place) {
      actual.emplace_back(b, position);
      EXPECT_TRUE(places.emplace(place.entry, place.row).second) << print_case(p);
    });
    ASSERT_EQ(actual, expected) << print_case(p);
  }
  EXPECT_GT(refused, 500);
}

/// Whole sequences in which every value names its place.
Dense<double> named_rows(const AttentionProblem& p, std::int64_t channels) {
  Dense<double> whole({p.batch, p.num_kv_heads, p.kv_len, channels});
  for (std::size_t n = 0; n < whole.values.size(); ++n)
    whole.values[n] = static_cast<double>(n + 1);
  return whole;
}

TEST(RowsOf, TheCallAndTheCacheMakeUpWholeSequences) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const AttentionProblem p = random_problem(seed);
    const CachePlan plan = plan_cache(p);
    Dense<double> whole = named_rows(p, p.v_head_dim);
    // What sequences share on pages is the same in all.
    for (std::int64_t b = 1; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.num_kv_heads; ++h)
        for (std::int64_t j = 0; j < std::min(shared_pages(p) * p.page_size, p.kv_len); ++j)
          for (std::int64_t c = 0; c < p.v_head_dim; ++c)
            whole.at(b, h, j, c) = whole.at(0, h, j, c);
    const Dense<double> rows = new_rows_of(p, whole), cache = cached_rows_of(p, plan, whole);
    ASSERT_EQ(rows.shape,
              (std::array<std::int64_t, 4>{p.batch, p.num_kv_heads, p.q_len, p.v_head_dim}));
    ASSERT_EQ(cache.shape,
              (std::array<std::int64_t, 4>{plan.entries, p.num_kv_heads, plan.rows, p.v_head_dim}));
    Dense<double> expected(cache.shape);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t h = 0; h < p.num_kv_heads; ++h)
        for (std::int64_t c = 0; c < p.v_head_dim; ++c) {
          for (std::int64_t i = 0; i < p.q_len; ++i)
            ASSERT_EQ(rows.at(b, h, i, c),
                      i < rows_of_call(p, b) ? whole.at(b, h, length_before(p, b) + i, c) : 0)
                << print_case(p);
          for (const auto& [slot, position] : written(p, length_before(p, b))) {
            const bool paged = p.cache == CacheKind::paged;
            const std::int64_t entry = paged
                                           ? plan.table[static_cast<std::size_t>(
                                                 b * plan.pages_per_sequence + slot / p.page_size)]
                                           : b;
            expected.at(entry, h, paged ? slot % p.page_size : slot, c) =
                whole.at(b, h, position, c);
          }
        }
    }
    ASSERT_EQ(cache.values, expected.values) << print_case(p);
  }
}

}  // namespace
}  // namespace attest
