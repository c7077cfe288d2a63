// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "harness/dice.hpp"
#include "harness/generate.hpp"

namespace attest {

namespace {

/// Where a table of the usual length ends, where bf16 and f16 stop counting, and beyond.
std::int64_t draw_start(Dice& dice) {
  return dice.pick<std::int64_t>({0, 0, 0, 0, 1, 7, 100, 250, 500, 1000, 2040, 4090, 8190, 32760,
                                  65530, 131072, 1000000, -20});
}

/// Position ids of a row each, near to each other: a table covers all from the least to the
/// greatest.
std::vector<std::int64_t> draw_ids(Dice& dice, std::int64_t start, std::int64_t batch,
                                   std::int64_t rows) {
  std::vector<std::int64_t> ids;
  const std::int64_t kind = dice.below(5), step = dice.pick<std::int64_t>({1, 2, 3, 16});
  const std::int64_t reach = dice.one_in(20) ? 2000 : 40;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t from = start + dice.between(0, reach);
    for (std::int64_t i = 0; i < rows; ++i) switch (kind) {
        case 0: ids.push_back(from + rows - 1 - i); break;
        case 1: ids.push_back(from + step * i); break;
        case 2: ids.push_back(from + i / 2); break;
        default: ids.push_back(start + dice.between(0, reach));
      }
  }
  return ids;
}

void draw_positions(Dice& dice, AttentionProblem& p) {
  p.positions.clear();
  p.q_offset.clear();
  const std::int64_t start = draw_start(dice), lot = dice.below(8);
  if (lot == 0) return;
  if (lot < 4)
    for (std::int64_t b = 0; b < p.batch; ++b)
      p.q_offset.push_back(start + (dice.one_in(3) ? 0 : dice.between(0, 40)));
  else
    p.positions = draw_ids(dice, start, p.batch, p.q_len);
}

void draw_turn(Dice& dice, const Declaration& declaration, AttentionProblem& p) {
  p.rope = dice.pick({RopePairing::interleaved, RopePairing::half});
  p.rope_base = dice.pick({10000.0, 10000.0, 500000.0, 100.0, 1000000.0});
  p.rope_dim = 0;
  p.rope_scale = p.rope_ntk = 1;
  if (declaration.has(Feature::rope_partial) && dice.one_in(3))
    p.rope_dim = 2 * dice.between(1, std::max<std::int64_t>(p.head_dim / 2, 1));
  if (declaration.has(Feature::rope_linear) && dice.one_in(4))
    p.rope_scale = dice.pick({2.0, 4.0, 1.5, 8.0});
  if (declaration.has(Feature::rope_ntk) && dice.one_in(4)) p.rope_ntk = dice.pick({2.0, 4.0, 8.0});
  p.rope_inverse = dice.one_in(4);
}

}  // namespace

AttentionProblem to_rope(AttentionProblem problem, const Declaration& declaration) {
  Dice dice(problem.seed, "to_rope", 0);
  problem = rope_alone(problem);
  if (dice.one_in(3)) problem.head_dim = dice.pick<std::int64_t>({4, 6, 8, 16, 32, 64, 128});
  problem.head_dim = std::max<std::int64_t>(problem.head_dim, 2);
  draw_turn(dice, declaration, problem);
  draw_positions(dice, problem);
  return make_legal(std::move(problem), declaration);
}

}  // namespace attest
