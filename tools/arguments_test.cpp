// SPDX-License-Identifier: Apache-2.0
#include "tools/arguments.hpp"

#include <gtest/gtest.h>

namespace attest {
namespace {

TEST(ReadDuration, TakesSecondsMinutesAndHours) {
  EXPECT_EQ(read_duration("--t", "60"), 60);
  EXPECT_EQ(read_duration("--t", "1.5s"), 1.5);
  EXPECT_EQ(read_duration("--t", "10m"), 600);
  EXPECT_EQ(read_duration("--t", "2h"), 7200);
  for (const char* bad : {"", "s", "0", "-1", "1e", "1 s", "1d", "nan", "inf", "0x10"})
    EXPECT_THROW(read_duration("--t", bad), CommandError) << bad;
}

TEST(ReadShard, WantsAPartOfTheWhole) {
  EXPECT_EQ(read_shard("2/3").index, 2);
  EXPECT_EQ(read_shard("2/3").count, 3);
  for (const char* bad :
       {"", "/", "0/1", "2/1", "1/", "/1", "1/1/1", "+1/2", " 1/2", "1/99999999999"})
    EXPECT_THROW(read_shard(bad), CommandError) << bad;
}

TEST(ReadUnsigned, StaysWithinItsBounds) {
  Arguments arguments;
  EXPECT_EQ(read_unsigned(arguments, "--n", 7, 1, 9), 7u);
  arguments.options["--n"] = "9";
  EXPECT_EQ(read_unsigned(arguments, "--n", 7, 1, 9), 9u);
  for (const char* bad : {"0", "10", "-1", "1.0", "one", "", "99999999999999999999"}) {
    arguments.options["--n"] = bad;
    EXPECT_THROW(read_unsigned(arguments, "--n", 7, 1, 9), CommandError) << bad;
  }
}

TEST(Suggestion, IsForSmallSlipsAlone) {
  EXPECT_EQ(suggestion("chekc", {"check", "list"}), "; did you mean 'check'?");
  EXPECT_EQ(suggestion("frobnicate", {"check", "list"}), "");
}

}  // namespace
}  // namespace attest
