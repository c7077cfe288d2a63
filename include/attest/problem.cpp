// SPDX-License-Identifier: Apache-2.0
#include "attest/problem.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attest/sequences.hpp"

namespace attest {
namespace {

__extension__ typedef unsigned __int128 Wide;

/// Sign of (m * 2^e)^2 * n - 1 for a 54-bit m, in integers: m^2 n has up to 171 bits.
int compare_square_times_n_to_one(std::uint64_t m, int e, std::uint64_t n) {
  const Wide square = static_cast<Wide>(m) * m;
  const Wide low = static_cast<Wide>(static_cast<std::uint64_t>(square)) * n;
  const Wide high = static_cast<Wide>(static_cast<std::uint64_t>(square >> 64)) * n + (low >> 64);
  const auto low_limb = static_cast<std::uint64_t>(low);
  // The product is high * 2^64 + low_limb; one is 2^(-2e).
  const int bit = -2 * e;
  const Wide one_high = bit >= 64 && bit - 64 < 128 ? Wide{1} << (bit - 64) : Wide{0};
  const std::uint64_t one_low = bit >= 0 && bit < 64 ? std::uint64_t{1} << bit : 0;
  if (high != one_high) return high < one_high ? -1 : 1;
  if (low_limb != one_low) return low_limb < one_low ? -1 : 1;
  return 0;
}

/// 1/sqrt(n) rounded once. 1 / std::sqrt(n) rounds twice, and is an ulp off for 29 % of n, 2 and
/// 128 among them.
double reciprocal_sqrt(std::uint64_t n) {
  double root = 1 / std::sqrt(static_cast<double>(n));
  while (true) {
    // root = significand * 2^exponent; halfway to the next number up is (2 significand + 1) *
    // 2^(exponent - 1), and down too, except that numbers lie twice as close below a power of two.
    int exponent = 0;
    const double fraction = std::frexp(root, &exponent);
    const auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    exponent -= 53;
    const bool power_of_two = significand == std::uint64_t{1} << 52;
    const int down = power_of_two ? 2 : 1;
    if (compare_square_times_n_to_one(2 * significand + 1, exponent - 1, n) < 0)
      root = std::nextafter(root, 2.0);
    else if (compare_square_times_n_to_one((significand << down) - 1, exponent - down, n) > 0)
      root = std::nextafter(root, 0.0);
    else
      return root;
  }
}

std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (std::int64_t factor : factors)
    product = saturating_multiply(product, std::max<std::int64_t>(factor, 0));
  return product;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

std::int64_t broadcast_product(const Axes& axes, std::int64_t b, std::int64_t h, std::int64_t q,
                               std::int64_t k) {
  return product_of({axes.b ? b : 1, axes.h ? h : 1, axes.q ? q : 1, axes.k ? k : 1});
}

/// Rows of the cos and sin tables: every position from the least to the greatest.
std::int64_t rope_rows(const AttentionProblem& problem) {
  if (problem.operation == Operation::rope) return row_positions(problem).count;
  std::int64_t least = 0, end = 0;
  for (const SequenceRows& rows : sequence_rows(problem)) {
    const std::int64_t q_end = saturating_add(rows.offset, saturating_subtract(rows.q1, rows.q0));
    least = std::min({least, rows.offset});
    end = std::max({end, q_end, saturating_subtract(rows.k1, rows.k0)});
  }
  return saturating_subtract(end, least);
}

}  // namespace

double effective_scale(const AttentionProblem& problem) {
  if (problem.scale) return *problem.scale;
  if (problem.head_dim < 1) return 0;
  return reciprocal_sqrt(static_cast<std::uint64_t>(problem.head_dim));
}

std::int64_t effective_rope_dim(const AttentionProblem& problem) {
  return problem.rope_dim != 0 ? problem.rope_dim : problem.head_dim - problem.head_dim % 2;
}

std::int64_t num_sequences(const AttentionProblem& problem) {
  return problem.cu_seqlens_q.empty() ? problem.batch
                                      : static_cast<std::int64_t>(problem.cu_seqlens_q.size()) - 1;
}

bool wants_gradient(const AttentionProblem& problem, Gradient gradient) {
  if (problem.operation != Operation::backward ||
      problem.no_gradient[static_cast<std::size_t>(gradient)])
    return false;
  switch (gradient) {
    case Gradient::q:
    case Gradient::k:
    case Gradient::v: return true;
    case Gradient::bias: return problem.bias != BiasKind::none;
    case Gradient::slopes: return problem.alibi != AlibiKind::none;
    case Gradient::sink: return problem.sink != SinkKind::none;
  }
  return false;
}

void drop_gradients(AttentionProblem& problem) {
  const AttentionProblem defaults;
  problem.no_gradient = defaults.no_gradient;
  problem.d_lse = defaults.d_lse;
  problem.d_o_data = defaults.d_o_data;
  problem.d_o_layout = defaults.d_o_layout;
  problem.literal.d_o.clear();
  problem.literal.d_lse.clear();
}

void drop_cache(AttentionProblem& problem) {
  const AttentionProblem defaults;
  problem.cache = defaults.cache;
  problem.cache_rows = defaults.cache_rows;
  problem.page_size = defaults.page_size;
  problem.pages = defaults.pages;
  problem.cache_rotated = defaults.cache_rotated;
  problem.num_splits = defaults.num_splits;
}

AttentionProblem forward_of(AttentionProblem problem) {
  problem.operation = Operation::forward;
  drop_gradients(problem);
  drop_cache(problem);
  problem.positions.clear();
  problem.rope_inverse = false;
  return problem;
}

AttentionProblem rope_alone(const AttentionProblem& problem) {
  AttentionProblem alone;
  alone.operation = Operation::rope;
  alone.dtype = problem.dtype;
  alone.batch = problem.batch;
  alone.num_heads = alone.num_kv_heads = problem.num_heads;
  alone.q_len = problem.q_len;
  alone.head_dim = alone.v_head_dim = problem.head_dim;
  alone.rope = problem.rope;
  alone.rope_dim = problem.rope_dim;
  alone.rope_base = problem.rope_base;
  alone.rope_scale = problem.rope_scale;
  alone.rope_ntk = problem.rope_ntk;
  alone.rope_inverse = problem.rope_inverse;
  alone.q_offset = problem.q_offset;
  alone.positions = problem.positions;
  alone.layout = problem.layout;
  alone.data = problem.data;
  alone.seed = problem.seed;
  alone.literal.q = problem.literal.q;
  return alone;
}

std::int64_t row_position(const AttentionProblem& problem, std::int64_t b, std::int64_t i) {
  if (!problem.positions.empty())
    return problem.positions[static_cast<std::size_t>(b * problem.q_len + i)];
  return (problem.q_offset.empty() ? 0 : problem.q_offset[static_cast<std::size_t>(b)]) + i;
}

PositionSpan row_positions(const AttentionProblem& problem) {
  if (problem.batch < 1 || problem.q_len < 1) return {};
  const bool listed = !problem.positions.empty();
  const std::vector<std::int64_t>& list = listed ? problem.positions : problem.q_offset;
  const std::int64_t rows = listed ? 1 : problem.q_len;
  if (list.empty()) return {0, rows};
  const auto [least, most] = std::minmax_element(list.begin(), list.end());
  return {*least, saturating_add(saturating_subtract(*most, *least), rows)};
}

std::int64_t cache_capacity(const AttentionProblem& problem) {
  if (problem.cache_rows > 0) return problem.cache_rows;
  return std::max<std::int64_t>(problem.kv_len, 1);
}

std::int64_t pages_per_sequence(const AttentionProblem& problem) {
  return problem.page_size > 0 ? ceil_divide(cache_capacity(problem), problem.page_size) : 0;
}

std::int64_t new_rows(const AttentionProblem& problem, std::int64_t b) {
  return problem.seqlens_q.empty() ? problem.q_len : problem.seqlens_q[static_cast<std::size_t>(b)];
}

std::int64_t cached_rows(const AttentionProblem& problem, std::int64_t b) {
  const std::int64_t all =
      problem.seqlens_k.empty() ? problem.kv_len : problem.seqlens_k[static_cast<std::size_t>(b)];
  return all - new_rows(problem, b);
}

std::int64_t shared_pages(const AttentionProblem& problem) {
  if (problem.pages != PageOrder::shared || problem.page_size < 1 || problem.batch < 1) return 0;
  std::int64_t least = cached_rows(problem, 0);
  const bool same = problem.seqlens_q.empty() && problem.seqlens_k.empty();
  for (std::int64_t b = 1; !same && b < problem.batch; ++b)
    least = std::min(least, cached_rows(problem, b));
  return least / problem.page_size;
}

std::int64_t tensor_bytes(const AttentionProblem& problem) {
  const auto& p = problem;
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t statistic = p.dtype == DType::f64 ? 8 : 4;
  std::int64_t bytes = 0;
  const auto add = [&bytes](std::int64_t count, std::int64_t size) {
    bytes = saturating_add(bytes, saturating_multiply(count, size));
  };
  add(product_of({p.batch, p.num_heads, p.q_len, p.head_dim}), element);
  add(product_of({p.batch, p.num_kv_heads, p.kv_len, p.head_dim}), element);
  add(product_of({p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim}), element);
  add(product_of({p.batch, p.num_heads, p.q_len, p.v_head_dim}), element);
  if (p.want_lse) add(product_of({p.batch, p.num_heads, p.q_len}), statistic);
  if (p.bias != BiasKind::none)
    add(broadcast_product(p.bias_axes, p.batch, p.num_heads, p.q_len, p.kv_len), element);
  if (p.mask != MaskKind::none)
    add(broadcast_product(p.mask_axes, p.batch, p.num_heads, p.q_len, p.kv_len), 1);
  if (p.blocks)
    add(broadcast_product(p.block_axes, p.batch, p.num_heads,
                          ceil_divide(p.q_len, std::max<std::int64_t>(p.block_q, 1)),
                          ceil_divide(p.kv_len, std::max<std::int64_t>(p.block_k, 1))),
        1);
  if (p.dropout_p > 0) add(product_of({p.batch, p.num_heads, p.q_len, p.kv_len}), 1);
  if (p.alibi != AlibiKind::none) {
    const bool per_batch = p.slopes == SlopesKind::per_batch || p.slopes == SlopesKind::list;
    add(product_of({per_batch ? p.batch : 1, p.num_heads}), statistic);
  }
  if (p.sink != SinkKind::none) add(product_of({p.num_heads}), statistic);
  if (p.rope != RopePairing::none)
    add(product_of({2, rope_rows(p), effective_rope_dim(p) / 2}), statistic);
  // Gradients are as large as their inputs, and o and dO beside them as large as q.
  if (p.operation == Operation::backward) bytes = saturating_multiply(2, bytes);
  if (p.operation == Operation::decode) {
    const std::int64_t rows =
        p.page_size > 0 ? product_of({pages_per_sequence(p), p.page_size}) : cache_capacity(p);
    // A pool of pages has up to as many unused ones as used ones.
    add(product_of({p.page_size > 0 ? 2 : 1, saturating_add(p.batch, 1), p.num_kv_heads, rows,
                    saturating_add(p.head_dim, p.v_head_dim)}),
        element);
    add(product_of({p.batch, saturating_add(pages_per_sequence(p), 1)}), 4);
  }
  if (p.operation == Operation::rope) add(product_of({p.batch, p.q_len}), 4);
  for (const auto* values : {&p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k,
                             &p.cu_seqlens_q, &p.cu_seqlens_k, &p.q_offset, &p.prefix_len})
    add(static_cast<std::int64_t>(values->size()), 4);
  return bytes;
}

}  // namespace attest
