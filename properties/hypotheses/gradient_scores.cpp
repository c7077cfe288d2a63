// SPDX-License-Identifier: Apache-2.0
// Mistakes of backward in what a pair passes on: through the scale, the softcap, dropout.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool is_scaled(Problem p) { return effective_scale(p) != 1; }
bool has_d_bias(Problem p) { return wants_gradient(p, Gradient::bias); }
bool has_d_slopes(Problem p) { return wants_gradient(p, Gradient::slopes); }

ATTEST_HYPOTHESIS(dq_scale_missing,
                  {.id = "dq_scale_missing",
                   .sentence = "dQ is not multiplied by the scale",
                   .applies = is_scaled,
                   .change_backward = [](BackwardVariant& v) { v.d_q_factor = 1; }});
ATTEST_HYPOTHESIS(dk_scale_missing,
                  {.id = "dk_scale_missing",
                   .sentence = "dK is not multiplied by the scale",
                   .applies = is_scaled,
                   .change_backward = [](BackwardVariant& v) { v.d_k_factor = 1; }});
ATTEST_HYPOTHESIS(dqk_scale_missing,
                  {.id = "dqk_scale_missing",
                   .sentence = "neither dQ nor dK is multiplied by the scale",
                   .applies = is_scaled,
                   .change_backward = [](BackwardVariant& v) { v.d_q_factor = v.d_k_factor = 1; }});
double default_scale(const BackwardVariant& v) {
  return 1 / std::sqrt(static_cast<double>(v.problem.head_dim));
}
ATTEST_HYPOTHESIS(scale_ignored_in_dq,
                  {.id = "user_scale_ignored_in_dq",
                   .sentence = "dQ is multiplied by 1/sqrt(D), whatever scale is given",
                   .applies = [](Problem p) { return p.scale.has_value(); },
                   .change_backward = [](BackwardVariant& v) { v.d_q_factor = default_scale(v); }});
ATTEST_HYPOTHESIS(scale_ignored_in_dk,
                  {.id = "user_scale_ignored_in_dk",
                   .sentence = "dK is multiplied by 1/sqrt(D), whatever scale is given",
                   .applies = [](Problem p) { return p.scale.has_value(); },
                   .change_backward = [](BackwardVariant& v) { v.d_k_factor = default_scale(v); }});

double argument(const BackwardVariant& v, const ScoreParts& parts, bool alibi_too) {
  const bool inside = v.problem.alibi_inside_softcap && alibi_too;
  return parts.scale * parts.dot + (inside ? parts.alibi : 0);
}
double damping(double x) {
  const double t = std::tanh(x);
  return 1 - t * t;
}
ATTEST_HYPOTHESIS(softcap_derivative_missing,
                  {.id = "softcap_derivative_missing",
                   .sentence = "backward passes through the softcap without its derivative",
                   .applies = has_softcap,
                   .change_backward = [](BackwardVariant& v) {
                     v.cap_slope = [](const ScoreParts&) { return 1.0; };
                   }});
ATTEST_HYPOTHESIS(softcap_derivative_of_capped,
                  {.id = "softcap_derivative_of_capped",
                   .sentence = "the softcap's derivative is taken at the capped score",
                   .applies = has_softcap,
                   .change_backward = [](BackwardVariant& v) {
                     v.cap_slope = [&v](const ScoreParts& parts) {
                       return damping(std::tanh(argument(v, parts, true) / v.problem.softcap));
                     };
                   }});
ATTEST_HYPOTHESIS(softcap_derivative_not_squared,
                  {.id = "softcap_derivative_not_squared",
                   .sentence = "the softcap's derivative is taken for 1 - tanh",
                   .applies = has_softcap,
                   .change_backward = [](BackwardVariant& v) {
                     v.cap_slope = [&v](const ScoreParts& parts) {
                       return 1 - std::tanh(argument(v, parts, true) / v.problem.softcap);
                     };
                   }});
ATTEST_HYPOTHESIS(
    softcap_derivative_without_alibi,
    {.id = "softcap_derivative_without_alibi",
     .sentence = "the softcap's derivative forgets the ALiBi term inside it",
     .applies = [](Problem p) { return has_softcap(p) && has_alibi(p) && p.alibi_inside_softcap; },
     .change_backward =
         [](BackwardVariant& v) {
           v.cap_slope = [&v](const ScoreParts& parts) {
             return damping(argument(v, parts, false) / v.problem.softcap);
           };
         }});
ATTEST_HYPOTHESIS(
    softcap_derivative_on_bias,
    {.id = "softcap_derivative_on_bias",
     .sentence = "dBias is multiplied by the derivative of the softcap, which bias "
                 "does not pass",
     .applies = [](Problem p) { return has_softcap(p) && (has_d_bias(p) || has_d_slopes(p)); },
     .change_backward =
         [](BackwardVariant& v) {
           v.pair = [](BackwardPair& pair) { pair.to_bias = pair.to_slope = pair.d_a; };
         }});
ATTEST_HYPOTHESIS(d_bias_scaled,
                  {.id = "d_bias_scaled",
                   .sentence = "dBias is multiplied by the scale",
                   .applies = [](Problem p) { return has_d_bias(p) && is_scaled(p); },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.pair = [](BackwardPair& pair) { pair.to_bias *= pair.parts.scale; };
                       }});

ATTEST_HYPOTHESIS(dropout_ignored_in_backward, {.id = "dropout_ignored_in_backward",
                                                .sentence = "backward drops nothing",
                                                .applies = has_dropout,
                                                .change_backward = [](BackwardVariant& v) {
                                                  v.factor = [](const PairAt&, double) {
                                                    return 1.0;
                                                  };
                                                }});
/// The keep mask of another pair, `step` rows on, as random numbers that begin elsewhere give it.
void drop_as_row(BackwardVariant& v, std::int64_t step) {
  v.factor = [&v, step](const PairAt& at, double right) {
    const std::int64_t row = at.row.i + step;
    if (row < at.row.segment->q0 || row >= at.row.segment->q1) return right;
    return v.inputs.keep.at(at.row.b, at.row.h, row, at.j) ? 1 / (1 - v.problem.dropout_p) : 0;
  };
}
ATTEST_HYPOTHESIS(dropout_of_next_row,
                  {.id = "dropout_mask_differs/next_row",
                   .sentence = "backward drops the pairs that forward drops in the next row",
                   .explains = {"dropout_mask_differs"},
                   .applies = has_dropout,
                   .change_backward = [](BackwardVariant& v) { drop_as_row(v, 1); }});
ATTEST_HYPOTHESIS(dropout_of_row_before,
                  {.id = "dropout_mask_differs/row_before",
                   .sentence = "backward drops the pairs that forward drops in the row before",
                   .explains = {"dropout_mask_differs"},
                   .applies = has_dropout,
                   .change_backward = [](BackwardVariant& v) { drop_as_row(v, -1); }});
ATTEST_HYPOTHESIS(dropout_of_first_head,
                  {.id = "dropout_mask_differs/head_0",
                   .sentence = "backward drops the pairs that forward drops in head 0",
                   .explains = {"dropout_mask_differs"},
                   .applies = [](Problem p) { return has_dropout(p) && p.num_heads > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.factor = [&v](const PairAt& at, double) {
                           return v.inputs.keep.at(at.row.b, 0, at.row.i, at.j)
                                      ? 1 / (1 - v.problem.dropout_p)
                                      : 0;
                         };
                       }});
ATTEST_HYPOTHESIS(dropout_inverted, {.id = "dropout_mask_differs/inverted",
                                     .sentence = "backward keeps the pairs that forward drops",
                                     .explains = {"dropout_mask_differs"},
                                     .applies = has_dropout,
                                     .change_backward = [](BackwardVariant& v) {
                                       v.factor = [&v](const PairAt&, double right) {
                                         return right == 0 ? 1 / (1 - v.problem.dropout_p) : 0;
                                       };
                                     }});
ATTEST_HYPOTHESIS(dv_from_undropped_p, {.id = "dv_from_undropped_p",
                                        .sentence = "dV takes P as it is before dropout",
                                        .applies = has_dropout,
                                        .change_backward = [](BackwardVariant& v) {
                                          v.pair = [](BackwardPair& pair) { pair.to_v = pair.p; };
                                        }});
ATTEST_HYPOTHESIS(dp_without_dropout_factor,
                  {.id = "dp_without_dropout_factor",
                   .sentence = "dP of kept pairs lacks 1/(1 - p)",
                   .applies = has_dropout,
                   .change_backward = [](BackwardVariant& v) {
                     v.pair = [](BackwardPair& pair) {
                       if (pair.factor == 0) return;
                       const double d_z =
                           pair.p * (pair.d_p / pair.factor - pair.row.delta + pair.row.d_lse);
                       pair.to_bias = d_z;
                       pair.to_q = pair.to_k = pair.slope * d_z;
                       pair.to_slope = pair.to_slope == pair.d_a ? pair.to_q : d_z;
                     };
                   }});
ATTEST_HYPOTHESIS(ds_from_dropped_p,
                  {.id = "ds_from_dropped_p",
                   .sentence = "dS takes P as dropout leaves it, so that delta is dropped too",
                   .applies = has_dropout,
                   .change_backward = [](BackwardVariant& v) {
                     v.pair = [](BackwardPair& pair) {
                       for (double* to : {&pair.to_q, &pair.to_k, &pair.to_bias, &pair.to_slope})
                         *to *= pair.factor;
                     };
                   }});
ATTEST_HYPOTHESIS(ds_clipped, {.id = "ds_clipped/1",
                               .sentence = "dS is clipped to [-1, 1]",
                               .explains = {"ds_clipped"},
                               .rank = 1,
                               .change_backward = [](BackwardVariant& v) {
                                 v.pair = [](BackwardPair& pair) {
                                   pair.to_q = std::clamp(pair.to_q, -1.0, 1.0);
                                   pair.to_k = std::clamp(pair.to_k, -1.0, 1.0);
                                 };
                               }});
ATTEST_HYPOTHESIS(backward_dv_from_dqk,
                  {.id = "dv_from_dqk_in_backward",
                   .sentence = "dP sums over the first D of the Dv channels of v",
                   .applies = [](Problem p) { return p.v_head_dim > p.head_dim; },
                   .change_backward =
                       [](BackwardVariant& v) { v.d_p_channels = v.problem.head_dim; }});

}  // namespace
}  // namespace attest
