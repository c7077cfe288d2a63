// SPDX-License-Identifier: Apache-2.0
// Mistakes of backward in which pairs count, and where rows stand: the forward pass has both right.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool has_offset(Problem p) {
  return p.align != Align::top_left &&
         (p.base != Base::full || has_window(p) || has_alibi(p) || has_rope(p));
}

ATTEST_HYPOTHESIS(causal_lost,
                  {.id = "causal_lost_in_backward",
                   .sentence = "backward forms P without the causal mask",
                   .applies = is_causal,
                   .change_backward = [](BackwardVariant& v) { v.problem.base = Base::full; }});
void base_moved(BackwardVariant& v, std::int64_t by) {
  v.sees = [&v, by](const PairAt& at, const BackwardRow&) {
    return base_visible(v.problem, *at.row.segment, at.row.qpos + by, at.kpos) &&
           band_visible(v.problem, at.row.qpos, at.kpos) &&
           mask_visible(v.inputs, at.row.b, at.row.h, at.row.i, at.j) &&
           block_visible(v.problem, v.inputs, at.row.b, at.row.h, at.row.i, at.j);
  };
}
ATTEST_HYPOTHESIS(causal_plus_one_backward,
                  {.id = "causal_plus_one_in_backward",
                   .sentence = "the causal mask of backward lets a query see the key behind it",
                   .applies = is_causal,
                   .change_backward = [](BackwardVariant& v) { base_moved(v, 1); }});
ATTEST_HYPOTHESIS(causal_strict_backward,
                  {.id = "causal_strict_in_backward",
                   .sentence = "the causal mask of backward hides a query's own key",
                   .applies = is_causal,
                   .change_backward = [](BackwardVariant& v) { base_moved(v, -1); }});
ATTEST_HYPOTHESIS(prefix_ignored_backward,
                  {.id = "prefix_ignored_in_backward",
                   .sentence = "backward of prefix attention is plain causal",
                   .applies = [](Problem p) { return p.base == Base::prefix; },
                   .change_backward = [](BackwardVariant& v) { v.problem.base = Base::causal; }});

ATTEST_HYPOTHESIS(window_ignored_backward, {.id = "window_ignored_in_backward",
                                            .sentence = "backward forms P without the window",
                                            .applies = has_window,
                                            .change_backward = [](BackwardVariant& v) {
                                              v.problem.window_left = v.problem.window_right = -1;
                                              v.problem.global_tokens = 0;
                                            }});
void widen(BackwardVariant& v, std::int64_t left, std::int64_t right) {
  AttentionProblem& p = v.problem;
  if (p.window_left >= 0) p.window_left = std::max<std::int64_t>(p.window_left + left, 0);
  if (p.window_right >= 0) p.window_right = std::max<std::int64_t>(p.window_right + right, 0);
}
bool has_left_window(Problem p) { return p.window_left >= 0; }
bool has_right_window(Problem p) { return p.window_right >= 0; }
ATTEST_HYPOTHESIS(window_plus_one_backward,
                  {.id = "window_plus_one_in_backward",
                   .sentence = "the left bound of the window is one key wider in backward",
                   .applies = has_left_window,
                   .change_backward = [](BackwardVariant& v) { widen(v, 1, 0); }});
ATTEST_HYPOTHESIS(window_exclusive_backward,
                  {.id = "window_exclusive_in_backward",
                   .sentence = "the left bound of the window is one key narrower in backward",
                   .applies = [](Problem p) { return p.window_left > 0; },
                   .change_backward = [](BackwardVariant& v) { widen(v, -1, 0); }});
ATTEST_HYPOTHESIS(window_right_plus_one_backward,
                  {.id = "window_right_plus_one_in_backward",
                   .sentence = "the right bound of the window is one key wider in backward",
                   .applies = has_right_window,
                   .change_backward = [](BackwardVariant& v) { widen(v, 0, 1); }});
ATTEST_HYPOTHESIS(window_right_exclusive_backward,
                  {.id = "window_right_exclusive_in_backward",
                   .sentence = "the right bound of the window is one key narrower in backward",
                   .applies = [](Problem p) { return p.window_right > 0; },
                   .change_backward = [](BackwardVariant& v) { widen(v, 0, -1); }});
ATTEST_HYPOTHESIS(global_tokens_ignored_backward,
                  {.id = "global_tokens_ignored_in_backward",
                   .sentence = "backward misses the pairs of global tokens outside the window",
                   .applies = [](Problem p) { return p.global_tokens > 0; },
                   .change_backward = [](BackwardVariant& v) { v.problem.global_tokens = 0; }});

ATTEST_HYPOTHESIS(mask_ignored_backward,
                  {.id = "mask_ignored_in_backward",
                   .sentence = "backward forms P without the mask",
                   .applies = has_mask,
                   .change_backward = [](BackwardVariant& v) { v.inputs.mask = {}; }});
ATTEST_HYPOTHESIS(blocks_ignored_backward,
                  {.id = "blocks_ignored_in_backward",
                   .sentence = "backward forms P without the block mask",
                   .applies = [](Problem p) { return p.blocks; },
                   .change_backward = [](BackwardVariant& v) { v.inputs.blocks = {}; }});
ATTEST_HYPOTHESIS(mask_transposed_backward,
                  {.id = "mask_transposed_in_backward",
                   .sentence = "backward reads the mask [Lq, Lk] as if it were [Lk, Lq]",
                   .applies = [](Problem p) { return has_mask(p) && p.q_len > 1 && p.kv_len > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.sees = [&v](const PairAt& at, const BackwardRow&) {
                           const Factors factor{
                               base_visible(v.problem, *at.row.segment, at.row.qpos, at.kpos),
                               band_visible(v.problem, at.row.qpos, at.kpos), true,
                               block_visible(v.problem, v.inputs, at.row.b, at.row.h, at.row.i,
                                             at.j)};
                           const std::int64_t flat = at.j * v.problem.q_len + at.row.i;
                           return factor.base && factor.band && factor.blocks &&
                                  mask_visible(v.inputs, at.row.b, at.row.h,
                                               flat / v.problem.kv_len, flat % v.problem.kv_len);
                         };
                       }});
ATTEST_HYPOTHESIS(bias_inf_nan,
                  {.id = "bias_neg_inf_gradient_nan",
                   .sentence = "dBias is NaN where bias is -inf",
                   .applies = [](Problem p) { return wants_gradient(p, Gradient::bias); },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.last = [&v](GradientPrediction& out) {
                           auto& d_bias = out[Gradient::bias].value;
                           for (std::size_t n = 0; n < d_bias.size(); ++n)
                             if (v.inputs.bias.values[n] == kMinusInf) d_bias[n] = kQuietNaN;
                         };
                       }});
ATTEST_HYPOTHESIS(left_pad_ignored_backward,
                  {.id = "left_pad_ignored_in_backward",
                   .sentence = "backward sees the keys of the left pad",
                   .applies = [](Problem p) { return !p.left_pad_k.empty(); },
                   .change_backward = [](BackwardVariant& v) { v.problem.left_pad_k.clear(); }});
ATTEST_HYPOTHESIS(segments_leak_backward,
                  {.id = "segments_leak_in_backward",
                   .sentence = "backward takes a packed batch for one sequence",
                   .applies = is_packed,
                   .change_backward = [](BackwardVariant& v) {
                     v.problem.seqlens_q = {v.problem.cu_seqlens_q.back()};
                     v.problem.seqlens_k = {v.problem.cu_seqlens_k.back()};
                     v.problem.cu_seqlens_q.clear();
                     v.problem.cu_seqlens_k.clear();
                     v.problem.q_offset.resize(v.problem.q_offset.empty() ? 0 : 1);
                     v.problem.prefix_len.resize(v.problem.prefix_len.empty() ? 0 : 1);
                   }});
ATTEST_HYPOTHESIS(
    top_left_backward,
    {.id = "top_left_in_backward",
     .sentence = "backward aligns positions top left; forward bottom right",
     .applies = [](Problem p) { return has_offset(p) && p.align == Align::bottom_right; },
     .change_backward = [](BackwardVariant& v) { v.problem.align = Align::top_left; }});
ATTEST_HYPOTHESIS(q_offset_ignored_backward,
                  {.id = "q_offset_ignored_in_backward",
                   .sentence = "backward aligns positions bottom right, whatever q_offset says",
                   .applies = [](Problem p) { return has_offset(p) && p.align == Align::q_offset; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.problem.align = Align::bottom_right;
                         v.problem.q_offset.clear();
                       }});

// RoPE and ALiBi.

ATTEST_HYPOTHESIS(dq_not_turned, {.id = "dq_not_turned_back",
                                  .sentence = "dQ is that of the rotated q",
                                  .applies = has_rope,
                                  .change_backward = [](BackwardVariant& v) { v.turn_q = 0; }});
ATTEST_HYPOTHESIS(dk_not_turned, {.id = "dk_not_turned_back",
                                  .sentence = "dK is that of the rotated k",
                                  .applies = has_rope,
                                  .change_backward = [](BackwardVariant& v) { v.turn_k = 0; }});
ATTEST_HYPOTHESIS(dqk_not_turned,
                  {.id = "dqk_not_turned_back",
                   .sentence = "dQ and dK are those of the rotated q and k",
                   .applies = has_rope,
                   .change_backward = [](BackwardVariant& v) { v.turn_q = v.turn_k = 0; }});
ATTEST_HYPOTHESIS(dq_turned_forward, {.id = "dq_turned_forward",
                                      .sentence = "dQ is rotated by +theta, not back",
                                      .applies = has_rope,
                                      .change_backward = [](BackwardVariant& v) { v.turn_q = 1; }});
ATTEST_HYPOTHESIS(dk_turned_forward, {.id = "dk_turned_forward",
                                      .sentence = "dK is rotated by +theta, not back",
                                      .applies = has_rope,
                                      .change_backward = [](BackwardVariant& v) { v.turn_k = 1; }});
ATTEST_HYPOTHESIS(
    dk_turned_by_row,
    {.id = "dk_turned_by_row",
     .sentence = "dK is turned back by the key's row in the tensor, not its position",
     .applies = [](Problem p) { return has_rope(p) && (has_lengths(p) || is_packed(p)); },
     .change_backward =
         [](BackwardVariant& v) {
           v.key_angle_position = [](const Rows&, std::int64_t row, std::int64_t) { return row; };
         }});
ATTEST_HYPOTHESIS(dq_turned_without_offset,
                  {.id = "dq_turned_without_offset",
                   .sentence = "dQ is turned back by the query's place among queries, without the "
                               "offset",
                   .applies = has_rope,
                   .change_backward = [](BackwardVariant& v) {
                     v.query_angle_position = [](const Rows& rows, std::int64_t row,
                                                 std::int64_t position) {
                       return position - rows.of_query(row).offset;
                     };
                   }});
ATTEST_HYPOTHESIS(
    turned_in_halves,
    {.id = "rope_pairs_half_in_backward",
     .sentence = "backward pairs channels (t, t + R/2) where forward has (2t, 2t + 1)",
     .applies = [](Problem p) { return p.rope == RopePairing::interleaved; },
     .change_backward = [](BackwardVariant& v) { v.turn_in_halves = true; }});

bool has_d_slopes(Problem p) { return wants_gradient(p, Gradient::slopes); }
ATTEST_HYPOTHESIS(
    d_slope_absolute,
    {.id = "d_slope_of_absolute_distance",
     .sentence = "dSlope of signed ALiBi sums over -|distance|",
     .applies = [](Problem p) { return has_d_slopes(p) && p.alibi == AlibiKind::signed_; },
     .change_backward =
         [](BackwardVariant& v) {
           v.distance = [](const BackwardPair&, double right) { return -std::fabs(right); };
         }});
ATTEST_HYPOTHESIS(d_slope_sign, {.id = "d_slope_sign_flipped",
                                 .sentence = "dSlope has the wrong sign",
                                 .applies = has_d_slopes,
                                 .change_backward = [](BackwardVariant& v) {
                                   v.distance = [](const BackwardPair&, double right) {
                                     return -right;
                                   };
                                 }});
ATTEST_HYPOTHESIS(d_slope_sign_absolute,
                  {.id = "d_slope_sign_flipped/absolute",
                   .sentence = "dSlope of absolute ALiBi forgets that the distance is subtracted",
                   .explains = {"d_slope_sign_flipped"},
                   .applies =
                       [](Problem p) { return has_d_slopes(p) && p.alibi == AlibiKind::absolute; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.distance = [](const BackwardPair&, double right) { return -right; };
                       }});
ATTEST_HYPOTHESIS(
    d_slope_offset,
    {.id = "d_slope_ignores_offset",
     .sentence = "dSlope takes distances from query rows, without the offset",
     .applies = [](Problem p) { return has_d_slopes(p) && p.alibi != AlibiKind::key_anchored; },
     .change_backward =
         [](BackwardVariant& v) {
           v.distance = [&v](const BackwardPair& pair, double) {
             const std::int64_t row = pair.row.at.qpos - pair.row.at.segment->offset;
             const auto distance = static_cast<double>(pair.kpos - row);
             return v.problem.alibi == AlibiKind::absolute ? -std::fabs(distance) : distance;
           };
         }});
ATTEST_HYPOTHESIS(d_slope_softcap,
                  {.id = "d_slope_misses_softcap",
                   .sentence = "dSlope of ALiBi inside the softcap is taken as if it stood outside",
                   .applies =
                       [](Problem p) {
                         return has_d_slopes(p) && has_softcap(p) && p.alibi_inside_softcap;
                       },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.pair = [](BackwardPair& pair) { pair.to_slope = pair.d_z; };
                       }});

}  // namespace
}  // namespace attest
