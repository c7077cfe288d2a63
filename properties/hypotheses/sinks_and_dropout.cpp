// SPDX-License-Identifier: Apache-2.0
// Sinks and dropout.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

void change_sink(Variant& v, double (*sink)(const AttentionProblem&, double)) {
  for (double& x : v.inputs.sink.values)
    if (x > kMinusInf) x = sink(v.problem, x);
}
ATTEST_HYPOTHESIS(sink_dropped, {.id = "sink_dropped",
                                 .sentence = "the sink is ignored",
                                 .applies = has_sink,
                                 .change = [](Variant& v) { v.inputs.sink = {}; }});
ATTEST_HYPOTHESIS(sink_not_in_lse,
                  {.id = "sink_not_in_lse",
                   .sentence = "lse leaves the sink out",
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     v.finish = [&v](const RowAt& at, RowOutput& out) {
                       const double sink = v.inputs.sink.at(0, at.h, 0, 0);
                       if (out.outcome == RowOutcome::empty) out.lse = kMinusInf;
                       if (out.outcome == RowOutcome::ordinary && sink > kMinusInf) {
                         // By difference only where that is well conditioned.
                         const double rest = out.sum - std::exp(sink - out.max);
                         if (rest > 1e-3 * out.sum)
                           out.lse = out.max + std::log(rest);
                         else
                           out.lse_unknown = true;
                       }
                     };
                   }});
ATTEST_HYPOTHESIS(sink_in_lse_alone,
                  {.id = "sink_in_lse_alone",
                   .sentence = "the sink is in lse but not in the weights of o",
                   .explains = {"sink_dropped", "sink_in_lse_only"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     v.finish = [&v](const RowAt& at, RowOutput& out) {
                       const double sink = v.inputs.sink.at(0, at.h, 0, 0);
                       if (out.outcome != RowOutcome::ordinary || sink == kMinusInf) return;
                       const double rest = out.sum - std::exp(sink - out.max);
                       out.o_unknown = !(rest > 1e-3 * out.sum);
                       for (double& x : out.o) x *= out.sum / rest;
                     };
                   }});
ATTEST_HYPOTHESIS(sink_scaled,
                  {.id = "sink_scaled_or_softcapped",
                   .sentence = "the sink is multiplied by the scale",
                   .explains = {"sink_scaled"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem p, double x) { return x * effective_scale(p); });
                   }});
ATTEST_HYPOTHESIS(sink_softcapped,
                  {.id = "sink_softcapped",
                   .sentence = "the sink is softcapped",
                   .explains = {"sink_scaled_or_softcapped"},
                   .applies = [](Problem p) { return has_sink(p) && has_softcap(p); },
                   .change =
                       [](Variant& v) {
                         change_sink(v, [](Problem p, double x) {
                           return p.softcap * std::tanh(x / p.softcap);
                         });
                       }});
ATTEST_HYPOTHESIS(sink_scaled_and_capped,
                  {.id = "sink_scaled_and_softcapped",
                   .sentence = "the sink is scaled and softcapped like a score",
                   .explains = {"sink_scaled_or_softcapped"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem p, double x) {
                       const double a = x * effective_scale(p);
                       return p.softcap > 0 ? p.softcap * std::tanh(a / p.softcap) : a;
                     });
                   }});
ATTEST_HYPOTHESIS(sink_first_head, {.id = "sink_of_first_head",
                                    .sentence = "every head gets the sink of the first",
                                    .explains = {"sink_of_wrong_head", "sink_of_head_0"},
                                    .applies = has_sink,
                                    .change = [](Variant& v) {
                                      auto& s = v.inputs.sink.values;
                                      if (!s.empty()) s.assign(s.size(), s.front());
                                    }});
ATTEST_HYPOTHESIS(sink_kv_head, {.id = "sink_of_kv_head",
                                 .sentence = "the sink is read by the key/value head",
                                 .explains = {"sink_of_wrong_head"},
                                 .applies = has_sink,
                                 .change = [](Variant& v) {
                                   const auto s = v.inputs.sink;
                                   for (std::int64_t h = 0; h < v.problem.num_heads; ++h)
                                     v.inputs.sink.at(0, h, 0, 0) =
                                         s.at(0, kv_head(v.problem, h), 0, 0);
                                 }});
ATTEST_HYPOTHESIS(sink_as_key_zero,
                  {.id = "sink_is_zero_logit",
                   .sentence = "the sink is taken for a logit of 0, whatever is given",
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem, double) { return 0.0; });
                   }});
ATTEST_HYPOTHESIS(sink_lost_empty, {.id = "sink_lost_in_empty_row",
                                    .sentence = "an empty row loses its sink: lse is -inf",
                                    .explains = {"sink_lost_when_split_empty",
                                                 "empty_row_sink_lost", "empty_row_forgets_sink"},
                                    .applies = has_sink,
                                    .change = [](Variant& v) {
                                      v.finish = [](const RowAt&, RowOutput& out) {
                                        if (out.outcome == RowOutcome::empty) out.lse = kMinusInf;
                                      };
                                    }});

void change_dropout(Variant& v, double (*f)(double p, double f)) {
  v.weigh = [&v, f](const RowAt&, WeighedRow& row) {
    for (double& x : row.dropout) x = f(v.problem.dropout_p, x);
  };
}
ATTEST_HYPOTHESIS(dropout_ignored, {.id = "dropout_ignored",
                                    .sentence = "dropout is ignored",
                                    .applies = has_dropout,
                                    .change = [](Variant& v) {
                                      change_dropout(v, [](double, double) { return 1.0; });
                                    }});
ATTEST_HYPOTHESIS(dropout_not_scaled,
                  {.id = "dropout_not_scaled",
                   .sentence = "kept weights are not divided by 1 - p",
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     change_dropout(v, [](double, double x) { return x == 0 ? 0.0 : 1.0; });
                   }});
ATTEST_HYPOTHESIS(dropout_scaled_twice, {.id = "dropout_scaled_twice",
                                         .sentence = "kept weights are divided by 1 - p twice",
                                         .applies = has_dropout,
                                         .change = [](Variant& v) {
                                           change_dropout(v,
                                                          [](double, double x) { return x * x; });
                                         }});
ATTEST_HYPOTHESIS(dropout_by_p, {.id = "dropout_scaled_by_p",
                                 .sentence = "kept weights are divided by p, not 1 - p",
                                 .applies = has_dropout,
                                 .change = [](Variant& v) {
                                   change_dropout(
                                       v, [](double p, double x) { return x == 0 ? 0.0 : 1 / p; });
                                 }});
ATTEST_HYPOTHESIS(dropout_inverted,
                  {.id = "dropout_inverted",
                   .sentence = "the keep mask of dropout is read the other way round",
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     for (auto& x : v.inputs.keep.values) x = x == 0;
                   }});
/// Dropped keys are hidden before the softmax; what is kept is divided by 1 - p or not.
void drop_scores(Variant& v, bool scaled, bool lse_too) {
  v.weigh = [scaled, lse_too](const RowAt&, WeighedRow& row) {
    if (row.keys.empty()) return;
    double dropped = 0;
    for (std::size_t n = 0; n < row.keys.size(); ++n)
      if (row.dropout[n] == 0) dropped += row.weight[n];
    const double kept = row.sum - dropped;
    if (!lse_too) {
      for (double& x : row.dropout)
        if (x != 0) x = (scaled ? x : 1) * row.sum / kept;
      return;
    }
    for (double& x : row.dropout)
      if (x != 0 && !scaled) x = 1;
    row.sum = kept;
  };
  v.finish = [](const RowAt&, RowOutput& out) {
    // Nothing kept: what comes out then is a convention of its own.
    if (out.outcome == RowOutcome::ordinary && !(out.sum > 1e-6))
      out.o_unknown = out.lse_unknown = true;
    for (const double x : out.o) out.o_unknown |= !std::isfinite(x);
  };
}
ATTEST_HYPOTHESIS(dropout_before,
                  {.id = "dropout_before_softmax",
                   .sentence = "dropout is applied to the scores, before the softmax",
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, false, true); }});
ATTEST_HYPOTHESIS(dropout_before_scaled,
                  {.id = "dropout_before_softmax/scaled",
                   .sentence = "dropped keys leave the sum of the weights too",
                   .explains = {"dropout_before_softmax"},
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, true, true); }});
ATTEST_HYPOTHESIS(dropout_renormalised,
                  {.id = "dropout_renormalised",
                   .sentence = "kept weights are renormalised to sum to 1",
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, false, false); }});
ATTEST_HYPOTHESIS(dropout_renormalised_keys,
                  {.id = "dropout_renormalised/keys",
                   .sentence = "kept weights are renormalised to sum to 1, the sink left out",
                   .explains = {"dropout_renormalised"},
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     v.weigh = [](const RowAt&, WeighedRow& row) {
                       double kept = 0;
                       for (std::size_t n = 0; n < row.keys.size(); ++n)
                         if (row.dropout[n] != 0) kept += row.weight[n];
                       for (double& x : row.dropout)
                         if (x != 0) x = row.sum / kept;
                     };
                   }});
ATTEST_HYPOTHESIS(dropout_in_lse, {.id = "dropout_factor_in_lse",
                                   .sentence = "lse carries the factor 1/(1 - p)",
                                   .applies = has_dropout,
                                   .change = [](Variant& v) {
                                     v.finish = [&v](const RowAt&, RowOutput& out) {
                                       if (out.outcome == RowOutcome::ordinary)
                                         out.lse -= std::log(1 - v.problem.dropout_p);
                                     };
                                   }});
ATTEST_HYPOTHESIS(dropout_head_zero, {.id = "dropout_of_head_0",
                                      .sentence = "every head drops what the first one drops",
                                      .applies = has_dropout,
                                      .change = [](Variant& v) {
                                        auto& keep = v.inputs.keep;
                                        for (std::int64_t b = 0; b < keep.shape[0]; ++b)
                                          for (std::int64_t h = 0; h < keep.shape[1]; ++h)
                                            for (std::int64_t i = 0; i < keep.shape[2]; ++i)
                                              for (std::int64_t j = 0; j < keep.shape[3]; ++j)
                                                keep.at(b, h, i, j) = keep.at(b, 0, i, j);
                                      }});
ATTEST_HYPOTHESIS(dropout_zero_scores,
                  {.id = "dropout_zero_scores",
                   .sentence = "dropout multiplies the scores, before the softmax",
                   .explains = {"dropout_before_softmax"},
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                       const double z = defined_score(v.problem, parts);
                       if (z == kMinusInf) return z;
                       const bool kept = v.inputs.keep.at(at.row.b, at.row.h, at.row.i, at.j) != 0;
                       return kept ? z / (1 - v.problem.dropout_p) : 0.0;
                     };
                     v.weigh = [](const RowAt&, WeighedRow& row) {
                       for (double& x : row.dropout) x = 1;
                     };
                   }});

}  // namespace
}  // namespace attest
