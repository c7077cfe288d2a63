// SPDX-License-Identifier: Apache-2.0
#include "harness/families.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

namespace attest {
namespace {

// Scores that a family aims at, before softcap and without RoPE.
constexpr double kSaturatedScore = 40;
constexpr double kExtremeScore = 120;
constexpr double kStepPerKey = 0.5;
constexpr double kNeedleScore = 30;
constexpr double kSinkKeyScore = 12;  // e^12 = 160,000 keys of score 0
// Of `addressed`, for each digit of a key's number. A key that differs in one digit weighs e^-3.2 =
// 0.041 of the needle: all others of 2^n keys together 1.041^n - 1, the needle at n = 17 one half.
constexpr double kScorePerDigit = 1.6;
// Both factors of one product that overflows f16 (2^9 * 2^8 = 2^17 > 65504) and is small in f32.
constexpr double kHugeQ = 512;
constexpr double kHugeK = 256;

/// How to give scale * q.k a chosen value: q holds `q` in channel 0 and k the score times
/// `k_per_score`. q is a power of two near 1/|scale|, so that both sides stay in the range of f16.
struct Aim {
  double q = 1;
  double k_per_score = 1;
  double noise = 1;  ///< times k in the other channels keeps their share of the score near +-1
};

Aim aim_of(const AttentionProblem& problem) {
  Aim aim;
  const double scale = effective_scale(problem);
  const double magnitude = std::fabs(scale);
  if (magnitude > 0) {
    while (aim.q * magnitude < 0.70710678 && aim.q < 0x1p12) aim.q *= 2;
    while (aim.q * magnitude > 1.4142136 && aim.q > 0x1p-12) aim.q *= 0.5;
    aim.k_per_score = 1 / (scale * aim.q);
  }
  const auto others = static_cast<double>(problem.head_dim - 1);
  while (magnitude * magnitude * aim.noise * aim.noise * others > 1) aim.noise *= 0.5;
  return aim;
}

double sign_of(std::uint64_t bits) { return bits & 1 ? -1 : 1; }

/// One value in 16 grows by 2 to 2^6.
double heavy_tailed(std::uint64_t bits) {
  const std::uint64_t lot = absorb(bits, 2);
  const double value = gaussian(bits);
  if (lot % 16 != 0) return value;
  return value * static_cast<double>(std::uint64_t{2} << ((lot >> 8) % 6));
}

bool outlier_channel(const AttentionProblem& problem, std::int64_t c) {
  const std::uint64_t shift = row_state(problem.seed, Stream::pattern, 0, 0, 0) % 16;
  return (static_cast<std::uint64_t>(c) + shift) % 16 == 0;
}

/// Families that fill q, k and v in the same way; nullopt for the others.
std::optional<double> plain_value(DType dtype, Family family, std::uint64_t bits) {
  switch (family) {
    case Family::uniform: return uniform(bits, dtype);
    case Family::integers: return static_cast<double>(bits % 7) - 3;
    case Family::heavy_tails: return heavy_tailed(bits);
    case Family::signed_zeros: return bits & 1 ? -0.0 : 0.0;
    case Family::zeros: return 0;
    default: return std::nullopt;
  }
}

/// |scale| so small that q.k = 2^17 still is a moderate score.
bool reaches_huge_scores(const AttentionProblem& problem) {
  return std::fabs(effective_scale(problem)) <= 0x1p-10;
}

/// Binary digits of a key's number that the channels hold.
std::int64_t address_digits(const AttentionProblem& problem) {
  const auto last = static_cast<std::uint64_t>(std::max<std::int64_t>(problem.kv_len - 1, 1));
  return std::min<std::int64_t>(problem.head_dim, std::bit_width(last));
}

double digit_sign(std::int64_t number, std::int64_t c) { return (number >> c) & 1 ? 1 : -1; }

/// The key that query row i addresses: by turns the ends of the keys, the edges of blocks of 16 to
/// 2048, the edges of what is visible (also from outside), and any.
std::int64_t addressed_key(const AttentionProblem& p, std::uint64_t row, std::int64_t b,
                           std::int64_t i) {
  const std::uint64_t lot = absorb(row, ~std::uint64_t{0});
  const auto below = [&](std::int64_t count) {
    return static_cast<std::int64_t>((lot >> 16) %
                                     static_cast<std::uint64_t>(std::max<std::int64_t>(count, 1)));
  };
  const auto sequence = static_cast<std::size_t>(b);
  const std::int64_t end = p.seqlens_k.empty() ? p.kv_len : p.seqlens_k[sequence];
  const std::int64_t begin = p.left_pad_k.empty() ? 0 : p.left_pad_k[sequence];
  const std::int64_t position = i + (p.align == Align::top_left ? 0 : end - p.q_len);
  const auto side = static_cast<std::int64_t>(lot & 1);
  std::int64_t key = 0;
  switch (i % 8) {
    case 0: key = end - 1; break;
    case 1: key = begin - side; break;
    case 2:
    case 6: {
      const std::int64_t block = std::int64_t{16} << ((lot >> 8) % 8);
      key = (1 + below(end / block)) * block - side;
      break;
    }
    case 4: key = end; break;
    case 5:
      key = position + side;
      if (p.window_left >= 0 && (lot & 2)) key = position - p.window_left - side;
      break;
    default: key = below(p.kv_len);
  }
  return std::clamp<std::int64_t>(key, 0, std::max<std::int64_t>(p.kv_len - 1, 0));
}

/// Where a sequence begins.
bool first_key(const AttentionProblem& p, std::int64_t b, std::int64_t j) {
  if (!p.cu_seqlens_k.empty())
    return std::find(p.cu_seqlens_k.begin(), p.cu_seqlens_k.end(), j) != p.cu_seqlens_k.end();
  return j == (p.left_pad_k.empty() ? 0 : p.left_pad_k[static_cast<std::size_t>(b)]);
}

double q_value(const AttentionProblem& problem, const Aim& aim, std::uint64_t row, std::int64_t b,
               std::int64_t i, std::int64_t c) {
  const std::uint64_t bits = absorb(row, static_cast<std::uint64_t>(c));
  const std::int64_t last = problem.head_dim - 1;
  if (const auto value = plain_value(problem.dtype, problem.data, bits)) return *value;
  switch (problem.data) {
    case Family::saturated: return c == 0 ? aim.q * sign_of(bits >> 7) : gaussian(bits);
    case Family::all_low:
    case Family::all_high:
    case Family::rising:
    case Family::falling: return c == 0 ? aim.q : gaussian(bits);
    case Family::equal_scores: return c == 0 ? gaussian(bits) : 0;
    case Family::needle: {
      // The query points at one channel; whichever key is that channel's needle carries the row.
      const std::uint64_t lot = absorb(row, ~std::uint64_t{0});
      const auto pointed =
          static_cast<std::int64_t>((lot >> 1) % static_cast<std::uint64_t>(problem.head_dim));
      return c == pointed ? aim.q * sign_of(lot) : aim.q * 0x1p-6 * gaussian(bits);
    }
    case Family::sink_keys: return c == 0 ? aim.q : gaussian(bits);
    case Family::addressed:
      if (c >= address_digits(problem)) return 0;
      return aim.q * digit_sign(addressed_key(problem, row, b, i), c);
    case Family::alternating: return 0.0625 * gaussian(bits);
    case Family::huge:
      if (reaches_huge_scores(problem)) return c == 0 ? kHugeQ : gaussian(bits);
      return last > 0 && (c == 0 || c == last) ? kHugeQ : gaussian(bits);
    default: return gaussian(bits);
  }
}

/// The keys that channel c of one (sequence, kv head) points at, with either sign.
struct Needles {
  std::vector<std::int64_t> plus, minus;
};

Needles needles_of(const AttentionProblem& problem, std::int64_t b, std::int64_t g) {
  Needles needles;
  for (std::int64_t c = 0; c < problem.head_dim; ++c) {
    const std::uint64_t row = row_state(problem.seed, Stream::pattern, 1, b, g);
    const std::uint64_t lot = absorb(row, static_cast<std::uint64_t>(c));
    needles.plus.push_back(consistent_choice(lot, problem.kv_len));
    needles.minus.push_back(consistent_choice(absorb(lot, 1), problem.kv_len));
    if (needles.minus.back() == needles.plus.back() && problem.kv_len > 1)
      needles.minus.back() = (needles.plus.back() + 1) % problem.kv_len;
  }
  return needles;
}

/// Keeps q and k within every storage type, also where a tiny scale asks for more.
double bounded(double value) { return std::clamp(value, -60000.0, 60000.0); }

double huge_k(const AttentionProblem& problem, std::uint64_t row, std::uint64_t bits,
              std::int64_t c) {
  const std::int64_t last = problem.head_dim - 1;
  // 1 + m/64 has seven bits: exact in every type, so that the two channels cancel exactly.
  const double large = kHugeK * (1 + static_cast<double>(absorb(row, ~std::uint64_t{0}) % 64) / 64);
  if (reaches_huge_scores(problem)) return c == 0 ? large : gaussian(bits);
  if (last > 0 && c == 0) return large;
  if (last > 0 && c == last) return -large;
  return gaussian(bits);
}

double k_value(const AttentionProblem& problem, const Aim& aim, const Needles& needles,
               std::uint64_t row, std::uint64_t head, std::int64_t b, std::int64_t j,
               std::int64_t c) {
  const std::uint64_t bits = absorb(row, static_cast<std::uint64_t>(c));
  if (const auto value = plain_value(problem.dtype, problem.data, bits)) return *value;
  const auto aimed = [&](double score, double spread) {
    return c == 0 ? bounded(score * aim.k_per_score) : spread * aim.noise * gaussian(bits);
  };
  const auto channel = static_cast<std::size_t>(c);
  switch (problem.data) {
    case Family::outlier_channels:
      return outlier_channel(problem, c) ? 100 * gaussian(bits) : gaussian(bits);
    case Family::saturated:
      return aimed(
          sign_of(bits >> 7) * (kSaturatedScore * (1 + 0.5 * uniform(absorb(bits, 3), DType::f32))),
          1);
    case Family::all_low: return aimed(-kExtremeScore + gaussian(bits), 1);
    case Family::all_high: return aimed(kExtremeScore + gaussian(bits), 1);
    // The noise of the other channels stays far below one step.
    case Family::rising: return aimed(kStepPerKey * static_cast<double>(j), 0x1p-5);
    case Family::falling: return aimed(-kStepPerKey * static_cast<double>(j), 0x1p-5);
    case Family::equal_scores: return c == 0 ? 1 : gaussian(bits);
    case Family::needle:
      if (needles.plus[channel] == j) return bounded(kNeedleScore * aim.k_per_score);
      if (needles.minus[channel] == j) return bounded(-kNeedleScore * aim.k_per_score);
      return gaussian(bits);
    case Family::sink_keys: return aimed(first_key(problem, b, j) ? kSinkKeyScore : 0, 1);
    case Family::addressed:
      if (c >= address_digits(problem)) return gaussian(bits);
      return bounded(kScorePerDigit * digit_sign(j, c) * aim.k_per_score);
    case Family::huge: return huge_k(problem, row, bits, c);
    case Family::low_rank: {
      // 3 bits times 5 bits: exact in bf16, so that the rank is 1 in every storage type.
      const std::uint64_t direction = absorb(head, static_cast<std::uint64_t>(c));
      const std::uint64_t length = absorb(row, ~std::uint64_t{0});
      return sign_of(direction) * static_cast<double>(1 + (direction >> 8) % 7) * 0.25 *
             sign_of(length) * static_cast<double>(2 * ((length >> 8) % 16) + 1) * 0.0625;
    }
    default: return gaussian(bits);
  }
}

double large_v(DType dtype) {
  // Sums of v stay below a quarter of the accumulator's range, squares within double.
  switch (dtype) {
    case DType::f64: return 0x1p300;
    case DType::f16: return 0x1p11;
    default: return 0x1p100;
  }
}

/// A random number among the subnormals: |m| * 2^-s with fewer bits than the type's significand.
double subnormal_value(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::f64: return sign_of(bits) * static_cast<double>(bits >> 12) * 0x1p-1074;
    case DType::f32: return sign_of(bits) * static_cast<double>(bits >> 41) * 0x1p-149;
    case DType::f16: return sign_of(bits) * static_cast<double>(bits >> 54) * 0x1p-24;
    case DType::bf16: return sign_of(bits) * static_cast<double>(bits >> 57) * 0x1p-133;
  }
  return 0;
}

double v_value(const AttentionProblem& problem, Family family, std::uint64_t row, std::int64_t j,
               std::int64_t c) {
  const std::uint64_t bits = absorb(row, static_cast<std::uint64_t>(c));
  if (const auto value = plain_value(problem.dtype, family, bits)) return *value;
  switch (family) {
    case Family::outlier_channels:
      return outlier_channel(problem, c) ? 100 * gaussian(bits) : gaussian(bits);
    case Family::identity_v: return c == j ? 1 : 0;
    case Family::one_hot_v: return c == j % problem.v_head_dim ? 1 : 0;
    case Family::constant_v: return 1;
    case Family::alternating: return j % 2 == 0 ? 1 : -1;
    case Family::subnormal: return subnormal_value(problem.dtype, bits);
    case Family::huge: return large_v(problem.dtype) * gaussian(bits);
    default: return gaussian(bits);
  }
}

/// Key j of `repeated_keys`: within 64 keys, eight different ones stand eight times each, eight
/// apart, so that the copies meet in different blocks.
std::int64_t source_key(Family family, std::int64_t j) {
  return family == Family::repeated_keys ? j / 64 * 8 + j % 8 : j;
}

}  // namespace

double gaussian(std::uint64_t bits) {
  const auto sum_of_lanes = [](std::uint64_t word) {
    constexpr std::uint64_t kEveryOther = 0x0000'ffff'0000'ffffu;
    const std::uint64_t pairs = (word & kEveryOther) + ((word >> 16) & kEveryOther);
    return static_cast<std::int64_t>((pairs & 0xffff'ffffu) + (pairs >> 32));
  };
  const std::int64_t sum = sum_of_lanes(bits) + sum_of_lanes(absorb(bits, 1));
  constexpr double kSqrtThreeHalves = 1.224744871391589;  // 1/sqrt(8/12)
  return static_cast<double>(sum - std::int64_t{4} * 0xffff) * (kSqrtThreeHalves * 0x1p-16);
}

double uniform(std::uint64_t bits, DType dtype) {
  const double step = limits(dtype).unit_roundoff;  // 2^-p, p bits of significand
  const int p = dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
  const auto steps = static_cast<std::int64_t>(bits >> (63 - p)) - (std::int64_t{1} << p);
  return static_cast<double>(steps) * step;
}

std::int64_t consistent_choice(std::uint64_t key, std::int64_t count) {
  std::int64_t bucket = 0;
  std::int64_t next = 0;
  while (next < count) {
    bucket = next;
    key = key * 2862933555777941757u + 1;
    next = static_cast<std::int64_t>((static_cast<std::uint64_t>(bucket + 1) << 31) /
                                     ((key >> 33) + 1));
  }
  return bucket;
}

void fill_qkv(const AttentionProblem& problem, AttentionInputs& inputs) {
  const auto& p = problem;
  const Aim aim = aim_of(p);
  const Family v_family = p.v_data.value_or(p.data);
  const bool shared = p.layout == Layout::broadcast;
  inputs.q = Dense<double>({p.batch, p.num_heads, p.q_len, p.head_dim});
  inputs.k = Dense<double>({p.batch, p.num_kv_heads, p.kv_len, p.head_dim});
  inputs.v = Dense<double>({p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim});

  double* q = inputs.q.values.data();
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        const std::uint64_t row = row_state(p.seed, Stream::q, b, h, i);
        for (std::int64_t c = 0; c < p.head_dim; ++c)
          *q++ = round_to(p.dtype, q_value(p, aim, row, b, i, c));
      }

  double* k = inputs.k.values.data();
  double* v = inputs.v.values.data();
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t g = 0; g < p.num_kv_heads; ++g) {
      const std::int64_t source_b = shared ? 0 : b;
      const Needles needles = p.data == Family::needle ? needles_of(p, source_b, g) : Needles{};
      const std::uint64_t head = row_state(p.seed, Stream::pattern, 2, source_b, g);
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        const std::uint64_t k_row =
            row_state(p.seed, Stream::k, source_b, g, source_key(p.data, j));
        const std::uint64_t v_row = row_state(p.seed, Stream::v, source_b, g, j);
        for (std::int64_t c = 0; c < p.head_dim; ++c)
          *k++ = round_to(p.dtype, k_value(p, aim, needles, k_row, head, source_b, j, c));
        for (std::int64_t c = 0; c < p.v_head_dim; ++c)
          *v++ = round_to(p.dtype, v_value(p, v_family, v_row, j, c));
      }
    }
}

void fill_d_o(const AttentionProblem& problem, AttentionInputs& inputs) {
  const auto& p = problem;
  inputs.d_o = Dense<double>({p.batch, p.num_heads, p.q_len, p.v_head_dim});
  double* d_o = inputs.d_o.values.data();
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.num_heads; ++h)
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        const std::uint64_t row = row_state(p.seed, Stream::d_o, b, h, i);
        for (std::int64_t c = 0; c < p.v_head_dim; ++c)
          *d_o++ = round_to(p.dtype, v_value(p, p.d_o_data, row, i, c));
      }
  if (p.d_o_layout == Layout::broadcast && !inputs.d_o.values.empty())
    std::fill(inputs.d_o.values.begin(), inputs.d_o.values.end(), inputs.d_o.values.front());
}

}  // namespace attest
