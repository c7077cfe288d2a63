// SPDX-License-Identifier: Apache-2.0
// Empty rows, tails of tiles, keys and rows that are left out.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool may_be_empty(Problem p) { return hides(p); }

void change_empty(Variant& v, std::function<void(const RowAt&, RowOutput&)> change) {
  v.finish = [change](const RowAt& at, RowOutput& out) {
    if (out.outcome == RowOutcome::empty) change(at, out);
  };
}
void fill(RowOutput& out, double value) { std::fill(out.o.begin(), out.o.end(), value); }

ATTEST_HYPOTHESIS(empty_row_nan, {.id = "empty_row_nan",
                                  .sentence = "NaN where a query sees no key",
                                  .explains = {"first_block_masked_nan", "kv_len_zero_divides"},
                                  .applies = may_be_empty,
                                  .change = [](Variant& v) {
                                    change_empty(v, [](const RowAt&, RowOutput& out) {
                                      fill(out, kQuietNaN);
                                      out.lse_unknown = true;
                                    });
                                  }});
ATTEST_HYPOTHESIS(empty_row_nan_no_sink,
                  {.id = "empty_row_nan/no_sink",
                   .sentence = "NaN where a query sees neither a key nor a sink",
                   .explains = {"empty_row_nan", "first_block_masked_nan", "kv_len_zero_divides"},
                   .applies = may_be_empty,
                   .change = [](Variant& v) {
                     change_empty(v, [](const RowAt&, RowOutput& out) {
                       if (out.lse > kMinusInf) return;
                       fill(out, kQuietNaN);
                       out.lse_unknown = true;
                     });
                   }});
/// The mean over all keys of the sequence, or of the capacity.
void mean_of_v(Variant& v, bool of_capacity) {
  change_empty(v, [&v, of_capacity](const RowAt& at, RowOutput& out) {
    fill(out, 0);
    const std::int64_t begin = of_capacity ? 0 : at.segment->k0;
    const std::int64_t end = of_capacity ? v.problem.kv_len : at.segment->k1;
    for (std::int64_t j = begin; j < end; ++j)
      for (std::size_t c = 0; c < out.o.size(); ++c)
        out.o[c] += v.inputs.v.at(at.b, at.kv, j, static_cast<std::int64_t>(c)) /
                    static_cast<double>(end - begin);
    out.lse_unknown = true;
  });
}
ATTEST_HYPOTHESIS(empty_row_mean, {.id = "empty_row_mean_v",
                                   .sentence = "a query that sees no key gets the mean of v",
                                   .explains = {"mask_finfo_min", "mask_minus_1e4"},
                                   .applies = may_be_empty,
                                   .change = [](Variant& v) { mean_of_v(v, false); }});
ATTEST_HYPOTHESIS(empty_row_mean_capacity,
                  {.id = "empty_row_mean_v/capacity",
                   .sentence = "a query that sees no key gets the mean of v, padding included",
                   .explains = {"empty_row_mean_v"},
                   .rank = 1,
                   .applies = may_be_empty,
                   .change = [](Variant& v) { mean_of_v(v, true); }});
ATTEST_HYPOTHESIS(padding_lse_zero,
                  {.id = "padding_lse_zero",
                   .sentence = "lse of a padding query row is 0, not -inf",
                   .applies = [](Problem p) { return has_lengths(p) || is_packed(p); },
                   .change =
                       [](Variant& v) {
                         v.finish = [](const RowAt&, RowOutput& out) {
                           if (out.outcome == RowOutcome::padding) out.lse = 0;
                         };
                       }});
ATTEST_HYPOTHESIS(empty_row_unwritten, {.id = "empty_row_unwritten",
                                        .sentence = "a query that sees no key is not written",
                                        .applies = may_be_empty,
                                        .change = [](Variant& v) {
                                          change_empty(v, [](const RowAt&, RowOutput& out) {
                                            out.o_unwritten = true;
                                            out.lse_unknown = true;
                                          });
                                        }});
ATTEST_HYPOTHESIS(empty_row_unwritten_lse,
                  {.id = "empty_row_lse_unwritten",
                   .sentence = "lse of a query that sees no key is not written",
                   .explains = {"empty_row_unwritten"},
                   .applies = may_be_empty,
                   .change = [](Variant& v) {
                     change_empty(v,
                                  [](const RowAt&, RowOutput& out) { out.lse_unwritten = true; });
                   }});
struct EmptyLseValue {
  const char* id;
  const char* sentence;
  double value;
  const char* also;  ///< another name of the fault
};
constexpr EmptyLseValue kEmptyLse[] = {
    {"empty_row_lse_zero", "lse is 0 where a query sees no key; declared -inf", 0,
     "empty_lse_zero"},
    {"empty_row_lse_pos_inf", "lse is +inf where a query sees no key; declared -inf", -kMinusInf,
     "empty_lse_pos_inf"},
    {"empty_row_lse_nan", "lse is NaN where a query sees no key", kQuietNaN, "empty_lse_nan"},
    {"empty_row_lse_neg_inf", "lse is -inf where a query sees no key; declared otherwise",
     kMinusInf, "empty_lse_neg_inf"},
    {"empty_row_lse_lowest", "lse is the lowest float where a query sees no key",
     -3.4028234663852886e38, "empty_lse_lowest"},
    {"empty_row_lse_1e4", "lse is -10000 where a query sees no key", -1e4, "empty_lse_1e4"},
};
bool empty_lse_values() {
  for (const EmptyLseValue& e : kEmptyLse)
    register_hypothesis({.id = e.id,
                         .sentence = e.sentence,
                         .explains = {"empty_row_lse_wrong", e.also},
                         .applies = may_be_empty,
                         .change = [e](Variant& v) {
                           change_empty(v,
                                        [e](const RowAt&, RowOutput& out) { out.lse = e.value; });
                         }});
  return true;
}
[[maybe_unused]] const bool empty_lse_is_known = empty_lse_values();

/// Lanes of the last tile that hold no key count with score 0 and v = 0.
void zero_lanes(Variant& v, std::int64_t tile, bool in_lse) {
  v.weigh = [tile, in_lse](const RowAt& at, WeighedRow& row) {
    if (row.keys.empty()) return;
    const std::int64_t n = num_keys(at), lanes = (n + tile - 1) / tile * tile - n;
    if (lanes == 0) return;
    const double extra = static_cast<double>(lanes) * std::exp(-row.max);
    const double all = row.sum + extra;
    if (in_lse)
      row.sum = all;
    else
      for (double& w : row.weight) w *= row.sum / all;
  };
}
bool tail_families() {
  for (const std::int64_t tile : {4, 8, 16, 32, 64, 128, 256}) {
    const std::string end = "/" + std::to_string(tile);
    register_hypothesis(
        {.id = "tail_lanes_in_denominator" + end,
         .sentence = with_number("empty lanes of the last tile of # keys count in the sum with "
                                 "score 0",
                                 tile),
         .explains = {"tail_lanes_in_denominator", "tail_keys_unmasked"},
         .rank = 1,
         .applies = always,
         .change = [tile](Variant& v) { zero_lanes(v, tile, true); }});
    register_hypothesis(
        {.id = "tail_lanes_in_denominator_of_o" + end,
         .sentence = with_number("empty lanes of the last tile of # keys count in the sum of o, "
                                 "not in lse",
                                 tile),
         .explains = {"tail_lanes_in_denominator", "tail_keys_unmasked"},
         .rank = 2,
         .applies = always,
         .change = [tile](Variant& v) { zero_lanes(v, tile, false); }});
    register_hypothesis(
        {.id = "tail_keys_unmasked" + end,
         .sentence = with_number("keys behind the last one are seen, up to a multiple of #", tile),
         .explains = {"tail_keys_unmasked", "padding_ignored", "v_tail_nan", "segments_leak"},
         .rank = 1,
         .applies = [](Problem p) { return has_lengths(p) || is_packed(p); },
         .change =
             [tile](Variant& v) {
               v.sees = [&v, tile](const PairAt& at) {
                 if (at.seen) return true;
                 const Segment& s = *at.row.segment;
                 const std::int64_t end_row = s.k0 + (s.k1 - s.k0 + tile - 1) / tile * tile;
                 const Factors f = factors(v, at);
                 return at.j >= s.k1 && at.j < end_row && f.mask && f.blocks;
               };
             }});
    register_hypothesis(
        {.id = "v_tail_nan" + end,
         .sentence =
             with_number("v behind the last key, up to a multiple of #, is multiplied by 0: "
                         "NaN there spreads",
                         tile),
         .explains = {"v_tail_nan", "ragged_buffer_tail_nan"},
         .rank = 1,
         .applies = [](Problem p) { return has_lengths(p) || is_packed(p); },
         .change =
             [tile](Variant& v) {
               v.finish = [&v, tile](const RowAt& at, RowOutput& out) {
                 if (out.outcome == RowOutcome::padding || num_keys(at) == 0) return;
                 const Segment& s = *at.segment;
                 const std::int64_t end_row =
                     std::min(s.k0 + (s.k1 - s.k0 + tile - 1) / tile * tile, v.problem.kv_len);
                 for (std::int64_t j = s.k1; j < end_row; ++j)
                   for (std::size_t c = 0; c < out.o.size(); ++c)
                     out.o[c] += 0 * v.inputs.v.at(at.b, at.kv, j, static_cast<std::int64_t>(c));
               };
             }});
    register_hypothesis({.id = "last_q_block_skipped" + end,
                         .sentence = with_number(
                             "the last query rows, beyond a multiple of #, are not written", tile),
                         .explains = {"last_q_block_skipped", "output_partly_unwritten"},
                         .rank = 1,
                         .applies = always,
                         .change = [tile](Variant& v) {
                           v.finish = [tile](const RowAt& at, RowOutput& out) {
                             if (!at.segment) return;
                             const std::int64_t n = at.segment->q1 - at.segment->q0;
                             const bool skipped =
                                 n >= tile && at.i - at.segment->q0 >= n / tile * tile;
                             out.o_unwritten = skipped;
                             out.lse_unwritten = skipped;
                           };
                         }});
    register_hypothesis(
        {.id = "last_key_block_skipped" + end,
         .sentence = with_number("the keys beyond the last multiple of # are left out", tile),
         .explains = {"last_key_block_skipped", "key_tail_skipped"},
         .rank = 1,
         .applies = always,
         .change = [tile](Variant& v) {
           v.sees = [tile](const PairAt& at) {
             return at.seen && key_number(at) < num_keys(at.row) / tile * tile;
           };
         }});
    register_hypothesis(
        {.id = "kv_loop_bound_from_q_len" + end,
         .sentence = with_number("the loop over keys, in blocks of #, ends where the queries do",
                                 tile),
         .explains = {"kv_loop_bound_from_q_len"},
         .rank = 1,
         .applies = [](Problem p) { return p.q_len < p.kv_len || is_packed(p); },
         .change = [tile](Variant& v) {
           v.sees = [tile](const PairAt& at) {
             const Segment& s = *at.row.segment;
             return at.seen && key_number(at) < (s.q1 - s.q0 + tile - 1) / tile * tile;
           };
         }});
  }
  return true;
}
[[maybe_unused]] const bool tails_are_known = tail_families();

void skip_key(Variant& v, std::function<bool(const PairAt&)> skipped) {
  v.sees = [skipped](const PairAt& at) { return at.seen && !skipped(at); };
}
ATTEST_HYPOTHESIS(last_key, {.id = "last_key_skipped",
                             .sentence = "the last key of every sequence is left out",
                             .explains = {"one_key_skipped"},
                             .applies = always,
                             .change = [](Variant& v) {
                               skip_key(v, [](const PairAt& at) {
                                 return key_number(at) == num_keys(at.row) - 1;
                               });
                             }});
ATTEST_HYPOTHESIS(first_key, {.id = "first_key_skipped",
                              .sentence = "the first key of every sequence is left out",
                              .explains = {"one_key_skipped"},
                              .applies = always,
                              .change = [](Variant& v) {
                                skip_key(v, [](const PairAt& at) { return key_number(at) == 0; });
                              }});
ATTEST_HYPOTHESIS(last_seen_key, {.id = "last_seen_key_skipped",
                                  .sentence = "the last key that a query sees is left out",
                                  .explains = {"one_key_skipped"},
                                  .rank = 1,
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    v.weigh = [](const RowAt&, WeighedRow& row) {
                                      if (row.keys.size() < 2) return;
                                      row.sum -= row.weight.back();
                                      row.weight.back() = 0;
                                    };
                                  }});
void count_twice(Variant& v, bool first) {
  v.weigh = [first](const RowAt&, WeighedRow& row) {
    if (row.keys.empty()) return;
    double& w = first ? row.weight.front() : row.weight.back();
    row.sum += w;
    w *= 2;
  };
}
ATTEST_HYPOTHESIS(first_key_twice, {.id = "first_key_twice",
                                    .sentence = "the first key that a query sees counts twice",
                                    .explains = {"one_key_doubled"},
                                    .applies = always,
                                    .change = [](Variant& v) { count_twice(v, true); }});
ATTEST_HYPOTHESIS(last_key_twice, {.id = "last_key_twice",
                                   .sentence = "the last key that a query sees counts twice",
                                   .explains = {"one_key_doubled"},
                                   .applies = always,
                                   .change = [](Variant& v) { count_twice(v, false); }});
bool key_families() {
  for (std::int64_t tile = 4; tile <= 256; tile *= 2) {
    const std::string end = std::to_string(tile);
    register_hypothesis(
        {.id = "one_key_skipped/last_of_" + end,
         .sentence = with_number("the last key of every full block of # is left out", tile),
         .explains = {"one_key_skipped"},
         .rank = 1,
         .applies = always,
         .change = [tile](Variant& v) {
           skip_key(v, [tile](const PairAt& at) { return key_number(at) % tile == tile - 1; });
         }});
    register_hypothesis(
        {.id = "one_key_skipped/first_of_" + end,
         .sentence = with_number("the first key of every later block of # is left out", tile),
         .explains = {"one_key_skipped"},
         .rank = 1,
         .applies = always,
         .change = [tile](Variant& v) {
           skip_key(v, [tile](const PairAt& at) {
             return key_number(at) > 0 && key_number(at) % tile == 0;
           });
         }});
    register_hypothesis(
        {.id = "one_key_doubled/first_of_" + end,
         .sentence = with_number("the first key of every later block of # counts twice", tile),
         .explains = {"one_key_doubled"},
         .rank = 1,
         .applies = always,
         .change = [tile](Variant& v) {
           v.weigh = [tile](const RowAt& at, WeighedRow& row) {
             for (std::size_t n = 0; n < row.keys.size(); ++n) {
               const std::int64_t number = row.keys[n] - at.segment->k0;
               if (number == 0 || number % tile != 0) continue;
               row.sum += row.weight[n];
               row.weight[n] *= 2;
             }
           };
         }});
  }
  for (std::int64_t number = 0; number < 130; ++number)
    register_hypothesis({.id = "one_key_skipped/" + std::to_string(number),
                         .sentence = with_number("key # of every sequence is left out", number),
                         .explains = {"one_key_skipped"},
                         .rank = 2,
                         .applies = always,
                         .change = [number](Variant& v) {
                           skip_key(
                               v, [number](const PairAt& at) { return key_number(at) == number; });
                         }});
  return true;
}
[[maybe_unused]] const bool keys_are_known = key_families();

ATTEST_HYPOTHESIS(kv_zero, {.id = "kv_len_zero_divides",
                            .sentence = "NaN where a sequence has no keys at all",
                            .explains = {"empty_row_nan"},
                            .applies = may_be_empty,
                            .change = [](Variant& v) {
                              v.finish = [](const RowAt& at, RowOutput& out) {
                                if (out.outcome != RowOutcome::empty || num_keys(at) > 0) return;
                                fill(out, kQuietNaN);
                                out.lse_unknown = true;
                              };
                            }});
ATTEST_HYPOTHESIS(first_row_repeated, {.id = "query_row_zero_for_all",
                                       .sentence = "every query row is computed from the first",
                                       .applies = [](Problem p) { return p.q_len > 1; },
                                       .change =
                                           [](Variant& v) {
                                             auto& q = v.inputs.q;
                                             for (std::int64_t b = 0; b < q.shape[0]; ++b)
                                               for (std::int64_t h = 0; h < q.shape[1]; ++h)
                                                 for (std::int64_t i = 0; i < q.shape[2]; ++i)
                                                   for (std::int64_t c = 0; c < q.shape[3]; ++c)
                                                     q.at(b, h, i, c) = q.at(b, h, 0, c);
                                           }});
ATTEST_HYPOTHESIS(next_value, {.id = "v_off_by_one_row",
                               .sentence = "the value of the next key is used",
                               .applies = always,
                               .change = [](Variant& v) {
                                 auto& t = v.inputs.v;
                                 for (std::int64_t b = 0; b < t.shape[0]; ++b)
                                   for (std::int64_t h = 0; h < t.shape[1]; ++h)
                                     for (std::int64_t j = 0; j + 1 < t.shape[2]; ++j)
                                       for (std::int64_t c = 0; c < t.shape[3]; ++c)
                                         t.at(b, h, j, c) = t.at(b, h, j + 1, c);
                               }});

}  // namespace
}  // namespace attest
