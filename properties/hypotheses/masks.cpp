// SPDX-License-Identifier: Apache-2.0
// Mask tensors, block maps, and scores that stand in for "hidden".
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool has_blocks(Problem p) { return p.blocks; }

ATTEST_HYPOTHESIS(mask_ignored, {.id = "mask_ignored",
                                 .sentence = "the mask is ignored",
                                 .applies = has_mask,
                                 .change = [](Variant& v) { v.inputs.mask = {}; }});
ATTEST_HYPOTHESIS(mask_inverted,
                  {.id = "mask_polarity_inverted",
                   .sentence = "the mask is read the other way round: true = drop; declared keep",
                   .explains = {"additive_mask_read_as_keep"},
                   .applies = has_mask,
                   .change = [](Variant& v) {
                     for (auto& x : v.inputs.mask.values) x = x == 0;
                   }});
ATTEST_HYPOTHESIS(mask_as_float, {.id = "bool_mask_as_float",
                                  .sentence = "the mask is added to the scores as 0 and 1",
                                  .applies = has_mask,
                                  .change = [](Variant& v) {
                                    v.sees = [&v](const PairAt& at) {
                                      const Factors f = factors(v, at);
                                      return at.in_range && f.base && f.band && f.blocks;
                                    };
                                    v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                                      return defined_score(v.problem, parts) +
                                             (factors(v, at).mask ? 1 : 0);
                                    };
                                  }});

/// The mask read at other coordinates.
void reread(Variant& v, std::int64_t (*b)(const RowAt&), std::int64_t (*h)(const RowAt&),
            bool transposed) {
  v.sees = [&v, b, h, transposed](const PairAt& at) {
    const auto& mask = v.inputs.mask;
    const auto wrap = [](std::int64_t x, std::int64_t extent) {
      return extent > 0 ? x % extent : 0;
    };
    std::int64_t i = at.row.i, j = at.j;
    if (transposed) std::swap(i, j);
    const std::uint8_t kept =
        mask.values[mask.index(wrap(b(at.row), mask.shape[0]), wrap(h(at.row), mask.shape[1]),
                               wrap(i, mask.shape[2]), wrap(j, mask.shape[3]))];
    const Factors f = factors(v, at);
    return at.in_range && f.base && f.band && f.blocks && kept != 0;
  };
}
std::int64_t own_b(const RowAt& at) { return at.b; }
std::int64_t own_h(const RowAt& at) { return at.h; }
std::int64_t zero(const RowAt&) { return 0; }
std::int64_t kv_of(const RowAt& at) { return at.kv; }

ATTEST_HYPOTHESIS(mask_batch_as_head,
                  {.id = "mask_batch_taken_for_head",
                   .sentence = "the mask's batch axis is taken for its head axis",
                   .explains = {"mask_broadcast_wrong_axis"},
                   .applies = has_mask,
                   .change = [](Variant& v) { reread(v, own_h, own_b, false); }});
ATTEST_HYPOTHESIS(mask_square,
                  {.id = "mask_batch_taken_for_head/square",
                   .sentence = "with as many heads as sequences the mask's two axes are exchanged",
                   .applies = [](Problem p) { return has_mask(p) && p.batch == p.num_heads; },
                   .change = [](Variant& v) { reread(v, own_h, own_b, false); }});
ATTEST_HYPOTHESIS(mask_batch_by_head,
                  {.id = "mask_broadcast_wrong_axis",
                   .sentence = "a mask of each sequence is read as a mask of each head",
                   .applies = [](Problem p) { return has_mask(p) && p.batch > 1; },
                   .change =
                       [](Variant& v) {
                         const auto& mask = v.inputs.mask;
                         if (mask.shape[0] > 1 && mask.shape[1] == 1)
                           reread(v, own_h, own_h, false);
                       }});
ATTEST_HYPOTHESIS(mask_head_zero, {.id = "mask_of_first_head",
                                   .sentence = "every head gets the mask of the first",
                                   .explains = {"mask_broadcast_wrong_axis", "mask_of_head_0"},
                                   .applies = has_mask,
                                   .change = [](Variant& v) { reread(v, own_b, zero, false); }});
ATTEST_HYPOTHESIS(mask_batch_zero, {.id = "mask_of_first_batch",
                                    .sentence = "every sequence gets the mask of the first",
                                    .explains = {"mask_broadcast_wrong_axis", "mask_of_sequence_0"},
                                    .applies = has_mask,
                                    .change = [](Variant& v) { reread(v, zero, own_h, false); }});
ATTEST_HYPOTHESIS(mask_kv_head, {.id = "mask_of_kv_head",
                                 .sentence = "the mask is read by the key/value head",
                                 .explains = {"mask_broadcast_wrong_axis"},
                                 .applies = has_mask,
                                 .change = [](Variant& v) { reread(v, own_b, kv_of, false); }});
ATTEST_HYPOTHESIS(mask_transposed, {.id = "mask_transposed",
                                    .sentence = "the mask's query and key axes are swapped",
                                    .explains = {"mask_broadcast_wrong_axis"},
                                    .applies = has_mask,
                                    .change = [](Variant& v) { reread(v, own_b, own_h, true); }});
ATTEST_HYPOTHESIS(mask_row_zero, {.id = "mask_of_first_row",
                                  .sentence = "every query gets the first row of the mask",
                                  .explains = {"mask_broadcast_wrong_axis", "mask_enlarges_scores",
                                               "mask_of_row_0"},
                                  .applies = has_mask,
                                  .change = [](Variant& v) {
                                    v.sees = [&v](const PairAt& at) {
                                      const Factors f = factors(v, at);
                                      return at.in_range && f.base && f.band && f.blocks &&
                                             mask_visible(v.inputs, at.row.b, at.row.h, 0, at.j);
                                    };
                                  }});

ATTEST_HYPOTHESIS(mask_lost_causal,
                  {.id = "mask_forgotten_when_causal",
                   .sentence = "the mask is ignored where base=causal",
                   .applies = [](Problem p) { return has_mask(p) && is_causal(p); },
                   .change = [](Variant& v) { v.inputs.mask = {}; }});
ATTEST_HYPOTHESIS(blocks_head_zero, {.id = "blocks_of_head_0",
                                     .sentence = "every head gets the block map of the first",
                                     .applies = has_blocks,
                                     .change = [](Variant& v) {
                                       v.sees = [&v](const PairAt& at) {
                                         const Factors f = factors(v, at);
                                         return at.in_range && f.base && f.band && f.mask &&
                                                block_visible(v.problem, v.inputs, at.row.b, 0,
                                                              at.row.i, at.j);
                                       };
                                     }});
ATTEST_HYPOTHESIS(blocks_ignored, {.id = "blocks_ignored",
                                   .sentence = "the block map is ignored",
                                   .applies = has_blocks,
                                   .change = [](Variant& v) { v.inputs.blocks = {}; }});
ATTEST_HYPOTHESIS(blocks_inverted, {.id = "blocks_inverted",
                                    .sentence = "the block map is read the other way round",
                                    .applies = has_blocks,
                                    .change = [](Variant& v) {
                                      for (auto& x : v.inputs.blocks.values) x = x == 0;
                                    }});
ATTEST_HYPOTHESIS(
    blocks_transposed,
    {.id = "blocks_transposed",
     .sentence = "the block map's axes are swapped",
     .applies = has_blocks,
     .change = [](Variant& v) {
       v.sees = [&v](const PairAt& at) {
         const Factors f = factors(v, at);
         const auto& blocks = v.inputs.blocks;
         const std::int64_t across = at.row.i / v.problem.block_q, down = at.j / v.problem.block_k;
         const bool inside = down < blocks.shape[2] && across < blocks.shape[3];
         return at.in_range && f.base && f.band && f.mask && inside &&
                blocks.values[blocks.broadcast_index(at.row.b, at.row.h, down, across)] != 0;
       };
     }});
void swap_block_sizes(Variant& v, bool clamped) {
  v.sees = [&v, clamped](const PairAt& at) {
    const Factors f = factors(v, at);
    const auto& m = v.inputs.blocks;
    std::int64_t y = at.row.i / v.problem.block_k, x = at.j / v.problem.block_q;
    if (clamped) y = std::min(y, m.shape[2] - 1), x = std::min(x, m.shape[3] - 1);
    if (y >= m.shape[2] || x >= m.shape[3]) return false;
    return at.in_range && f.base && f.band && f.mask &&
           m.values[m.broadcast_index(at.row.b, at.row.h, y, x)] != 0;
  };
}
ATTEST_HYPOTHESIS(block_sizes_swapped, {.id = "block_sizes_swapped",
                                        .sentence = "block_q and block_k are swapped",
                                        .explains = {"blocks_qk_swapped"},
                                        .applies = has_blocks,
                                        .change = [](Variant& v) { swap_block_sizes(v, false); }});
ATTEST_HYPOTHESIS(
    block_sizes_swapped_clamped,
    {.id = "block_sizes_swapped/clamped",
     .sentence = "block_q and block_k are swapped, beyond the map its last block holds",
     .explains = {"blocks_qk_swapped"},
     .applies = has_blocks,
     .change = [](Variant& v) { swap_block_sizes(v, true); }});

/// Hidden keys take part with a finite score: `added` to their own, or in its place.
void sentinel(Variant& v, double value, bool added) {
  v.sees = [](const PairAt& at) { return at.in_range; };
  v.score = [&v, value, added](const PairAt& at, const ScoreParts& parts) {
    ScoreParts own = parts;
    const bool hidden = !at.seen || own.bias == kMinusInf;
    if (own.bias == kMinusInf) own.bias = 0;
    const double z = defined_score(v.problem, own);
    if (!hidden) return z;
    if (!added) return value;
    // In a float a huge constant swallows the score.
    return static_cast<double>(static_cast<float>(z + value));
  };
}
ATTEST_HYPOTHESIS(mask_minus_1e4, {.id = "mask_minus_1e4",
                                   .sentence = "hidden scores are replaced by -10000, not by -inf",
                                   .explains = {"mask_finfo_min", "empty_row_mean_v"},
                                   .applies = hides,
                                   .change = [](Variant& v) { sentinel(v, -1e4, false); }});
ATTEST_HYPOTHESIS(mask_minus_1e4_added,
                  {.id = "mask_minus_1e4_added",
                   .sentence = "-10000 is added to hidden scores, instead of -inf",
                   .explains = {"mask_minus_1e4"},
                   .applies = hides,
                   .change = [](Variant& v) { sentinel(v, -1e4, true); }});
ATTEST_HYPOTHESIS(mask_finfo_min,
                  {.id = "mask_finfo_min",
                   .sentence = "hidden scores are replaced by the lowest finite number",
                   .explains = {"empty_row_mean_v"},
                   .applies = hides,
                   .change = [](Variant& v) {
                     sentinel(v, -static_cast<double>(std::numeric_limits<float>::max()), false);
                   }});
ATTEST_HYPOTHESIS(
    mask_finfo_min_f64,
    {.id = "mask_finfo_min_f64",
     .sentence = "hidden scores are replaced by the lowest double",
     .explains = {"mask_finfo_min", "empty_row_mean_v", "finfo_min_plus_negative_overflows"},
     .rank = 1,
     .applies = hides,
     .change = [](Variant& v) { sentinel(v, -std::numeric_limits<double>::max(), false); }});
ATTEST_HYPOTHESIS(mask_f16_min, {.id = "mask_f16_min",
                                 .sentence = "hidden scores are replaced by -65504",
                                 .explains = {"mask_finfo_min"},
                                 .rank = 1,
                                 .applies = hides,
                                 .change = [](Variant& v) { sentinel(v, -65504, false); }});
ATTEST_HYPOTHESIS(mask_zero, {.id = "mask_zero",
                              .sentence = "hidden scores are set to 0 before the softmax",
                              .applies = hides,
                              .change = [](Variant& v) { sentinel(v, 0, false); }});
ATTEST_HYPOTHESIS(mask_after_softmax,
                  {.id = "mask_after_softmax",
                   .sentence = "hidden weights are removed after the softmax, not before it",
                   .applies = hides,
                   .change = [](Variant& v) {
                     v.sees = [](const PairAt& at) { return at.in_range; };
                     v.weigh = [&v](const RowAt& at, WeighedRow& row) {
                       for (std::size_t n = 0; n < row.keys.size(); ++n)
                         if (!visible(v.problem, v.inputs, *at.rows, at.b, at.h, at.i, row.keys[n]))
                           row.dropout[n] = 0;
                     };
                   }});

/// Whether some key of the first block of `size` keys is seen by the row.
bool first_block_seen(const Variant& v, const RowAt& at, std::int64_t size) {
  const Segment& s = *at.segment;
  for (std::int64_t j = s.k0; j < std::min(s.k0 + size, s.k1); ++j)
    if (visible(v.problem, v.inputs, *at.rows, at.b, at.h, at.i, j) &&
        !bias_hides(v.inputs, at.b, at.h, at.i, j))
      return true;
  return false;
}
/// Whether base and band let some row of the same tile see some key of the block: a block beyond
/// them is skipped.
bool first_block_reached(const Variant& v, const RowAt& at, std::int64_t size, std::int64_t tile) {
  const Segment& s = *at.segment;
  const std::int64_t begin = s.q0 + (at.i - s.q0) / tile * tile;
  for (std::int64_t i = begin; i < std::min(begin + tile, s.q1); ++i)
    for (std::int64_t j = s.k0; j < std::min(s.k0 + size, s.k1); ++j)
      if (base_visible(v.problem, s, qpos(s, i), kpos(s, j)) &&
          band_visible(v.problem, qpos(s, i), kpos(s, j)))
        return true;
  return false;
}
bool first_block_families() {
  constexpr std::int64_t kNeverSkipped = 0;
  for (const std::int64_t size : {1, 8, 16, 32, 64, 128})
    for (const std::int64_t tile : {kNeverSkipped, std::int64_t{1}, std::int64_t{64}})
      register_hypothesis(
          {.id = "first_block_masked_nan/" + std::to_string(size) + "x" + std::to_string(tile),
           .sentence =
               with_number("NaN where the first block of # keys is hidden from a query", size),
           .explains = {"first_block_masked_nan"},
           .rank = 1,
           .applies = hides,
           .change = [size, tile](Variant& v) {
             v.finish = [&v, size, tile](const RowAt& at, RowOutput& out) {
               if (out.outcome == RowOutcome::padding || num_keys(at) == 0) return;
               if (first_block_seen(v, at, size)) return;
               if (tile != kNeverSkipped && !first_block_reached(v, at, size, tile)) return;
               std::fill(out.o.begin(), out.o.end(), kQuietNaN);
               out.lse = kQuietNaN;
             };
           }});
  return true;
}
[[maybe_unused]] const bool first_block_is_known = first_block_families();

}  // namespace
}  // namespace attest
