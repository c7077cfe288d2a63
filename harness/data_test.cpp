// SPDX-License-Identifier: Apache-2.0
#include "harness/data.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/families.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

AttentionProblem problem(const std::string& text) {
  auto parsed = parse_case("attention.forward " + text);
  EXPECT_TRUE(parsed) << text << ": " << (parsed ? "" : parsed.error());
  return parsed ? *parsed : AttentionProblem{};
}

/// scale * q_i . k_j in double, without softcap and rotation.
double score(const AttentionProblem& p, const AttentionInputs& inputs, std::int64_t b,
             std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t g = h / (p.num_heads / p.num_kv_heads);
  double sum = 0;
  for (std::int64_t c = 0; c < p.head_dim; ++c)
    sum += inputs.q.at(b, h, i, c) * inputs.k.at(b, g, j, c);
  return effective_scale(p) * sum;
}

template <class Check>
void for_each_score(const AttentionProblem& p, Check check) {
  const AttentionInputs inputs = make_inputs(p);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i)
        for (std::int64_t j = 0; j < p.kv_len; ++j) check(i, j, score(p, inputs, b, h, i, j));
}

/// Shapes, scales and storage types in which a family must reach its scores.
std::vector<AttentionProblem> settings(Family family) {
  std::vector<AttentionProblem> all;
  for (const DType dtype : kAllDTypes)
    for (const std::int64_t head_dim : {1, 2, 7, 64, 128})
      for (const std::optional<double> scale :
           {std::optional<double>{}, std::optional<double>{0.01}, std::optional<double>{-0.5},
            std::optional<double>{3.0}}) {
        AttentionProblem p = problem("b=2 hq=4 hkv=2 lq=9 lk=40 seed=5");
        p.dtype = dtype;
        p.head_dim = p.v_head_dim = head_dim;
        p.scale = scale;
        p.data = family;
        all.push_back(p);
      }
  return all;
}

// The constants come from a separate writing of the mixing in Python, in exact integers.
TEST(Mix, IsTheDocumentedFunction) {
  EXPECT_EQ(mix(0, 0, 0, 0, 0, 0), 0xcbd37ad29b93b094u);
  EXPECT_EQ(mix(1, 2, 3, 4, 5, 6), 0xd4a993d7c071b4e5u);
  EXPECT_EQ(mix(~std::uint64_t{0}, 1, 0, std::uint64_t{1} << 63, 7, 9), 0x138455f47ebb7ca7u);
}

TEST(Data, GaussianValuesAreFunctionsOfSeedTensorAndCoordinates) {
  const AttentionProblem p = problem("dtype=f64 b=2 hq=3 lq=4 lk=4 d=5 seed=17");
  const AttentionInputs inputs = make_inputs(p);
  EXPECT_EQ(inputs.q.at(0, 0, 0, 0), 0x1.79ff17a03a9b2p-1);
  EXPECT_EQ(inputs.k.at(0, 0, 0, 0), -0x1.099b62c1d13eap+0);
  EXPECT_EQ(inputs.v.at(0, 0, 0, 0), -0x1.f1e0bfd08cf54p-1);
  EXPECT_EQ(inputs.q.at(1, 2, 3, 4), 0x1.4e5a5b716b25dp+1);
  EXPECT_EQ(inputs.k.at(1, 2, 3, 4), 0x1.ea0344ca024b3p-3);
  EXPECT_EQ(inputs.v.at(1, 2, 3, 4), -0x1.fc44e527acccap-1);
}

// What a case line means is frozen: these hashes change only where old replay lines may break.
std::uint64_t hash_of(const AttentionInputs& inputs) {
  std::uint64_t hash = 0;
  for (const auto* tensor :
       {&inputs.q, &inputs.k, &inputs.v, &inputs.bias, &inputs.slopes, &inputs.sink})
    for (const double value : tensor->values)
      hash = absorb(hash, std::bit_cast<std::uint64_t>(value));
  for (const auto* tensor : {&inputs.mask, &inputs.blocks, &inputs.keep})
    for (const std::uint8_t value : tensor->values) hash = absorb(hash, value);
  return hash;
}

TEST(Data, GoldenHashes) {
  const char* everything =
      "b=2 hq=4 hkv=2 lq=9 lk=11 d=6 dv=11 bias=t5 bias_axes=bhqk mask=random blocks=4,4 "
      "alibi=absolute slopes=per_batch sink=mixed_inf dropout=0.25 base=causal seed=3";
  EXPECT_EQ(hash_of(make_inputs(problem(everything))), 12631527915952343321u);
  std::uint64_t families = 0;
  for (std::size_t n = 0; n < static_cast<std::size_t>(Family::list); ++n) {
    // What the families of before mean stays: only those from here on are newer.
    if (n == 22) {
      EXPECT_EQ(families, 12376626213704451566u);
    }
    for (const DType dtype : kAllDTypes) {
      AttentionProblem p = problem("b=2 hq=4 hkv=2 lq=5 lk=9 d=3 dv=9 seed=11");
      p.dtype = dtype;
      p.data = static_cast<Family>(n);
      families = absorb(families, hash_of(make_inputs(p)));
    }
  }
  EXPECT_EQ(families, 16988359755251273693u);
}

TEST(Data, GaussianHasMeanZeroAndVarianceOne) {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int kCount = 400'000;
  for (int n = 0; n < kCount; ++n) {
    const double x = gaussian(absorb(7, static_cast<std::uint64_t>(n)));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  // Five standard errors: 1/sqrt(n), sqrt(2/n), sqrt(96/n).
  EXPECT_NEAR(sum / kCount, 0, 0.008);
  EXPECT_NEAR(squares / kCount, 1, 0.012);
  EXPECT_NEAR(fourth / kCount, 3 - 0.15, 0.08);
  EXPECT_LT(std::fabs(gaussian(~std::uint64_t{0})), 4.9);
}

TEST(Data, UniformStaysBelowOneInEveryStorageType) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(uniform(0, dtype), -1);
    const double most = uniform(~std::uint64_t{0}, dtype);
    EXPECT_EQ(most, 1 - limits(dtype).unit_roundoff);
    EXPECT_EQ(round_to(dtype, most), most);
    for (std::uint64_t n = 0; n < 1000; ++n) {
      const double value = uniform(absorb(1, n), dtype);
      EXPECT_EQ(round_to(dtype, value), value);
    }
  }
}

TEST(Data, EveryValueIsOneThatTheStorageTypeHolds) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(Family::list); ++n)
    for (const DType dtype : kAllDTypes) {
      AttentionProblem p =
          problem("b=2 hq=4 hkv=2 lq=7 lk=9 d=3 dv=9 bias=lowest alibi=absolute sink=normal");
      p.dtype = dtype;
      p.data = static_cast<Family>(n);
      const AttentionInputs inputs = make_inputs(p);
      for (const auto* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.bias})
        for (const double value : tensor->values) {
          EXPECT_EQ(round_to(dtype, value), value);
          EXPECT_TRUE(std::isfinite(value)) << enum_name(p.data) << " " << name(dtype);
        }
      const DType statistic = dtype == DType::f64 ? DType::f64 : DType::f32;
      for (const auto* tensor : {&inputs.slopes, &inputs.sink})
        for (const double value : tensor->values) EXPECT_EQ(round_to(statistic, value), value);
    }
}

TEST(Data, DroppingAKeyLeavesTheOthersAlone) {
  for (std::size_t n = 0; n < static_cast<std::size_t>(Family::list); ++n) {
    AttentionProblem p =
        problem("hq=4 hkv=2 lq=6 lk=9 d=3 dv=9 mask=random bias=normal dropout=0.5 seed=4");
    p.data = static_cast<Family>(n);
    const AttentionInputs full = make_inputs(p);
    p.kv_len = 8;
    const AttentionInputs less = make_inputs(p);
    // A query of these looks for one of the keys that there are.
    if (p.data != Family::needle && p.data != Family::addressed) {
      EXPECT_EQ(full.q.values, less.q.values) << enum_name(p.data);
    }
    for (std::int64_t j = 0; j < 8; ++j) {
      for (std::int64_t c = 0; c < 9; ++c)
        EXPECT_EQ(full.v.at(0, 1, j, c), less.v.at(0, 1, j, c)) << enum_name(p.data);
      if (p.data == Family::needle) continue;
      for (std::int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(full.k.at(0, 1, j, c), less.k.at(0, 1, j, c)) << enum_name(p.data);
      for (std::int64_t i = 0; i < 6; ++i) {
        EXPECT_EQ(full.mask.at(0, 3, i, j), less.mask.at(0, 3, i, j));
        EXPECT_EQ(full.bias.at(0, 3, i, j), less.bias.at(0, 3, i, j));
        EXPECT_EQ(full.keep.at(0, 3, i, j), less.keep.at(0, 3, i, j));
      }
    }
  }
}

TEST(Data, AConsistentChoiceMovesOnlyFromTheBucketThatDisappears) {
  std::set<std::int64_t> seen;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    for (std::int64_t count = 2; count < 40; ++count) {
      const std::int64_t more = consistent_choice(absorb(3, key), count);
      const std::int64_t less = consistent_choice(absorb(3, key), count - 1);
      ASSERT_LT(more, count);
      ASSERT_TRUE(more == less || more == count - 1);
    }
    seen.insert(consistent_choice(absorb(3, key), 39));
  }
  EXPECT_EQ(seen.size(), 39u);
  EXPECT_EQ(consistent_choice(5, 0), 0);
}

TEST(Families, LowAndHighScoresLieNear120) {
  for (const Family family : {Family::all_low, Family::all_high})
    for (const AttentionProblem& p : settings(family))
      for_each_score(p, [&](auto, auto, double s) {
        EXPECT_NEAR(s, family == Family::all_low ? -120 : 120, 12) << print_case(p);
      });
}

TEST(Families, SaturatedScoresLieAround40EitherWay) {
  for (const AttentionProblem& p : settings(Family::saturated)) {
    int high = 0, low = 0;
    for_each_score(p, [&](auto, auto, double s) {
      EXPECT_GT(std::fabs(s), 10) << print_case(p);
      EXPECT_LT(std::fabs(s), 70) << print_case(p);
      ++(s > 0 ? high : low);
    });
    EXPECT_GT(high, 100);
    EXPECT_GT(low, 100);
  }
}

TEST(Families, RisingAndFallingScoresMoveTheMaximumAtEveryBlock) {
  for (const Family family : {Family::rising, Family::falling})
    for (const AttentionProblem& p : settings(family)) {
      std::vector<double> scores(40);
      for_each_score(p, [&](std::int64_t, std::int64_t j, double s) {
        scores[static_cast<std::size_t>(j)] = family == Family::rising ? s : -s;
        if (j < 16) return;
        EXPECT_GT(scores[static_cast<std::size_t>(j)], scores[static_cast<std::size_t>(j - 16)] + 4)
            << print_case(p);
      });
    }
}

TEST(Families, EqualScoresAreEqual) {
  for (const AttentionProblem& p : settings(Family::equal_scores)) {
    double first = 0;
    for_each_score(p, [&](auto, std::int64_t j, double s) {
      if (j == 0) first = s;
      EXPECT_EQ(s, first) << print_case(p);
    });
  }
}

TEST(Families, ANeedleCarriesNearlyEveryRow) {
  for (const AttentionProblem& p : settings(Family::needle)) {
    std::vector<double> row;
    std::int64_t rows = 0, carried = 0;
    for_each_score(p, [&](auto, std::int64_t j, double s) {
      row.push_back(s);
      if (j + 1 < p.kv_len) return;
      std::sort(row.begin(), row.end());
      ++rows;
      carried += row[row.size() - 1] > row[row.size() - 2] + 8;
      row.clear();
    });
    EXPECT_EQ(carried, rows) << print_case(p);
  }
}

TEST(Families, TheFirstKeyOfASequenceIsASink) {
  for (AttentionProblem p : settings(Family::sink_keys)) {
    p.left_pad_k = {0, 3};
    for (const std::int64_t b : {0, 1}) {
      const AttentionInputs inputs = make_inputs(p);
      const std::int64_t sink = b == 0 ? 0 : 3;
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        if (j != sink) {
          EXPECT_GT(score(p, inputs, b, 3, 2, sink), score(p, inputs, b, 3, 2, j) + 4)
              << print_case(p);
        }
    }
  }
  const AttentionProblem packed =
      problem("lk=9 d=4 data=sink_keys cu_seqlens_q=0,1,1 cu_seqlens_k=0,5,9");
  const AttentionInputs inputs = make_inputs(packed);
  for (const std::int64_t j : {1, 4, 6, 8})
    EXPECT_GT(score(packed, inputs, 0, 0, 0, 5), score(packed, inputs, 0, 0, 0, j) + 4);
}

// With a digit for each of 2^n keys the weights are (1 + e^-3.2)^-n for the needle and e^-3.2 times
// that for each key that differs in one digit.
TEST(Families, AnAddressedKeyWeighsOneHalfAmong131072) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    const AttentionProblem p =
        problem(std::string("lq=8 lk=131072 d=17 dv=1 data=addressed dtype=") + dtype);
    const AttentionInputs inputs = make_inputs(p);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      double largest = -1e300, sum = 0;
      std::int64_t needle = -1;
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        if (const double s = score(p, inputs, 0, 0, i, j); s > largest) {
          largest = s;
          needle = j;
        }
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        sum += std::exp(score(p, inputs, 0, 0, i, j) - largest);
      EXPECT_NEAR(1 / sum, std::pow(1 + std::exp(-3.2), -17), 0.02);
      if (i == 0) {
        EXPECT_EQ(needle, 131071);
      }
      if (i == 1) {
        EXPECT_EQ(needle, 0);
      }
      if (i == 2) {
        EXPECT_TRUE((needle + needle % 2) % 16 == 0) << needle;
      }
    }
  }
}

TEST(Families, AQueryAddressesTheFirstHiddenKey) {
  const AttentionProblem p = problem("lq=8 lk=64 d=6 data=addressed seqlens_k=40");
  const AttentionInputs inputs = make_inputs(p);
  const auto needle = [&](std::int64_t i) {
    std::int64_t best = 0;
    for (std::int64_t j = 0; j < 64; ++j)
      if (score(p, inputs, 0, 0, i, j) > score(p, inputs, 0, 0, i, best)) best = j;
    return best;
  };
  EXPECT_EQ(needle(0), 39);
  EXPECT_EQ(needle(4), 40);
}

TEST(Families, HugeProductsOverflowF16WithModerateScores) {
  for (const DType dtype : kAllDTypes)
    for (const std::optional<double> scale :
         {std::optional<double>{}, std::optional<double>{0x1p-11}}) {
      AttentionProblem p = problem("hq=2 lq=4 lk=9 d=8 data=huge");
      p.dtype = dtype;
      p.scale = scale;
      const AttentionInputs inputs = make_inputs(p);
      for (std::int64_t i = 0; i < 4; ++i)
        for (std::int64_t j = 0; j < 9; ++j) {
          double largest_partial = 0, sum = 0;
          for (std::int64_t c = 0; c < 8; ++c) {
            sum += inputs.q.at(0, 1, i, c) * inputs.k.at(0, 1, j, c);
            largest_partial = std::max(largest_partial, std::fabs(sum));
          }
          EXPECT_GT(largest_partial, 65504);
          EXPECT_TRUE(!scale || std::fabs(sum) > 65504);
          EXPECT_LT(std::fabs(score(p, inputs, 0, 1, i, j)), 140);
        }
      double largest_v = 0;
      for (const double value : inputs.v.values) largest_v = std::max(largest_v, std::fabs(value));
      EXPECT_GT(largest_v, dtype == DType::f16 ? 1000 : 1e29);
    }
}

TEST(Families, ValuesOfVAreWhatTheFamilySays) {
  const auto v_of = [](const std::string& text) { return make_inputs(problem(text)).v; };
  const auto identity = v_of("lk=4 dv=6 d=2 data=identity_v");
  const auto one_hot = v_of("lk=7 dv=3 d=2 data=one_hot_v");
  const auto alternating = v_of("lk=7 dv=3 d=2 data=alternating");
  for (std::int64_t j = 0; j < 7; ++j)
    for (std::int64_t c = 0; c < 3; ++c) {
      EXPECT_TRUE(j >= 4 || identity.at(0, 0, j, c) == (j == c ? 1 : 0));
      EXPECT_EQ(one_hot.at(0, 0, j, c), j % 3 == c ? 1 : 0);
      EXPECT_EQ(alternating.at(0, 0, j, c), j % 2 == 0 ? 1 : -1);
    }
  for (const double value : v_of("lk=7 dv=3 d=2 data=constant_v").values) EXPECT_EQ(value, 1);
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    int nonzero = 0;
    for (const double value :
         v_of(std::string("lk=7 dv=3 d=2 data=subnormal dtype=") + dtype).values) {
      EXPECT_LT(std::fabs(value), limits(*parse_dtype(dtype)).min_normal);
      nonzero += value != 0;
    }
    EXPECT_GT(nonzero, 15);
  }
  int negative = 0;
  for (const double value : v_of("lk=7 dv=3 d=2 data=signed_zeros").values) {
    EXPECT_EQ(value, 0);
    negative += std::signbit(value);
  }
  EXPECT_GT(negative, 0);
  EXPECT_LT(negative, 21);
}

TEST(Families, LowRankKeysAreMultiplesOfOneAnother) {
  for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
    const auto p = problem(std::string("lk=20 d=5 data=low_rank dtype=") + dtype);
    const auto k = make_inputs(p).k;
    for (std::int64_t j = 1; j < 20; ++j)
      for (std::int64_t c = 1; c < 5; ++c)
        EXPECT_EQ(k.at(0, 0, j, c) * k.at(0, 0, 0, 0), k.at(0, 0, j, 0) * k.at(0, 0, 0, c));
  }
}

TEST(Families, RepeatedKeysStandEightTimesEachApart) {
  const auto p = problem("lk=128 d=3 data=repeated_keys");
  const auto k = make_inputs(p).k;
  std::map<double, std::vector<std::int64_t>> places;
  for (std::int64_t j = 0; j < 128; ++j) places[k.at(0, 0, j, 1)].push_back(j);
  EXPECT_EQ(places.size(), 16u);
  for (const auto& [value, at] : places) {
    ASSERT_EQ(at.size(), 8u);
    for (std::size_t n = 1; n < 8; ++n) EXPECT_EQ(at[n] - at[n - 1], 8);
  }
}

TEST(Data, BroadcastLayoutRepeatsKAndVOverTheBatch) {
  for (const char* family : {"gaussian", "needle", "low_rank"}) {
    const auto inputs =
        make_inputs(problem(std::string("b=3 hq=2 lq=3 lk=4 d=2 layout=broadcast data=") + family));
    for (std::int64_t g = 0; g < 2; ++g)
      for (std::int64_t j = 0; j < 4; ++j)
        for (std::int64_t c = 0; c < 2; ++c) {
          EXPECT_EQ(inputs.k.at(2, g, j, c), inputs.k.at(0, g, j, c));
          EXPECT_EQ(inputs.v.at(1, g, j, c), inputs.v.at(0, g, j, c));
        }
    EXPECT_NE(inputs.q.at(0, 0, 0, 0), inputs.q.at(1, 0, 0, 0));
  }
}

TEST(Data, SequencesHaveTheSameRowsOnPagesThatTheyShare) {
  // Ten rows before the call in the first, seven in the second: three pages of two are full in
  // both.
  const auto shared = *parse_case(
      "attention.decode b=2 hq=2 lk=11 d=3 seqlens_k=11,8 cache=paged page_size=2 pages=shared");
  AttentionProblem apart = shared;
  apart.pages = PageOrder::shuffled;
  const AttentionInputs inputs = make_inputs(shared), own = make_inputs(apart);
  EXPECT_EQ(inputs.q.values, own.q.values);
  for (std::int64_t g = 0; g < 2; ++g)
    for (std::int64_t j = 0; j < 11; ++j)
      for (std::int64_t c = 0; c < 3; ++c)
        for (const auto tensor : {&AttentionInputs::k, &AttentionInputs::v}) {
          EXPECT_EQ((inputs.*tensor).at(0, g, j, c), (own.*tensor).at(0, g, j, c));
          EXPECT_EQ((inputs.*tensor).at(1, g, j, c), (own.*tensor).at(j < 6 ? 0 : 1, g, j, c)) << j;
          EXPECT_NE((own.*tensor).at(0, g, j, c), (own.*tensor).at(1, g, j, c));
        }
}

TEST(Data, LiteralValuesAreTakenInLogicalOrder) {
  const auto inputs = make_inputs(problem(
      "hq=2 lq=1 lk=2 d=1 data=list q=1,2 k=3,4,5,6 v=7,8,9,10 mask=list mask_axes=qk "
      "mask_values=0,1 bias=list bias_axes=hk bias_values=1,-inf,3,4 sink=list sink_values=-inf,2 "
      "alibi=signed slopes=list slope_values=0.5,2"));
  EXPECT_EQ(inputs.q.at(0, 1, 0, 0), 2);
  EXPECT_EQ(inputs.k.at(0, 1, 0, 0), 5);
  EXPECT_EQ(inputs.v.at(0, 0, 1, 0), 8);
  EXPECT_EQ(inputs.mask.values, (std::vector<std::uint8_t>{0, 1}));
  EXPECT_EQ(inputs.bias.at(0, 0, 0, 1), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(inputs.bias.at(0, 1, 0, 0), 3);
  EXPECT_EQ(inputs.sink.values[1], 2);
  EXPECT_EQ(inputs.slopes.values[1], 2);
}

TEST(Data, SideTensorsFollowTheirKind) {
  const auto share = [](const Dense<std::uint8_t>& tensor) {
    double set = 0;
    for (const std::uint8_t value : tensor.values) set += value;
    return set / static_cast<double>(tensor.values.size());
  };
  const std::string shape = "b=2 hq=4 lq=60 lk=60 ";
  EXPECT_NEAR(share(make_inputs(problem(shape + "mask=random")).mask), 0.5, 0.02);
  EXPECT_NEAR(share(make_inputs(problem(shape + "mask=sparse")).mask), 0.125, 0.02);
  EXPECT_NEAR(share(make_inputs(problem(shape + "mask=dense")).mask), 0.9375, 0.02);
  EXPECT_EQ(share(make_inputs(problem(shape + "mask=all_true")).mask), 1);
  EXPECT_EQ(share(make_inputs(problem(shape + "mask=all_false")).mask), 0);
  EXPECT_NEAR(share(make_inputs(problem(shape + "blocks=1,1")).blocks), 0.75, 0.02);
  EXPECT_NEAR(share(make_inputs(problem(shape + "dropout=0.25")).keep), 0.75, 0.02);
  EXPECT_NEAR(share(make_inputs(problem(shape + "dropout=0.9")).keep), 0.1, 0.02);
  const auto rows = make_inputs(problem("lq=6 lk=2 mask=empty_rows")).mask;
  for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(rows.at(0, 0, i, 1), i % 3 == 2 ? 0 : 1);

  int infinite = 0, lowest = 0;
  for (const double value : make_inputs(problem(shape + "bias=neg_inf")).bias.values)
    infinite += value == -std::numeric_limits<double>::infinity();
  for (const double value : make_inputs(problem(shape + "bias=lowest dtype=f16")).bias.values)
    lowest += value == -65504;
  EXPECT_NEAR(infinite / 28800.0, 0.25, 0.02);
  EXPECT_NEAR(lowest / 28800.0, 0.25, 0.02);

  const auto sinks = make_inputs(problem("hq=4 sink=mixed_inf")).sink.values;
  EXPECT_TRUE(std::isfinite(sinks[0]) && std::isfinite(sinks[2]));
  EXPECT_TRUE(std::isinf(sinks[1]) && std::isinf(sinks[3]));
  EXPECT_EQ(make_inputs(problem("hq=4 sink=large")).sink.values, std::vector<double>(4, 20.0));

  // Press et al.: 2^(-8(h+1)/8) for eight heads.
  const auto slopes = make_inputs(problem("hq=8 alibi=absolute")).slopes;
  for (std::int64_t h = 0; h < 8; ++h)
    EXPECT_EQ(slopes.at(0, h, 0, 0), std::ldexp(1.0, -static_cast<int>(h) - 1));
  const auto drawn = make_inputs(problem("b=3 hq=8 alibi=absolute slopes=per_batch")).slopes;
  EXPECT_EQ(drawn.shape, (std::array<std::int64_t, 4>{3, 8, 1, 1}));
  for (const double slope : drawn.values) EXPECT_TRUE(slope > 0 && slope <= 1);
}

TEST(Data, SlopesAreRoundedToTheirTypeAndSharedByTheBatchWhereListedOnce) {
  // The ninth of twelve heads has 2^(-4 * 1/8), no f32 number.
  EXPECT_EQ(make_inputs(problem("hq=12 alibi=absolute")).slopes.at(0, 8, 0, 0),
            static_cast<float>(std::exp2(-0.5)));
  const std::string listed = "b=2 hq=2 alibi=signed slopes=list slope_values=";
  EXPECT_EQ(make_inputs(problem(listed + "0.5,2")).slopes.shape,
            (std::array<std::int64_t, 4>{1, 2, 1, 1}));
  EXPECT_EQ(make_inputs(problem(listed + "0.5,2,1,0")).slopes.at(1, 0, 0, 0), 1);
}

TEST(Data, ATinyScaleLeavesTheInputsWithinEveryType) {
  for (const char* family : {"all_high", "needle", "saturated", "rising"})
    for (const double value : make_inputs(problem(std::string("dtype=f16 scale=1e-12 lk=40 d=3 "
                                                              "data=") +
                                                  family))
                                  .k.values)
      EXPECT_LE(std::fabs(value), 60000) << family;
}

TEST(Data, AnEmptyBatchHasNoPositionsToTakeABiasFrom) {
  AttentionProblem p = problem("b=0 lq=3 lk=3 bias=t5 bias_axes=hqk");
  p.align = Align::q_offset;
  ASSERT_EQ(problem_error(p), std::nullopt);
  EXPECT_EQ(make_inputs(p).bias.values, std::vector<double>(9, 0.0));
}

TEST(Data, AbsentTensorsStayAbsentAndEmptyOnesArePresent) {
  const auto plain = make_inputs(problem("lq=2 lk=2"));
  EXPECT_FALSE(plain.bias.present || plain.mask.present || plain.blocks.present ||
               plain.keep.present || plain.sink.present || plain.slopes.present);
  const auto empty = make_inputs(problem("lq=2 lk=0 mask=random bias=t5 dropout=0.5"));
  EXPECT_TRUE(empty.mask.present && empty.bias.present && empty.keep.present);
  EXPECT_TRUE(empty.mask.values.empty() && empty.k.values.empty());
}

// r = kpos - qpos decides the bucket, so with bottom-right alignment the bias is constant along
// diagonals; |r| < 8 has buckets of its own in the default table.
TEST(Data, T5BiasDependsOnTheRelativePositionAlone) {
  const auto p = problem("hq=2 lq=5 lk=9 bias=t5 seed=2");
  const auto bias = make_inputs(p).bias;
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 1; i < 5; ++i)
      for (std::int64_t j = 1; j < 9; ++j)
        EXPECT_EQ(bias.at(0, h, i, j), bias.at(0, h, i - 1, j - 1));
  EXPECT_NE(bias.at(0, 0, 0, 3), bias.at(0, 0, 0, 4));
  EXPECT_NE(bias.at(0, 0, 0, 3), bias.at(0, 1, 0, 3));
}

TEST(Data, OnlyPlainRandomNumbersAreGeneric) {
  EXPECT_TRUE(is_generic(problem("lk=3")));
  EXPECT_TRUE(is_generic(problem("lk=3 data=uniform")));
  EXPECT_FALSE(is_generic(problem("lk=3 v_data=constant_v")));
  EXPECT_TRUE(is_generic(problem("lk=3 d=64 scale=-0.125")));
  EXPECT_FALSE(is_generic(problem("lk=3 d=64 scale=0.015")));
  EXPECT_FALSE(is_generic(problem("lk=3 scale=0")));
  EXPECT_FALSE(is_generic(problem("lk=3 data=repeated_keys v_data=gaussian")));
}

}  // namespace
}  // namespace attest
