// SPDX-License-Identifier: Apache-2.0
#include "harness/generate.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/combinations.hpp"
#include "harness/dice.hpp"
#include "harness/draw_features.hpp"

namespace attest {
namespace {

enum class SizeClass : std::uint8_t { small, large, longest };

/// Most (query, key, channel) triples of a problem, by size class.
constexpr std::int64_t kMostTriples[] = {150'000, 4'500'000, 2'200'000};

/// Channels of v that V = identity may ask for.
constexpr std::int64_t kMostIdentity = 130;

/// The sizes around which tiles end.
std::int64_t edge_length(Dice& dice) {
  return dice.pick<std::int64_t>({1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129});
}

std::int64_t small_length(Dice& dice) {
  const std::int64_t lot = dice.below(20);
  if (lot < 11) return dice.between(1, 4);
  if (lot < 16) return dice.between(1, 10);
  if (lot < 19) return edge_length(dice);
  return dice.between(1, 100);
}

void draw_heads(Dice& dice, const Declaration& declaration, SizeClass size, AttentionProblem& p) {
  p.batch = size == SizeClass::small ? dice.pick<std::int64_t>({1, 1, 1, 1, 2, 2, 3})
                                     : dice.pick<std::int64_t>({1, 1, 2});
  p.num_kv_heads = dice.pick<std::int64_t>({1, 1, 1, 1, 1, 2, 2, 3, 4, 9});
  std::int64_t group = 1;
  if (declaration.has(Feature::gqa) && dice.one_in(3))
    group = dice.pick<std::int64_t>({2, 2, 2, 3, 4, 8});
  const std::int64_t most = size == SizeClass::small ? 9 : 4 / p.batch;
  p.num_kv_heads = std::min(p.num_kv_heads, most);
  p.num_heads = p.num_kv_heads * std::min(group, most / p.num_kv_heads);
}

void draw_lengths(Dice& dice, SizeClass size, AttentionProblem& p) {
  switch (size) {
    case SizeClass::small:
      p.q_len = small_length(dice);
      p.kv_len = small_length(dice);
      if (dice.one_in(4)) p.kv_len = p.q_len;
      if (dice.one_in(10)) p.q_len = 1;
      break;
    case SizeClass::large:
      p.q_len =
          dice.one_in(2) ? std::max<std::int64_t>(edge_length(dice), 16) : dice.between(16, 128);
      p.kv_len =
          dice.one_in(2) ? std::max<std::int64_t>(edge_length(dice), 16) : dice.between(16, 128);
      break;
    case SizeClass::longest:
      p.q_len = dice.between(1, 4);
      p.kv_len = dice.one_in(2) ? dice.between(256, 4096)
                                : dice.pick<std::int64_t>({255, 256, 257, 1023, 1025, 2048, 4096});
      break;
  }
}

/// Halves whatever is largest until the problem fits its class.
void keep_within(std::int64_t most, AttentionProblem& p) {
  while (triples(p) > most) {
    if (p.batch > 1) {
      p.batch = 1;
    } else if (p.num_kv_heads > 1) {
      p.num_heads /= p.num_kv_heads;
      p.num_kv_heads = 1;
    } else {
      std::int64_t* largest = std::max({&p.q_len, &p.kv_len, &p.head_dim, &p.v_head_dim},
                                       [](auto* a, auto* b) { return *a < *b; });
      *largest = std::max<std::int64_t>(*largest / 2, 1);
    }
  }
}

bool score_family(Family family) {
  return (family >= Family::saturated && family <= Family::needle) || family == Family::sink_keys ||
         family == Family::addressed;
}

void draw_data(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  const auto any_family = [&] {
    return static_cast<Family>(dice.below(static_cast<std::int64_t>(Family::list)));
  };
  p.seed = static_cast<std::uint64_t>(dice.below(1 << 20));
  if (!dice.one_in(3)) p.data = any_family();
  if (dice.one_in(8)) {
    p.v_data = any_family();
    // For v these are the normal numbers that it has anyway.
    if (score_family(*p.v_data) || *p.v_data == p.data) p.v_data.reset();
  }
  if (p.data == Family::huge && declaration.has(Feature::scale) && dice.one_in(2))
    p.scale = 0x1p-11;
  const bool identity = p.v_data.value_or(p.data) == Family::identity_v;
  if (identity && p.v_head_dim < p.kv_len) {
    if (p.kv_len <= kMostIdentity && declaration.v_head_dims &&
        contains(*declaration.v_head_dims, p.kv_len))
      p.v_head_dim = p.kv_len;
    else
      p.kv_len = p.v_head_dim;
  }
}

}  // namespace

std::int64_t triples(const AttentionProblem& p) {
  return p.batch * p.num_heads * p.q_len * p.kv_len * std::max(p.head_dim, p.v_head_dim);
}

AttentionProblem sizes_alone(const AttentionProblem& problem) {
  AttentionProblem plain;
  plain.dtype = problem.dtype;
  plain.batch = std::max<std::int64_t>(problem.batch, 1);
  plain.num_heads = problem.num_heads;
  plain.num_kv_heads = problem.num_kv_heads;
  plain.q_len = std::max<std::int64_t>(problem.q_len, 1);
  plain.kv_len = std::max<std::int64_t>(problem.kv_len, 1);
  plain.head_dim = problem.head_dim;
  plain.v_head_dim = std::max<std::int64_t>(problem.v_head_dim, 1);
  return plain;
}

AttentionProblem to_backward(AttentionProblem problem, const Declaration& declaration) {
  if (problem.operation == Operation::backward) return make_legal(std::move(problem), declaration);
  Dice dice(problem.seed, "to_backward", 0);
  problem.operation = Operation::backward;
  problem.d_lse = dice.one_in(2);
  if (dice.one_in(4))
    for (bool& left_out : problem.no_gradient) left_out = dice.one_in(3);
  if (dice.one_in(3))
    problem.d_o_data = dice.pick({Family::integers, Family::outlier_channels, Family::heavy_tails,
                                  Family::alternating, Family::zeros, Family::constant_v,
                                  Family::subnormal, Family::one_hot_v});
  if (dice.one_in(4))
    problem.d_o_layout =
        dice.pick({Layout::bhld, Layout::blhd, Layout::bhdl, Layout::strided, Layout::broadcast});
  return make_legal(std::move(problem), declaration);
}

AttentionProblem draw(const Declaration& declaration, std::uint64_t seed, std::string_view stream,
                      std::uint64_t index) {
  Dice dice(seed, stream, index);
  AttentionProblem p;
  if (!declaration.dtypes.empty())
    p.dtype =
        declaration.dtypes[static_cast<std::size_t>(dice.below(std::ssize(declaration.dtypes)))];

  const std::int64_t lot = dice.below(100);
  const SizeClass size = lot == 0  ? SizeClass::longest
                         : lot < 6 ? SizeClass::large
                                   : SizeClass::small;
  draw_heads(dice, declaration, size, p);
  draw_lengths(dice, size, p);
  p.head_dim = dice.one_in(8) ? draw_member(dice, declaration.head_dims) : draw_channels(dice);
  p.v_head_dim = p.head_dim;
  if (declaration.v_head_dims && dice.one_in(4))
    p.v_head_dim =
        dice.one_in(8) ? draw_member(dice, *declaration.v_head_dims) : draw_channels(dice);
  draw_data(dice, declaration, p);
  keep_within(kMostTriples[static_cast<int>(size)], p);

  draw_features(dice, declaration, p);
  // Every other problem has two or three things that were chosen to meet.
  if (index % 2 == 1) {
    const Combination wanted = combination_at(declaration, index / 2);
    if (auto met = with_combination(dice, declaration, p, wanted)) return *met;
  }
  return make_legal(std::move(p), declaration);
}

}  // namespace attest
