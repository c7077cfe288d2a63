// SPDX-License-Identifier: Apache-2.0
// Mistakes of backward in its sums: over heads, rows, tiles and the batch; and in what is written.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

/// Number of a head within those that share its key/value head, and how many there are.
std::int64_t group(Problem p) { return p.num_heads / p.num_kv_heads; }
void one_head_of_group(BackwardVariant& v, bool last) {
  v.share_in_keys = [&v, last](const RowAt& at) {
    const std::int64_t members = group(v.problem);
    return at.h % members == (last ? members - 1 : 0) ? 1.0 : 0.0;
  };
}
ATTEST_HYPOTHESIS(gqa_last_stays,
                  {.id = "gqa_grad_not_summed/last",
                   .sentence = "dK and dV are those of the last head of a group, not the sum",
                   .explains = {"gqa_grad_not_summed"},
                   .applies = has_groups,
                   .change_backward = [](BackwardVariant& v) { one_head_of_group(v, true); }});
ATTEST_HYPOTHESIS(gqa_first_stays,
                  {.id = "gqa_grad_not_summed/first",
                   .sentence = "dK and dV are those of the first head of a group, not the sum",
                   .explains = {"gqa_grad_not_summed"},
                   .applies = has_groups,
                   .change_backward = [](BackwardVariant& v) { one_head_of_group(v, false); }});
ATTEST_HYPOTHESIS(gqa_averaged, {.id = "gqa_grad_averaged",
                                 .sentence = "dK and dV are the mean over the heads of a group",
                                 .applies = has_groups,
                                 .change_backward = [](BackwardVariant& v) {
                                   v.share_in_keys = [&v](const RowAt&) {
                                     return 1 / static_cast<double>(group(v.problem));
                                   };
                                 }});
ATTEST_HYPOTHESIS(gqa_modulo_backward,
                  {.id = "gqa_modulo_in_backward",
                   .sentence = "backward maps query head h to key/value head h mod Hkv",
                   .applies = [](Problem p) { return has_groups(p) && p.num_kv_heads > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.kv_head = [&v](std::int64_t h) { return h % v.problem.num_kv_heads; };
                       }});

bool has_d_bias(Problem p) { return wants_gradient(p, Gradient::bias); }
bool is_reduced(Problem p) {
  return has_d_bias(p) && !(p.bias_axes.b && p.bias_axes.h && p.bias_axes.q && p.bias_axes.k);
}
ATTEST_HYPOTHESIS(d_bias_last,
                  {.id = "dbias_not_reduced/last",
                   .sentence = "dBias over a broadcast axis is that of the last pair, "
                               "not the sum",
                   .explains = {"dbias_not_reduced"},
                   .applies = is_reduced,
                   .change_backward = [](BackwardVariant& v) { v.last_stays_in_bias = true; }});
void of_one(BackwardVariant& v, std::function<bool(Problem, const RowAt&)> counts) {
  v.share_in_bias = [&v, counts](const RowAt& at) { return counts(v.problem, at) ? 1.0 : 0.0; };
}
ATTEST_HYPOTHESIS(d_bias_one_batch,
                  {.id = "dbias_not_reduced/batch",
                   .sentence = "dBias of a bias that the batch shares is that of the last sequence",
                   .explains = {"dbias_not_reduced"},
                   .applies =
                       [](Problem p) { return has_d_bias(p) && !p.bias_axes.b && p.batch > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         of_one(v, [](Problem p, const RowAt& at) {
                           return p.bias_axes.b || at.b == p.batch - 1;
                         });
                       }});
ATTEST_HYPOTHESIS(d_bias_one_head,
                  {.id = "dbias_not_reduced/heads",
                   .sentence = "dBias of a bias that all heads share is that of the last head",
                   .explains = {"dbias_not_reduced"},
                   .applies =
                       [](Problem p) { return has_d_bias(p) && !p.bias_axes.h && p.num_heads > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         of_one(v, [](Problem p, const RowAt& at) {
                           return p.bias_axes.h || at.h == p.num_heads - 1;
                         });
                       }});
ATTEST_HYPOTHESIS(d_bias_mean,
                  {.id = "dbias_averaged_over_batch",
                   .sentence = "dBias of a bias that the batch shares is the mean over the batch",
                   .applies =
                       [](Problem p) { return has_d_bias(p) && !p.bias_axes.b && p.batch > 1; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.share_in_bias = [&v](const RowAt&) {
                           return 1 / static_cast<double>(v.problem.batch);
                         };
                       }});
ATTEST_HYPOTHESIS(d_bias_zero, {.id = "dbias_silently_zero",
                                .sentence = "dBias is written as 0",
                                .applies = has_d_bias,
                                .change_backward = [](BackwardVariant& v) {
                                  v.share_in_bias = [](const RowAt&) { return 0.0; };
                                }});
ATTEST_HYPOTHESIS(
    d_slope_of_last,
    {.id = "d_slope_not_summed_over_batch",
     .sentence = "dSlope of slopes that the batch shares is that of the last sequence",
     .applies =
         [](Problem p) {
           return wants_gradient(p, Gradient::slopes) && p.slopes != SlopesKind::per_batch &&
                  (p.batch > 1 || is_packed(p));
         },
     .change_backward =
         [](BackwardVariant& v) {
           v.pair = [&v](BackwardPair& pair) {
             const RowAt& at = pair.row.at;
             const bool last =
                 at.b == v.problem.batch - 1 && at.segment == &at.rows->segments.back();
             if (!last) pair.to_slope = 0;
           };
         }});

/// The last query of a tile stands for every lane that has none.
void repeat_last_row(BackwardVariant& v, std::int64_t lanes) {
  v.share_in_keys = v.share_in_bias = [lanes](const RowAt& at) {
    const std::int64_t queries = at.segment->q1 - at.segment->q0;
    const bool is_last = at.i + 1 == at.segment->q1;
    return is_last ? static_cast<double>(1 + (lanes - queries % lanes) % lanes) : 1.0;
  };
}
ATTEST_HYPOTHESIS(tail_rows_16,
                  {.id = "backward_tail_not_masked/16",
                   .sentence = "the last query counts for all lanes of its group of "
                               "16 in dK and dV",
                   .explains = {"backward_tail_not_masked"},
                   .rank = 1,
                   .change_backward = [](BackwardVariant& v) { repeat_last_row(v, 16); }});
ATTEST_HYPOTHESIS(tail_rows_64,
                  {.id = "backward_tail_not_masked/64",
                   .sentence = "the last query counts for all lanes of its group of "
                               "64 in dK and dV",
                   .explains = {"backward_tail_not_masked"},
                   .rank = 1,
                   .change_backward = [](BackwardVariant& v) { repeat_last_row(v, 64); }});
ATTEST_HYPOTHESIS(odd_key_lost, {.id = "odd_key_lost_in_dq",
                                 .sentence = "dQ loses the last of an odd number of keys",
                                 .rank = 1,
                                 .change_backward = [](BackwardVariant& v) {
                                   v.pair = [](BackwardPair& pair) {
                                     const std::int64_t keys = num_keys(pair.row.at);
                                     if (keys % 2 == 1 && pair.kpos == keys - 1) pair.to_q = 0;
                                   };
                                 }});
ATTEST_HYPOTHESIS(last_tile_lost_in_dk,
                  {.id = "last_q_block_skipped_in_dk/64",
                   .sentence = "dK leaves out the queries of an unfinished last tile of 64",
                   .explains = {"last_q_block_skipped_in_dk"},
                   .rank = 1,
                   .applies = [](Problem p) { return p.q_len > 64; },
                   .change_backward =
                       [](BackwardVariant& v) {
                         v.pair = [](BackwardPair& pair) {
                           const Segment& at = *pair.row.at.segment;
                           const std::int64_t whole = (at.q1 - at.q0) / 64 * 64;
                           if (whole > 0 && pair.row.at.i - at.q0 >= whole) pair.to_k = 0;
                         };
                       }});
ATTEST_HYPOTHESIS(row_64_twice, {.id = "row_64_twice_in_dv",
                                 .sentence = "query 64 counts twice in dV",
                                 .rank = 1,
                                 .applies = [](Problem p) { return p.q_len > 64; },
                                 .change_backward =
                                     [](BackwardVariant& v) {
                                       v.pair = [](BackwardPair& pair) {
                                         if (pair.row.at.i - pair.row.at.segment->q0 == 64)
                                           pair.to_v *= 2;
                                       };
                                     }});
ATTEST_HYPOTHESIS(dk_start_top_left,
                  {.id = "dk_causal_start_top_left/16",
                   .sentence = "under causal dK of a block of 16 keys starts at the query tile of "
                               "its own number",
                   .explains = {"dk_causal_start_top_left"},
                   .rank = 1,
                   .applies = is_causal,
                   .change_backward = [](BackwardVariant& v) {
                     v.pair = [](BackwardPair& pair) {
                       const std::int64_t row = pair.row.at.i - pair.row.at.segment->q0;
                       if (row / 16 < pair.kpos / 16) pair.to_k = 0;
                     };
                   }});
ATTEST_HYPOTHESIS(dq_tail_zero, {.id = "dq_channel_tail_zero/8",
                                 .sentence = "dQ of channels past the last whole group of 8 is 0",
                                 .explains = {"dq_channel_tail_zero"},
                                 .rank = 1,
                                 .applies = [](Problem p) { return p.head_dim % 8 != 0; },
                                 .change_backward =
                                     [](BackwardVariant& v) {
                                       v.last = [](GradientPrediction& out) {
                                         auto& d_q = out[Gradient::q];
                                         const auto width = static_cast<std::size_t>(d_q.shape[3]);
                                         for (std::size_t n = 0; n < d_q.value.size(); ++n)
                                           if (n % width >= width / 8 * 8) d_q.value[n] = 0;
                                       };
                                     }});

/// Keys that no query sees, or that stand outside every sequence, are not written.
void leave_unwritten(BackwardVariant& v, Gradient gradient, bool padding_alone) {
  v.last = [&v, gradient, padding_alone](GradientPrediction& out) {
    auto& tensor = out[gradient];
    if (tensor.value.empty()) return;
    const auto width = static_cast<std::size_t>(tensor.shape[3]);
    for (std::size_t first = 0; first < tensor.value.size(); first += width) {
      const auto row = static_cast<std::int64_t>(first / width);
      const std::int64_t b = row / tensor.shape[2] / tensor.shape[1];
      const bool is_padding = !rows_of(v.problem, b).real_key(row % tensor.shape[2]);
      const auto begin = tensor.value.begin() + static_cast<std::ptrdiff_t>(first);
      const bool is_zero = std::all_of(begin, begin + static_cast<std::ptrdiff_t>(width),
                                       [](double x) { return x == 0; });
      if (padding_alone ? is_padding : is_zero)
        std::fill_n(tensor.unwritten.begin() + static_cast<std::ptrdiff_t>(first), width, 1);
    }
  };
}
ATTEST_HYPOTHESIS(dk_of_padding,
                  {.id = "dk_of_padding_unwritten",
                   .sentence = "dK of keys outside every sequence is not written",
                   .applies = [](Problem p) { return has_lengths(p) || is_packed(p); },
                   .change_backward =
                       [](BackwardVariant& v) { leave_unwritten(v, Gradient::k, true); }});
ATTEST_HYPOTHESIS(dv_of_padding,
                  {.id = "dv_of_padding_unwritten",
                   .sentence = "dV of keys outside every sequence is not written",
                   .applies = [](Problem p) { return has_lengths(p) || is_packed(p); },
                   .change_backward =
                       [](BackwardVariant& v) { leave_unwritten(v, Gradient::v, true); }});
ATTEST_HYPOTHESIS(dk_of_unseen, {.id = "dk_of_unseen_keys_unwritten",
                                 .sentence = "dK of keys that no query sees is not written",
                                 .applies = hides,
                                 .change_backward = [](BackwardVariant& v) {
                                   leave_unwritten(v, Gradient::k, false);
                                 }});
ATTEST_HYPOTHESIS(dv_of_unseen, {.id = "dv_of_unseen_keys_unwritten",
                                 .sentence = "dV of keys that no query sees is not written",
                                 .applies = hides,
                                 .change_backward = [](BackwardVariant& v) {
                                   leave_unwritten(v, Gradient::v, false);
                                 }});

}  // namespace
}  // namespace attest
