// SPDX-License-Identifier: Apache-2.0
// Scale, softcap and bias.
#include <fmt/format.h>

#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool given_scale(Problem p) { return p.scale.has_value(); }

ATTEST_HYPOTHESIS(scale_missing, {.id = "scale_missing",
                                  .sentence = "scores are not scaled",
                                  .applies = always,
                                  .change = [](Variant& v) { v.problem.scale = 1; }});
ATTEST_HYPOTHESIS(scale_twice, {.id = "scale_twice",
                                .sentence = "scores are scaled twice",
                                .applies = always,
                                .change = [](Variant& v) {
                                  const double s = effective_scale(v.problem);
                                  v.problem.scale = s * s;
                                }});
ATTEST_HYPOTHESIS(scale_sqrt, {.id = "scale_sqrt",
                               .sentence = "scores are scaled by the root of the scale",
                               .explains = {"scale_half_applied"},
                               .applies = always,
                               .change = [](Variant& v) {
                                 v.problem.scale = std::sqrt(std::fabs(effective_scale(v.problem)));
                               }});
ATTEST_HYPOTHESIS(scale_one_over_dim, {.id = "scale_one_over_dim",
                                       .sentence = "scores are scaled by 1/D, not 1/sqrt(D)",
                                       .explains = {"scale_twice"},
                                       .rank = 1,
                                       .applies = always,
                                       .change = [](Variant& v) {
                                         v.problem.scale =
                                             1 / static_cast<double>(v.problem.head_dim);
                                       }});
ATTEST_HYPOTHESIS(scale_by_model_dim,
                  {.id = "scale_by_model_dim",
                   .sentence = "scores are scaled by 1/sqrt(heads x D), the width of the model",
                   .applies = always,
                   .change = [](Variant& v) {
                     v.problem.scale =
                         1 /
                         std::sqrt(static_cast<double>(v.problem.head_dim * v.problem.num_heads));
                   }});
ATTEST_HYPOTHESIS(scale_by_v_dim,
                  {.id = "scale_by_v_dim",
                   .sentence = "scores are scaled by 1/sqrt(Dv)",
                   .explains = {"dv_from_dqk"},
                   .applies =
                       [](Problem p) { return p.v_head_dim != p.head_dim && p.v_head_dim > 0; },
                   .change =
                       [](Variant& v) {
                         v.problem.scale = 1 / std::sqrt(static_cast<double>(v.problem.v_head_dim));
                       }});
ATTEST_HYPOTHESIS(user_scale_ignored, {.id = "user_scale_ignored",
                                       .sentence = "the given scale is ignored: 1/sqrt(D) is used",
                                       .applies = given_scale,
                                       .change = [](Variant& v) { v.problem.scale.reset(); }});
ATTEST_HYPOTHESIS(scale_absolute,
                  {.id = "scale_absolute",
                   .sentence = "the sign of the scale is lost",
                   .explains = {"scale_sign_lost"},
                   .applies = given_scale,
                   .change = [](Variant& v) { v.problem.scale = std::fabs(*v.problem.scale); }});
ATTEST_HYPOTHESIS(scale_zero_default, {.id = "scale_zero_default",
                                       .sentence = "a scale of 0 is taken for the default",
                                       .explains = {"user_scale_ignored", "scale_zero_is_default"},
                                       .applies = given_scale,
                                       .change = [](Variant& v) {
                                         if (*v.problem.scale == 0) v.problem.scale.reset();
                                       }});
bool constant_dims() {
  for (const std::int64_t dim : {32, 64, 128})
    register_hypothesis(
        {.id = "head_dim_constant/scale" + std::to_string(dim),
         .sentence = with_number("the default scale is that of D = #", dim),
         .rank = 1,
         .applies = [](Problem p) { return !p.scale; },
         .change =
             [dim](Variant& v) { v.problem.scale = 1 / std::sqrt(static_cast<double>(dim)); }});
  return true;
}
[[maybe_unused]] const bool constant_dims_are_known = constant_dims();

ATTEST_HYPOTHESIS(softcap_ignored, {.id = "softcap_ignored",
                                    .sentence = "the softcap is ignored",
                                    .applies = has_softcap,
                                    .change = [](Variant& v) {
                                      v.problem.softcap = 0;
                                      v.problem.alibi_inside_softcap = false;
                                    }});
ATTEST_HYPOTHESIS(softcap_after_mask,
                  {.id = "softcap_after_mask",
                   .sentence = "the softcap comes after the mask: hidden scores become -softcap",
                   .applies = [](Problem p) { return has_softcap(p) && hides(p); },
                   .change =
                       [](Variant& v) {
                         v.sees = [](const PairAt& at) { return at.in_range; };
                         v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                           ScoreParts own = parts;
                           const bool hidden = !at.seen || own.bias == kMinusInf;
                           if (hidden) return -v.problem.softcap;
                           return defined_score(v.problem, own);
                         };
                       }});
double cap(double x, double softcap) { return softcap * std::tanh(x / softcap); }
ATTEST_HYPOTHESIS(softcap_after_mask_and_bias,
                  {.id = "softcap_after_mask_and_bias",
                   .sentence = "the softcap comes last, after bias and mask",
                   .explains = {"softcap_after_mask", "softcap_after_bias"},
                   .applies = has_softcap,
                   .change = [](Variant& v) {
                     v.sees = [](const PairAt& at) { return at.in_range; };
                     v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                       if (!at.seen || parts.bias == kMinusInf) return -v.problem.softcap;
                       return cap(parts.scale * parts.dot + parts.alibi + parts.bias,
                                  v.problem.softcap);
                     };
                   }});
ATTEST_HYPOTHESIS(
    softcap_after_bias,
    {.id = "softcap_after_bias",
     .sentence = "the softcap is applied after the bias",
     .explains = {"softcap_after_mask"},
     .applies = [](Problem p) { return has_softcap(p) && (has_bias(p) || has_alibi(p)); },
     .change =
         [](Variant& v) {
           v.score = [&v](const PairAt&, const ScoreParts& parts) {
             if (parts.bias == kMinusInf) return kMinusInf;
             return cap(parts.scale * parts.dot + parts.alibi + parts.bias, v.problem.softcap);
           };
         }});
ATTEST_HYPOTHESIS(softcap_before_scale, {.id = "softcap_before_scale",
                                         .sentence = "the softcap is applied before the scale",
                                         .applies = has_softcap,
                                         .change = [](Variant& v) {
                                           v.score = [&v](const PairAt&, const ScoreParts& parts) {
                                             return parts.scale *
                                                        cap(parts.dot, v.problem.softcap) +
                                                    parts.alibi + parts.bias;
                                           };
                                         }});
ATTEST_HYPOTHESIS(softcap_not_multiplied,
                  {.id = "softcap_not_multiplied",
                   .sentence = "tanh(score / softcap) is not multiplied by the softcap",
                   .applies = has_softcap,
                   .change = [](Variant& v) {
                     v.score = [&v](const PairAt&, const ScoreParts& parts) {
                       const bool inside = v.problem.alibi_inside_softcap;
                       const double a = parts.scale * parts.dot + (inside ? parts.alibi : 0);
                       return std::tanh(a / v.problem.softcap) + (inside ? 0 : parts.alibi) +
                              parts.bias;
                     };
                   }});
bool naive_tanh(Problem p) { return has_softcap(p); }
bool naive_tanh_families() {
  // exp(2x) or exp(x) overflows a float beyond 88.7.
  for (const double factor : {1.0, 2.0, -1.0, -2.0})
    register_hypothesis(
        {.id = "softcap_naive_tanh/" + std::to_string(static_cast<int>(factor)),
         .sentence = "tanh is computed from exp without care: NaN where it overflows",
         .explains = {"softcap_naive_tanh"},
         .applies = naive_tanh,
         .change = [factor](Variant& v) {
           v.score = [&v, factor](const PairAt&, const ScoreParts& parts) {
             const double most = v.problem.dtype == DType::f64 ? 709.78 : 88.72;
             const bool inside = v.problem.alibi_inside_softcap;
             const double x =
                 (parts.scale * parts.dot + (inside ? parts.alibi : 0)) / v.problem.softcap;
             const bool overflows =
                 std::fabs(factor) == 1 ? std::fabs(x) > most : factor * x > most;
             return overflows ? kQuietNaN : defined_score(v.problem, parts);
           };
         }});
  return true;
}
[[maybe_unused]] const bool naive_tanh_is_known = naive_tanh_families();

ATTEST_HYPOTHESIS(bias_ignored, {.id = "bias_ignored",
                                 .sentence = "the bias is ignored",
                                 .applies = has_bias,
                                 .change = [](Variant& v) { v.inputs.bias = {}; }});
ATTEST_HYPOTHESIS(bias_lost_causal,
                  {.id = "bias_forgotten_when_causal",
                   .sentence = "the bias is ignored where base=causal",
                   .applies = [](Problem p) { return has_bias(p) && is_causal(p); },
                   .change = [](Variant& v) { v.inputs.bias = {}; }});
ATTEST_HYPOTHESIS(bias_before_scale, {.id = "bias_before_scale",
                                      .sentence = "the bias is added before the scale",
                                      .applies = has_bias,
                                      .change = [](Variant& v) {
                                        v.score = [&v](const PairAt&, const ScoreParts& parts) {
                                          ScoreParts own = parts;
                                          if (own.bias == kMinusInf) return kMinusInf;
                                          own.bias = 0;
                                          own.dot += parts.bias;
                                          return defined_score(v.problem, own);
                                        };
                                      }});
ATTEST_HYPOTHESIS(bias_scaled, {.id = "bias_scaled",
                                .sentence = "the bias is multiplied by the scale",
                                .explains = {"bias_before_scale"},
                                .applies = has_bias,
                                .change = [](Variant& v) {
                                  for (double& x : v.inputs.bias.values)
                                    if (std::isfinite(x)) x *= effective_scale(v.problem);
                                }});
ATTEST_HYPOTHESIS(bias_negated, {.id = "bias_negated",
                                 .sentence = "the bias is subtracted",
                                 .applies = has_bias,
                                 .change = [](Variant& v) {
                                   for (double& x : v.inputs.bias.values)
                                     if (std::isfinite(x)) x = -x;
                                 }});
ATTEST_HYPOTHESIS(bias_twice, {.id = "bias_twice",
                               .sentence = "the bias is added twice",
                               .applies = has_bias,
                               .change = [](Variant& v) {
                                 for (double& x : v.inputs.bias.values) x *= 2;
                               }});
ATTEST_HYPOTHESIS(bias_neg_inf_finite, {.id = "bias_neg_inf_as_zero",
                                        .sentence = "a bias of -inf does not hide its key",
                                        .explains = {"bias_neg_inf_clamped"},
                                        .applies = has_bias,
                                        .change = [](Variant& v) {
                                          for (double& x : v.inputs.bias.values)
                                            if (x == kMinusInf) x = 0;
                                        }});

bool bias_clamps() {
  for (const double least : {-1e4, -3e4, -65504.0, -1e9, -3.4028234663852886e38})
    register_hypothesis(
        {.id = "bias_neg_inf_clamped/" + fmt::format("{:g}", least),
         .sentence = fmt::format(
             "a bias below {:g} counts as {:g}: its key is seen where no other is", least, least),
         .explains = {"bias_neg_inf_clamped"},
         .rank = 1,
         .applies = has_bias,
         .change = [least](Variant& v) {
           for (double& x : v.inputs.bias.values) x = std::max(x, least);
         }});
  return true;
}
[[maybe_unused]] const bool bias_clamps_are_known = bias_clamps();

void reread_bias(Variant& v, std::int64_t (*b)(const RowAt&), std::int64_t (*h)(const RowAt&),
                 bool first_row, bool transposed) {
  v.score = [&v, b, h, first_row, transposed](const PairAt& at, const ScoreParts& parts) {
    const auto& bias = v.inputs.bias;
    const auto wrap = [](std::int64_t x, std::int64_t extent) {
      return extent > 0 ? x % extent : 0;
    };
    std::int64_t i = first_row ? 0 : at.row.i, j = at.j;
    if (transposed) std::swap(i, j);
    ScoreParts own = parts;
    own.bias =
        bias.values[bias.index(wrap(b(at.row), bias.shape[0]), wrap(h(at.row), bias.shape[1]),
                               wrap(i, bias.shape[2]), wrap(j, bias.shape[3]))];
    return defined_score(v.problem, own);
  };
}
std::int64_t own_b(const RowAt& at) { return at.b; }
std::int64_t own_h(const RowAt& at) { return at.h; }
std::int64_t zero(const RowAt&) { return 0; }
std::int64_t kv_of(const RowAt& at) { return at.kv; }
ATTEST_HYPOTHESIS(bias_head_zero,
                  {.id = "bias_of_first_head",
                   .sentence = "every head gets the bias of the first",
                   .explains = {"bias_of_head_0"},
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, own_b, zero, false, false); }});
ATTEST_HYPOTHESIS(bias_batch_zero,
                  {.id = "bias_of_first_batch",
                   .sentence = "every sequence gets the bias of the first",
                   .explains = {"bias_of_sequence_0"},
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, zero, own_h, false, false); }});
ATTEST_HYPOTHESIS(bias_batch_as_head,
                  {.id = "bias_batch_taken_for_head",
                   .sentence = "the bias's batch axis is taken for its head axis",
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, own_h, own_b, false, false); }});
ATTEST_HYPOTHESIS(bias_kv_head,
                  {.id = "bias_of_kv_head",
                   .sentence = "the bias is read by the key/value head",
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, own_b, kv_of, false, false); }});
ATTEST_HYPOTHESIS(bias_row_zero,
                  {.id = "bias_of_first_row",
                   .sentence = "every query gets the first row of the bias",
                   .explains = {"bias_of_row_0"},
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, own_b, own_h, true, false); }});
ATTEST_HYPOTHESIS(bias_transposed,
                  {.id = "bias_transposed",
                   .sentence = "the bias's query and key axes are swapped",
                   .applies = has_bias,
                   .change = [](Variant& v) { reread_bias(v, own_b, own_h, false, true); }});
ATTEST_HYPOTHESIS(bias_as_keep,
                  {.id = "additive_mask_read_as_keep",
                   .sentence = "the bias is read as a keep mask: visible where it is not 0",
                   .applies = has_bias,
                   .change = [](Variant& v) {
                     v.score = [&v](const PairAt&, const ScoreParts& parts) {
                       ScoreParts own = parts;
                       if (own.bias == 0) return kMinusInf;
                       own.bias = 0;
                       return defined_score(v.problem, own);
                     };
                   }});
ATTEST_HYPOTHESIS(f16_overflow, {.id = "unscaled_qk_overflows_fp16",
                                 .sentence = "q.k overflows f16 before it is scaled: NaN",
                                 .applies = always,
                                 .change = [](Variant& v) {
                                   v.score = [&v](const PairAt&, const ScoreParts& parts) {
                                     ScoreParts own = parts;
                                     own.dot = round_to(DType::f16, parts.dot);
                                     return defined_score(v.problem, own);
                                   };
                                 }});

}  // namespace
}  // namespace attest
