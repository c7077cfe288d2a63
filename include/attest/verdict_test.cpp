// SPDX-License-Identifier: Apache-2.0
#include "attest/verdict.hpp"

#include <gtest/gtest.h>

#include <set>

#include "attest/record.hpp"

namespace attest {
namespace {

TEST(Verdict, NamesAreStableStrings) {
  EXPECT_EQ(name(Verdict::out_of_memory), "out_of_memory");
  EXPECT_EQ(name(Verdict::error), "error");
  EXPECT_EQ(name(Reason::none), "none");
  EXPECT_EQ(name(Reason::out_of_bounds_write), "out_of_bounds_write");
  EXPECT_EQ(name(Reason::flaky), "flaky");
  EXPECT_EQ(name(SuiteVerdict::too_little_tested), "too_little_tested");
}

template <class E, class Parse>
void expect_closed_list(int count, Parse parse) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<E>(i);
    EXPECT_TRUE(names.insert(name(value)).second) << name(value);
    EXPECT_EQ(parse(name(value)), value);
  }
  EXPECT_EQ(name(static_cast<E>(count)), "?");
  EXPECT_EQ(parse("?"), std::nullopt);
  EXPECT_EQ(parse(""), std::nullopt);
  EXPECT_EQ(parse("Pass"), std::nullopt);
}

TEST(Verdict, EveryNameReadsBackAndNothingElseDoes) {
  expect_closed_list<Verdict>(9, parse_verdict);
  expect_closed_list<Reason>(16, parse_reason);
  expect_closed_list<SuiteVerdict>(4, parse_suite_verdict);
}

TEST(Verdict, FailuresAreTheFourThatAccuse) {
  for (Verdict verdict : {Verdict::fail, Verdict::crash, Verdict::hang, Verdict::out_of_memory})
    EXPECT_TRUE(is_failure(verdict)) << name(verdict);
  for (Verdict verdict :
       {Verdict::pass, Verdict::warn, Verdict::unsupported, Verdict::not_judged, Verdict::error})
    EXPECT_FALSE(is_failure(verdict)) << name(verdict);
}

TEST(Counts, OfReachesEachCounterOnce) {
  Counts counts;
  for (int i = 0; i < 9; ++i) counts.of(static_cast<Verdict>(i)) += std::int64_t{1} << i;
  const std::int64_t in_order[] = {counts.pass,        counts.warn,       counts.fail,
                                   counts.crash,       counts.hang,       counts.out_of_memory,
                                   counts.unsupported, counts.not_judged, counts.error};
  for (int i = 0; i < 9; ++i) EXPECT_EQ(in_order[i], std::int64_t{1} << i) << i;
  EXPECT_EQ(counts.total(), 511);
  EXPECT_EQ(counts.failures(), 4 + 8 + 16 + 32);
}

}  // namespace
}  // namespace attest
