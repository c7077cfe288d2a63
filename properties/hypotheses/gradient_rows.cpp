// SPDX-License-Identifier: Apache-2.0
// Mistakes of backward in what belongs to a row: dO, delta, lse and its gradient, the sink.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

constexpr double kLog2e = 1.4426950408889634;

bool has_d_lse(Problem p) { return p.d_lse; }
bool has_d_sink(Problem p) { return wants_gradient(p, Gradient::sink); }

ATTEST_HYPOTHESIS(delta_dropped, {.id = "delta_dropped",
                                  .sentence = "backward leaves out delta = dO.o: dS is P dP",
                                  .change_backward = [](BackwardVariant& v) {
                                    v.delta = [](const BackwardRow&, double) { return 0.0; };
                                  }});
ATTEST_HYPOTHESIS(delta_sign, {.id = "delta_sign_flipped",
                               .sentence = "backward adds delta = dO.o in place of subtracting it",
                               .change_backward = [](BackwardVariant& v) {
                                 v.delta = [](const BackwardRow&, double right) { return -right; };
                               }});
ATTEST_HYPOTHESIS(delta_before_dropout,
                  {.id = "delta_without_dropout_factor",
                   .sentence = "delta is taken of o before 1/(1 - p) is multiplied to it",
                   .applies = has_dropout,
                   .change_backward = [](BackwardVariant& v) {
                     v.delta = [&v](const BackwardRow&, double right) {
                       return right * (1 - v.problem.dropout_p);
                     };
                   }});
ATTEST_HYPOTHESIS(delta_of_kv_head,
                  {.id = "delta_of_kv_head",
                   .sentence = "delta reads o by the number of the key/value head",
                   .applies = has_groups,
                   .change_backward = [](BackwardVariant& v) {
                     v.o_row = [](const RowAt& at) {
                       RowAt other = at;
                       other.h = at.kv;
                       return other;
                     };
                   }});
ATTEST_HYPOTHESIS(delta_of_first_tile,
                  {.id = "delta_of_first_tile/64",
                   .sentence = "delta is that of the row with the same place in the first tile of "
                               "64",
                   .explains = {"delta_of_first_tile"},
                   .rank = 1,
                   .applies = [](Problem p) { return p.q_len > 64; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.o_row = [](const RowAt& at) {
                           RowAt other = at;
                           other.i = at.segment->q0 + (at.i - at.segment->q0) % 64;
                           return other;
                         };
                       }});

ATTEST_HYPOTHESIS(d_lse_ignored, {.id = "d_lse_ignored",
                                  .sentence = "backward ignores the gradient of lse",
                                  .applies = has_d_lse,
                                  .change_backward = [](BackwardVariant& v) {
                                    v.d_lse = [](const RowAt&, double) { return 0.0; };
                                  }});
ATTEST_HYPOTHESIS(d_lse_sign, {.id = "d_lse_sign_flipped",
                               .sentence = "backward subtracts the gradient of lse",
                               .applies = has_d_lse,
                               .change_backward = [](BackwardVariant& v) {
                                 v.d_lse = [](const RowAt&, double right) { return -right; };
                               }});
ATTEST_HYPOTHESIS(d_lse_base_2,
                  {.id = "d_lse_for_base_2",
                   .sentence = "backward takes the gradient of lse for that of lse / ln 2",
                   .applies = has_d_lse,
                   .change_backward = [](BackwardVariant& v) {
                     v.d_lse = [](const RowAt&, double right) { return right * kLog2e; };
                   }});
ATTEST_HYPOTHESIS(d_lse_row_major,
                  {.id = "d_lse_read_row_major",
                   .sentence = "dLSE [B, H, L] is read as [B, L, H]",
                   .applies = [](Problem p) { return p.d_lse && p.num_heads > 1 && p.q_len > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.d_lse = [&v](const RowAt& at, double) {
                           const std::int64_t flat = at.i * v.problem.num_heads + at.h;
                           return v.inputs.d_lse.at(at.b, flat / v.problem.q_len,
                                                    flat % v.problem.q_len, 0);
                         };
                       }});
ATTEST_HYPOTHESIS(lse_taken_for_base_2,
                  {.id = "lse_taken_for_base_2",
                   .sentence = "backward takes the natural logarithm of forward for one of base 2",
                   .change_backward = [](BackwardVariant& v) {
                     v.weight = [](const BackwardRow& row, double z) {
                       return std::exp2(z * kLog2e - row.lse);
                     };
                   }});

/// Every key of the sequence takes part in a row that sees none.
void fill_empty_rows(BackwardVariant& v, std::function<double(const BackwardRow&)> weight) {
  const auto is_empty = [](const BackwardRow& row) { return row.lse == kMinusInf; };
  v.sees = [is_empty](const PairAt& at, const BackwardRow& row) {
    return at.seen || is_empty(row);
  };
  v.takes_part = [is_empty](const BackwardRow& row, double z) {
    return z != kMinusInf || is_empty(row);
  };
  v.weight = [is_empty, weight](const BackwardRow& row, double z) {
    return is_empty(row) ? weight(row) : std::exp(z - row.lse);
  };
}
ATTEST_HYPOTHESIS(empty_row_backward_nan,
                  {.id = "empty_row_backward_nan",
                   .sentence = "a query that sees no key spreads NaN in backward: P is "
                               "exp(-inf + inf)",
                   .applies = hides,
                   .change_backward = [](BackwardVariant& v) {
                     fill_empty_rows(v, [](const BackwardRow&) { return kQuietNaN; });
                   }});
ATTEST_HYPOTHESIS(empty_row_uniform,
                  {.id = "empty_row_uniform_in_backward",
                   .sentence = "a query that sees no key weighs all keys alike in backward",
                   .applies = hides,
                   .change_backward = [](BackwardVariant& v) {
                     fill_empty_rows(v, [](const BackwardRow& row) {
                       return 1 / static_cast<double>(num_keys(row.at));
                     });
                   }});
ATTEST_HYPOTHESIS(zero_d_o_nan,
                  {.id = "zero_dout_row_nan",
                   .sentence = "rows of dO that are 0 spread NaN: 0 / 0",
                   .change_backward = [](BackwardVariant& v) {
                     v.load_d_o = [](std::vector<double>& d_o) {
                       if (std::all_of(d_o.begin(), d_o.end(), [](double x) { return x == 0; }))
                         std::fill(d_o.begin(), d_o.end(), kQuietNaN);
                     };
                   }});

double sink_of(const BackwardVariant& v, const BackwardRow& row) {
  return v.inputs.sink.present ? v.inputs.sink.at(0, row.at.h, 0, 0) : kMinusInf;
}
ATTEST_HYPOTHESIS(sink_not_in_weights,
                  {.id = "sink_not_in_backward_weights",
                   .sentence = "backward normalises P over the keys alone, without the sink",
                   .applies = has_sink,
                   .change_backward = [](BackwardVariant& v) {
                     v.weight = [&v](const BackwardRow& row, double z) {
                       return std::exp(z - row.lse) / (1 - std::exp(sink_of(v, row) - row.lse));
                     };
                   }});
ATTEST_HYPOTHESIS(d_sink_zero, {.id = "d_sink_zero",
                                .sentence = "dSink is written as 0",
                                .explains = {"gradient_silently_zero"},
                                .applies = has_d_sink,
                                .change_backward = [](BackwardVariant& v) {
                                  v.d_sink = [](const BackwardRow&, double) { return 0.0; };
                                }});
ATTEST_HYPOTHESIS(d_sink_sign, {.id = "d_sink_sign_flipped",
                                .sentence = "dSink has the wrong sign",
                                .applies = has_d_sink,
                                .change_backward = [](BackwardVariant& v) {
                                  v.d_sink = [](const BackwardRow& row, double p_sink) {
                                    return row.empty ? -row.d_lse
                                                     : p_sink * (row.delta - row.d_lse);
                                  };
                                }});
ATTEST_HYPOTHESIS(d_sink_misses_delta,
                  {.id = "d_sink_misses_delta",
                   .sentence = "dSink leaves out delta, as if the sink had no part in P",
                   .applies = has_d_sink,
                   .change_backward = [](BackwardVariant& v) {
                     v.d_sink = [](const BackwardRow& row, double p_sink) {
                       return p_sink * row.d_lse;
                     };
                   }});
ATTEST_HYPOTHESIS(d_sink_misses_d_lse,
                  {.id = "d_sink_misses_d_lse",
                   .sentence = "dSink leaves out the gradient of lse",
                   .applies = [](Problem p) { return has_d_sink(p) && p.d_lse; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.d_sink = [](const BackwardRow& row, double p_sink) {
                           return row.empty ? 0 : -p_sink * row.delta;
                         };
                       }});
ATTEST_HYPOTHESIS(d_sink_without_lse,
                  {.id = "d_sink_without_lse",
                   .sentence = "dSink weighs rows by exp(sink), not by exp(sink - lse)",
                   .applies = has_d_sink,
                   .change_backward = [](BackwardVariant& v) {
                     v.d_sink = [&v](const BackwardRow& row, double) {
                       return row.empty ? row.d_lse
                                        : std::exp(sink_of(v, row)) * (row.d_lse - row.delta);
                     };
                   }});
ATTEST_HYPOTHESIS(d_sink_skips_empty_rows,
                  {.id = "d_sink_skips_empty_rows",
                   .sentence = "dSink leaves out rows that see no key",
                   .applies = [](Problem p) { return has_d_sink(p) && p.d_lse && hides(p); },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.d_sink = [](const BackwardRow& row, double p_sink) {
                           return row.empty ? 0 : p_sink * (row.d_lse - row.delta);
                         };
                       }});
ATTEST_HYPOTHESIS(d_sink_of_last,
                  {.id = "d_sink_not_summed_over_batch",
                   .sentence = "dSink is that of the last sequence, not the sum over all",
                   .applies =
                       [](Problem p) { return has_d_sink(p) && (p.batch > 1 || is_packed(p)); },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.d_sink = [&v](const BackwardRow& row, double p_sink) {
                           const bool last = row.at.b == v.problem.batch - 1 &&
                                             row.at.segment == &row.at.rows->segments.back();
                           if (!last) return 0.0;
                           return row.empty ? row.d_lse : p_sink * (row.d_lse - row.delta);
                         };
                       }});

}  // namespace
}  // namespace attest
