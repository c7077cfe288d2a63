// SPDX-License-Identifier: Apache-2.0
// ALiBi and RoPE.
#include <bit>

#include "properties/hypotheses/common.hpp"
#include "reference/alibi.hpp"
#include "reference/definition.hpp"

namespace attest {
namespace {

void use_kind(Variant& v, AlibiKind kind) { v.problem.alibi = kind; }
template <AlibiKind kKind>
bool other_kind(Problem p) {
  return has_alibi(p) && p.alibi != kKind;
}
ATTEST_HYPOTHESIS(alibi_ignored, {.id = "alibi_ignored",
                                  .sentence = "ALiBi is ignored",
                                  .applies = has_alibi,
                                  .change = [](Variant& v) { use_kind(v, AlibiKind::none); }});
ATTEST_HYPOTHESIS(alibi_absolute,
                  {.id = "alibi_absolute",
                   .sentence = "ALiBi by absolute distance; another kind was asked for",
                   .explains = {"alibi_anchor_by_entry_point", "alibi_kind",
                                "alibi_absolute_for_signed"},
                   .applies = other_kind<AlibiKind::absolute>,
                   .change = [](Variant& v) { use_kind(v, AlibiKind::absolute); }});
ATTEST_HYPOTHESIS(alibi_signed, {.id = "alibi_signed",
                                 .sentence = "ALiBi by signed distance; another kind was asked for",
                                 .explains = {"alibi_anchor_by_entry_point", "alibi_kind",
                                              "alibi_signed_for_absolute"},
                                 .applies = other_kind<AlibiKind::signed_>,
                                 .change = [](Variant& v) { use_kind(v, AlibiKind::signed_); }});
ATTEST_HYPOTHESIS(alibi_key_anchored,
                  {.id = "alibi_key_anchored",
                   .sentence = "ALiBi anchored at the keys; another kind was asked for",
                   .explains = {"alibi_anchor_by_entry_point", "alibi_kind"},
                   .applies = other_kind<AlibiKind::key_anchored>,
                   .change = [](Variant& v) { use_kind(v, AlibiKind::key_anchored); }});
ATTEST_HYPOTHESIS(alibi_causal_anchor,
                  {.id = "alibi_anchor_by_base",
                   .sentence = "ALiBi is anchored at the keys where base=causal alone",
                   .explains = {"alibi_anchor_by_entry_point"},
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     if (v.problem.base == Base::causal) use_kind(v, AlibiKind::key_anchored);
                   }});
ATTEST_HYPOTHESIS(alibi_mirrored, {.id = "alibi_reversed",
                                   .sentence = "ALiBi favours later keys: m |kpos - qpos| ahead",
                                   .explains = {"alibi_signed_for_absolute"},
                                   .applies = has_alibi,
                                   .change = [](Variant& v) {
                                     if (v.problem.alibi == AlibiKind::absolute)
                                       use_kind(v, AlibiKind::signed_);
                                   }});
ATTEST_HYPOTHESIS(alibi_no_future,
                  {.id = "alibi_future_clamped",
                   .sentence = "ALiBi is 0 for keys ahead of the query",
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                       ScoreParts own = parts;
                       if (at.kpos > at.row.qpos && v.problem.alibi != AlibiKind::key_anchored)
                         own.alibi = 0;
                       return defined_score(v.problem, own);
                     };
                   }});
void use_slopes(Variant& v, double (*slope)(const Variant&, std::int64_t b, std::int64_t h)) {
  const auto old = v.inputs.slopes;
  Dense<double> slopes({v.problem.batch, v.problem.num_heads, 1, 1});
  for (std::int64_t b = 0; b < v.problem.batch; ++b)
    for (std::int64_t h = 0; h < v.problem.num_heads; ++h) slopes.at(b, h, 0, 0) = slope(v, b, h);
  v.inputs.slopes = slopes;
}
/// The largest power of two that is no more than the heads.
std::int64_t power_of_two_heads(Problem p) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(p.num_heads)));
}
double slope_of(const Variant& v, std::int64_t b, std::int64_t h) {
  const auto& slopes = v.inputs.slopes;
  return slopes.values[slopes.broadcast_index(b, h, 0, 0)];
}
ATTEST_HYPOTHESIS(alibi_plain_power,
                  {.id = "alibi_slopes_plain_power",
                   .sentence = "ALiBi slopes are 2^(-8(h+1)/H), also where H is no power of two",
                   .explains = {"alibi_slopes_non_pow2"},
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     use_slopes(v, [](const Variant& of, std::int64_t, std::int64_t h) {
                       return std::exp2(-8.0 * static_cast<double>(h + 1) /
                                        static_cast<double>(of.problem.num_heads));
                     });
                   }});
ATTEST_HYPOTHESIS(alibi_standard,
                  {.id = "alibi_slopes_ignored",
                   .sentence = "the given ALiBi slopes are ignored: the standard ones are used",
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     use_slopes(v, [](const Variant& of, std::int64_t, std::int64_t h) {
                       return alibi_slope(h, of.problem.num_heads);
                     });
                   }});
ATTEST_HYPOTHESIS(alibi_continued,
                  {.id = "alibi_slopes_non_pow2",
                   .sentence = "ALiBi slopes beyond the power of two continue the first sequence",
                   .explains = {"alibi_slopes_plain_power"},
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     use_slopes(v, [](const Variant& of, std::int64_t, std::int64_t h) {
                       return std::exp2(-8.0 * static_cast<double>(h + 1) /
                                        static_cast<double>(power_of_two_heads(of.problem)));
                     });
                   }});
ATTEST_HYPOTHESIS(
    alibi_wrapped,
    {.id = "alibi_slopes_non_pow2/wrapped",
     .sentence = "heads beyond a power of two take the ALiBi slopes of the first heads",
     .explains = {"alibi_slopes_non_pow2"},
     .applies = has_alibi,
     .change = [](Variant& v) {
       use_slopes(v, [](const Variant& of, std::int64_t b, std::int64_t h) {
         return slope_of(of, b, h % power_of_two_heads(of.problem));
       });
     }});
ATTEST_HYPOTHESIS(alibi_first_head, {.id = "alibi_slope_of_first_head",
                                     .sentence = "every head gets the ALiBi slope of the first",
                                     .explains = {"alibi_slope_wrong_head"},
                                     .applies = has_alibi,
                                     .change = [](Variant& v) {
                                       use_slopes(
                                           v, [](const Variant& of, std::int64_t b, std::int64_t) {
                                             return slope_of(of, b, 0);
                                           });
                                     }});
ATTEST_HYPOTHESIS(alibi_kv_head, {.id = "alibi_slope_of_kv_head",
                                  .sentence = "ALiBi slopes are read by the key/value head",
                                  .explains = {"alibi_slope_wrong_head"},
                                  .applies = has_alibi,
                                  .change = [](Variant& v) {
                                    use_slopes(
                                        v, [](const Variant& of, std::int64_t b, std::int64_t h) {
                                          return slope_of(of, b, kv_head(of.problem, h));
                                        });
                                  }});
ATTEST_HYPOTHESIS(alibi_next_head, {.id = "alibi_slope_of_next_head",
                                    .sentence = "ALiBi slopes are off by one head",
                                    .explains = {"alibi_slope_wrong_head"},
                                    .applies = has_alibi,
                                    .change = [](Variant& v) {
                                      use_slopes(
                                          v, [](const Variant& of, std::int64_t b, std::int64_t h) {
                                            return slope_of(of, b, (h + 1) % of.problem.num_heads);
                                          });
                                    }});
ATTEST_HYPOTHESIS(alibi_first_batch,
                  {.id = "alibi_slope_of_first_batch",
                   .sentence = "every sequence gets the ALiBi slopes of the first",
                   .explains = {"alibi_slope_wrong_batch", "alibi_slope_of_sequence_0"},
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     use_slopes(v, [](const Variant& of, std::int64_t, std::int64_t h) {
                       return slope_of(of, 0, h);
                     });
                   }});
ATTEST_HYPOTHESIS(alibi_negated, {.id = "alibi_sign_flipped",
                                  .sentence = "the sign of ALiBi is wrong",
                                  .applies = has_alibi,
                                  .change = [](Variant& v) {
                                    use_slopes(
                                        v, [](const Variant& of, std::int64_t b, std::int64_t h) {
                                          return -slope_of(of, b, h);
                                        });
                                  }});
ATTEST_HYPOTHESIS(alibi_scaled,
                  {.id = "alibi_scaled",
                   .sentence = "ALiBi is multiplied by the scale",
                   .applies = [](Problem p) { return has_alibi(p) && !p.alibi_inside_softcap; },
                   .change =
                       [](Variant& v) {
                         use_slopes(v, [](const Variant& of, std::int64_t b, std::int64_t h) {
                           return slope_of(of, b, h) * effective_scale(of.problem);
                         });
                       }});
ATTEST_HYPOTHESIS(alibi_outside,
                  {.id = "alibi_outside_softcap",
                   .sentence = "ALiBi is added outside the softcap; declared inside",
                   .explains = {"alibi_never_inside_softcap"},
                   .applies = [](Problem p) { return has_alibi(p) && p.alibi_inside_softcap; },
                   .change = [](Variant& v) { v.problem.alibi_inside_softcap = false; }});
ATTEST_HYPOTHESIS(
    alibi_inside,
    {.id = "alibi_inside_softcap",
     .sentence = "ALiBi is added inside the softcap; declared outside",
     .explains = {"softcap_after_bias"},
     .applies = [](Problem p) { return has_alibi(p) && has_softcap(p) && !p.alibi_inside_softcap; },
     .change = [](Variant& v) { v.problem.alibi_inside_softcap = true; }});
void move_alibi(Variant& v, std::int64_t (*query)(const PairAt&),
                std::int64_t (*key)(const PairAt&)) {
  v.score = [&v, query, key](const PairAt& at, const ScoreParts& parts) {
    ScoreParts own = parts;
    own.alibi = alibi_term(v.problem.alibi, slope_of(v, at.row.b, at.row.h), query(at), key(at));
    return defined_score(v.problem, own);
  };
}
ATTEST_HYPOTHESIS(alibi_no_offset,
                  {.id = "alibi_anchor_by_entry_point",
                   .sentence = "ALiBi measures from the query's row, without the offset",
                   .explains = {"alibi_ignores_offset"},
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     move_alibi(
                         v, [](const PairAt& at) { return at.row.i - at.row.segment->q0; },
                         [](const PairAt& at) { return at.kpos; });
                   }});
ATTEST_HYPOTHESIS(alibi_by_rows,
                  {.id = "alibi_by_rows",
                   .sentence = "ALiBi measures between row numbers, pads included",
                   .explains = {"alibi_anchor_by_entry_point", "alibi_ignores_offset"},
                   .rank = 1,
                   .applies = has_alibi,
                   .change = [](Variant& v) {
                     move_alibi(
                         v, [](const PairAt& at) { return at.row.i; },
                         [](const PairAt& at) { return at.j; });
                   }});

ATTEST_HYPOTHESIS(rope_ignored, {.id = "rope_ignored",
                                 .sentence = "RoPE is ignored",
                                 .applies = has_rope,
                                 .change = [](Variant& v) { v.rotate_q = v.rotate_k = false; }});
ATTEST_HYPOTHESIS(rope_half,
                  {.id = "rope_half_for_interleaved",
                   .sentence = "RoPE pairs channels as half; declared interleaved",
                   .explains = {"pairs_half_for_interleaved", "rope_pairing"},
                   .applies = [](Problem p) { return p.rope == RopePairing::interleaved; },
                   .change = [](Variant& v) { v.problem.rope = RopePairing::half; }});
ATTEST_HYPOTHESIS(rope_interleaved,
                  {.id = "rope_interleaved_for_half",
                   .sentence = "RoPE pairs channels as interleaved; declared half",
                   .explains = {"pairs_half_for_interleaved", "pairs_interleaved_for_half",
                                "rope_pairing"},
                   .applies = [](Problem p) { return p.rope == RopePairing::half; },
                   .change = [](Variant& v) { v.problem.rope = RopePairing::interleaved; }});
ATTEST_HYPOTHESIS(rope_q_only, {.id = "rope_q_only",
                                .sentence = "RoPE rotates q but not k",
                                .explains = {"rope_queries_only"},
                                .applies = has_rope,
                                .change = [](Variant& v) { v.rotate_k = false; }});
ATTEST_HYPOTHESIS(rope_k_only, {.id = "rope_k_only",
                                .sentence = "RoPE rotates k but not q",
                                .applies = has_rope,
                                .change = [](Variant& v) { v.rotate_q = false; }});
ATTEST_HYPOTHESIS(rope_rotates_v, {.id = "rope_rotates_v",
                                   .sentence = "RoPE rotates v too",
                                   .explains = {"rotates_v"},
                                   .applies = has_rope,
                                   .change = [](Variant& v) { v.rotate_v = true; }});
ATTEST_HYPOTHESIS(rope_sign, {.id = "rope_sign_flipped",
                              .sentence = "RoPE rotates the wrong way",
                              .explains = {"sign_flipped", "rope_query_sign"},
                              .applies = has_rope,
                              .change = [](Variant& v) { v.rotation_sign = -1; }});
ATTEST_HYPOTHESIS(rope_offset_zero,
                  {.id = "rope_offset_zero_in_decode",
                   .sentence = "RoPE counts query positions from 0, without the offset",
                   .explains = {"positions_local", "rope_table_from_row_0"},
                   .applies = has_rope,
                   .change = [](Variant& v) { v.query_offset_in_angles = false; }});
ATTEST_HYPOTHESIS(rope_partial_ignored,
                  {.id = "rope_partial_ignored",
                   .sentence = "RoPE rotates every channel, though rope_dim says fewer",
                   .explains = {"partial_ignored"},
                   .applies = has_rope,
                   .change = [](Variant& v) { v.problem.rope_dim = 0; }});
ATTEST_HYPOTHESIS(rope_linear_ignored, {.id = "rope_linear_ignored",
                                        .sentence = "the linear scaling of RoPE is ignored",
                                        .applies = has_rope,
                                        .change = [](Variant& v) { v.problem.rope_scale = 1; }});
ATTEST_HYPOTHESIS(rope_ntk_ignored, {.id = "rope_ntk_ignored",
                                     .sentence = "the NTK factor of RoPE is ignored",
                                     .applies = has_rope,
                                     .change = [](Variant& v) { v.problem.rope_ntk = 1; }});
ATTEST_HYPOTHESIS(rope_base_ignored, {.id = "rope_base_ignored",
                                      .sentence = "RoPE uses base 10000, whatever is asked for",
                                      .explains = {"rope_base_fixed"},
                                      .applies = has_rope,
                                      .change = [](Variant& v) { v.problem.rope_base = 10000; }});
ATTEST_HYPOTHESIS(rope_by_rows, {.id = "rope_by_rows",
                                 .sentence = "RoPE uses row numbers, pads and segments ignored",
                                 .explains = {"positions_local", "positions_continue",
                                              "rope_positions_from_row_0", "rope_table_from_row_0"},
                                 .applies = has_rope,
                                 .change = [](Variant& v) {
                                   v.query_angle_position = [](const Rows&, std::int64_t row,
                                                               std::int64_t) { return row; };
                                   v.key_angle_position = v.query_angle_position;
                                 }});
ATTEST_HYPOTHESIS(rope_query_rows,
                  {.id = "rope_query_rows",
                   .sentence = "RoPE uses the row number of the query as its position",
                   .explains = {"rope_offset_zero_in_decode", "positions_local",
                                "rope_positions_from_row_0", "rope_table_from_row_0"},
                   .applies = has_rope,
                   .change = [](Variant& v) {
                     v.query_angle_position = [](const Rows&, std::int64_t row, std::int64_t) {
                       return row;
                     };
                   }});
ATTEST_HYPOTHESIS(rope_from_one, {.id = "rope_query_plus_one",
                                  .sentence = "RoPE positions of queries are off by one",
                                  .explains = {"rope_positions_from_one"},
                                  .applies = has_rope,
                                  .change = [](Variant& v) {
                                    v.query_angle_position = [](const Rows&, std::int64_t,
                                                                std::int64_t position) {
                                      return position + 1;
                                    };
                                  }});

}  // namespace
}  // namespace attest
