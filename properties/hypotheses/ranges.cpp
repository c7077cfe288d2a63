// SPDX-License-Identifier: Apache-2.0
// Lengths, pads, packed sequences: which rows are real.
#include "properties/hypotheses/common.hpp"
#include "reference/alibi.hpp"

namespace attest {
namespace {

using List = std::vector<std::int64_t>;

bool has_seqlens_k(Problem p) { return !p.seqlens_k.empty(); }
bool has_seqlens_q(Problem p) { return !p.seqlens_q.empty(); }
bool has_pad_k(Problem p) { return !p.left_pad_k.empty(); }
bool has_pad_q(Problem p) { return !p.left_pad_q.empty(); }

ATTEST_HYPOTHESIS(seqlens_k_ignored, {.id = "seqlens_k_ignored",
                                      .sentence = "seqlens_k is ignored: padding keys are seen",
                                      .explains = {"padding_ignored"},
                                      .applies = has_seqlens_k,
                                      .change = [](Variant& v) { v.problem.seqlens_k.clear(); }});
ATTEST_HYPOTHESIS(left_pad_k_ignored, {.id = "left_pad_k_ignored",
                                       .sentence = "left_pad_k is ignored: padding keys are seen",
                                       .explains = {"padding_ignored", "left_pad_ignored"},
                                       .applies = has_pad_k,
                                       .change = [](Variant& v) { v.problem.left_pad_k.clear(); }});
ATTEST_HYPOTHESIS(padding_ignored,
                  {.id = "padding_ignored",
                   .sentence = "seqlens_k and left_pad_k are ignored: padding keys are seen",
                   .rank = 1,
                   .applies = has_lengths,
                   .change = [](Variant& v) {
                     v.problem.left_pad_k.clear();
                     v.problem.seqlens_k.clear();
                   }});
ATTEST_HYPOTHESIS(pad_positions, {.id = "left_pad_not_in_positions",
                                  .sentence = "positions count from row 0, with the left pad",
                                  .explains = {"left_pad_ignored", "left_pad_in_key_positions",
                                               "left_pad_in_query_positions"},
                                  .rank = 1,
                                  .applies = has_pad_k,
                                  .change = [](Variant& v) {
                                    v.sees = [&v](const PairAt& at) {
                                      const Factors f = factors(v, at);
                                      const std::int64_t query = at.row.i + at.row.segment->offset;
                                      return at.in_range && f.mask && f.blocks &&
                                             base_visible(v.problem, *at.row.segment, query,
                                                          at.j) &&
                                             band_visible(v.problem, query, at.j);
                                    };
                                  }});
/// Positions of queries, or of keys, that count from row 0 of the call.
void count_from_row_0(Variant& v, bool queries) {
  const auto query = [queries](const RowAt& row) {
    return row.qpos + (queries ? row.segment->q0 : 0);
  };
  const auto key = [queries](const PairAt& at) { return queries ? at.kpos : at.j; };
  v.sees = [&v, query, key](const PairAt& at) {
    const Factors f = factors(v, at);
    return at.in_range && f.mask && f.blocks &&
           base_visible(v.problem, *at.row.segment, query(at.row), key(at)) &&
           band_visible(v.problem, query(at.row), key(at));
  };
  v.score = [&v, query, key](const PairAt& at, const ScoreParts& parts) {
    ScoreParts own = parts;
    const double slope =
        v.problem.alibi == AlibiKind::none ? 0 : slope_at(v.inputs, at.row.b, at.row.h);
    own.alibi = alibi_term(v.problem.alibi, slope, query(at.row), key(at));
    return defined_score(v.problem, own);
  };
  if (queries)
    v.query_angle_position = [](const Rows& rows, std::int64_t row, std::int64_t position) {
      return position + (rows.real_query(row) ? rows.of_query(row).q0 : 0);
    };
  else
    v.key_angle_position = [](const Rows&, std::int64_t row, std::int64_t) { return row; };
}
bool has_later_starts(Problem p) { return has_pad_k(p) || has_pad_q(p) || is_packed(p); }
ATTEST_HYPOTHESIS(query_positions_from_row_0,
                  {.id = "positions_from_row_0/queries",
                   .sentence = "query positions count from row 0 of the call, pad included",
                   .explains = {"left_pad_in_query_positions"},
                   .rank = 1,
                   .applies = has_later_starts,
                   .change = [](Variant& v) { count_from_row_0(v, true); }});
ATTEST_HYPOTHESIS(key_positions_from_row_0,
                  {.id = "positions_from_row_0/keys",
                   .sentence = "key positions count from row 0 of the call, pad included",
                   .explains = {"left_pad_in_key_positions"},
                   .rank = 1,
                   .applies = has_later_starts,
                   .change = [](Variant& v) { count_from_row_0(v, false); }});
ATTEST_HYPOTHESIS(padding_queries_computed,
                  {.id = "padding_queries_computed",
                   .sentence = "padding query rows are computed like real ones, not set to 0",
                   .explains = {"padding_ignored", "padding_query_computed", "seqlens_q_ignored"},
                   .applies = [](Problem p) { return has_seqlens_q(p) || has_pad_q(p); },
                   .change =
                       [](Variant& v) {
                         v.finish = [](const RowAt&, RowOutput& out) {
                           if (out.outcome != RowOutcome::padding) return;
                           std::fill(out.o.begin(), out.o.end(), kQuietNaN);
                           out.lse = kQuietNaN;
                         };
                       }});
ATTEST_HYPOTHESIS(padding_queries_unwritten,
                  {.id = "padding_queries_unwritten",
                   .sentence = "padding query rows are not written",
                   .explains = {"output_partly_unwritten", "padding_unwritten"},
                   .applies =
                       [](Problem p) { return has_seqlens_q(p) || has_pad_q(p) || is_packed(p); },
                   .change =
                       [](Variant& v) {
                         v.finish = [](const RowAt&, RowOutput& out) {
                           out.o_unwritten = out.lse_unwritten = out.outcome == RowOutcome::padding;
                         };
                       }});
ATTEST_HYPOTHESIS(padding_queries_sink,
                  {.id = "padding_query_gets_sink",
                   .sentence = "a padding query row gets the sink as its lse, not -inf",
                   .explains = {"padding_lse_is_sink"},
                   .applies = [](Problem p) { return has_sink(p) && has_lengths(p); },
                   .change =
                       [](Variant& v) {
                         v.finish = [&v](const RowAt& at, RowOutput& out) {
                           if (out.outcome == RowOutcome::padding)
                             out.lse = v.inputs.sink.at(0, at.h, 0, 0);
                         };
                       }});
ATTEST_HYPOTHESIS(padding_on_queries,
                  {.id = "padding_on_query_axis",
                   .sentence = "seqlens_k bounds the queries instead of the keys",
                   .applies = has_seqlens_k,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const auto b = static_cast<std::size_t>(at.row.b);
                       if (at.row.i >= v.problem.seqlens_k[b]) return false;
                       const std::int64_t k0 = at.row.segment->k0;
                       const Factors f = factors(v, at);
                       return at.j >= k0 && f.mask && f.blocks && f.base && f.band;
                     };
                   }});
ATTEST_HYPOTHESIS(padding_on_queries_too,
                  {.id = "padding_on_query_axis_too",
                   .sentence = "seqlens_k bounds the queries as well as the keys",
                   .explains = {"padding_on_query_axis"},
                   .rank = 1,
                   .applies = has_seqlens_k,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       return at.seen &&
                              at.row.i < v.problem.seqlens_k[static_cast<std::size_t>(at.row.b)];
                     };
                   }});

/// lengths := real counts, as if the given ones were end rows, or the other way round.
void recount(List& ends, const List& pads, std::int64_t sign, std::int64_t most) {
  for (std::size_t b = 0; b < ends.size() && b < pads.size(); ++b)
    ends[b] = std::clamp(ends[b] + sign * pads[b], pads[b], most);
}
ATTEST_HYPOTHESIS(lengths_real_count,
                  {.id = "lengths_real_count",
                   .sentence = "lengths count the rows after the left pad; declared end_row",
                   .explains = {"lengths_as_counts"},
                   .applies = [](Problem p) { return has_pad_k(p) && has_seqlens_k(p); },
                   .change =
                       [](Variant& v) {
                         recount(v.problem.seqlens_k, v.problem.left_pad_k, 1, v.problem.kv_len);
                         recount(v.problem.seqlens_q, v.problem.left_pad_q, 1, v.problem.q_len);
                       }});
ATTEST_HYPOTHESIS(lengths_end_row,
                  {.id = "lengths_end_row",
                   .sentence = "lengths are end rows; declared real_count",
                   .applies = [](Problem p) { return has_pad_k(p) && has_seqlens_k(p); },
                   .change =
                       [](Variant& v) {
                         recount(v.problem.seqlens_k, v.problem.left_pad_k, -1, v.problem.kv_len);
                         recount(v.problem.seqlens_q, v.problem.left_pad_q, -1, v.problem.q_len);
                       }});
void shift(List& list, std::int64_t by, std::int64_t most) {
  for (std::int64_t& x : list) x = std::clamp<std::int64_t>(x + by, 0, most);
}
ATTEST_HYPOTHESIS(lengths_minus_one,
                  {.id = "lengths_minus_one",
                   .sentence = "the last real key of each sequence is left out",
                   .applies = has_seqlens_k,
                   .change = [](Variant& v) {
                     shift(v.problem.seqlens_k, -1, v.problem.kv_len);
                     for (std::size_t b = 0; b < v.problem.left_pad_k.size(); ++b)
                       v.problem.left_pad_k[b] =
                           std::min(v.problem.left_pad_k[b], v.problem.seqlens_k[b]);
                   }});
ATTEST_HYPOTHESIS(lengths_plus_one,
                  {.id = "padding_first_key_visible",
                   .sentence = "the first key beyond seqlens_k is seen",
                   .applies = has_seqlens_k,
                   .change = [](Variant& v) { shift(v.problem.seqlens_k, 1, v.problem.kv_len); }});
ATTEST_HYPOTHESIS(lengths_k_of_first, {.id = "seqlens_k_first_entry",
                                       .sentence = "every sequence gets the seqlens_k of the first",
                                       .applies = has_seqlens_k,
                                       .change = [](Variant& v) {
                                         List& k = v.problem.seqlens_k;
                                         k.assign(k.size(), k.front());
                                         for (std::size_t b = 0; b < v.problem.left_pad_k.size();
                                              ++b)
                                           k[b] = std::max(k[b], v.problem.left_pad_k[b]);
                                       }});
ATTEST_HYPOTHESIS(lengths_q_cut_keys, {.id = "seqlens_q_cuts_keys",
                                       .sentence = "seqlens_q cuts the keys as well",
                                       .applies = has_seqlens_q,
                                       .change = [](Variant& v) {
                                         v.sees = [](const PairAt& at) {
                                           return at.seen && at.j < at.row.segment->q1;
                                         };
                                       }});
ATTEST_HYPOTHESIS(lengths_of_first,
                  {.id = "lengths_of_first",
                   .sentence = "every sequence gets the lengths of the first",
                   .explains = {"seqlens_k_first_entry"},
                   .applies = has_lengths,
                   .change = [](Variant& v) {
                     for (List* list : {&v.problem.seqlens_q, &v.problem.seqlens_k,
                                        &v.problem.left_pad_q, &v.problem.left_pad_k})
                       if (!list->empty()) list->assign(list->size(), list->front());
                   }});

ATTEST_HYPOTHESIS(segments_leak, {.id = "segments_leak",
                                  .sentence = "packed sequences see each other's keys",
                                  .applies = is_packed,
                                  .change = [](Variant& v) {
                                    v.sees = [&v](const PairAt& at) {
                                      const Factors f = factors(v, at);
                                      return at.row.rows->real_key(at.j) && f.base && f.band &&
                                             f.mask && f.blocks;
                                    };
                                  }});
ATTEST_HYPOTHESIS(segments_ignored, {.id = "segments_ignored",
                                     .sentence = "packed sequences are taken for a single one",
                                     .explains = {"segments_leak"},
                                     .applies = is_packed,
                                     .change = [](Variant& v) {
                                       AttentionProblem& p = v.problem;
                                       p.seqlens_q.assign(1, p.cu_seqlens_q.back());
                                       p.seqlens_k.assign(1, p.cu_seqlens_k.back());
                                       p.cu_seqlens_q.clear();
                                       p.cu_seqlens_k.clear();
                                       if (!p.q_offset.empty()) p.q_offset.resize(1);
                                       if (!p.prefix_len.empty()) p.prefix_len.resize(1);
                                     }});
ATTEST_HYPOTHESIS(segments_from_first_key,
                  {.id = "segments_leak_back",
                   .sentence = "a packed sequence sees the keys of those before it",
                   .explains = {"segments_leak"},
                   .applies = is_packed,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const Factors f = factors(v, at);
                       const bool before = at.j < at.row.segment->k0;
                       return at.seen || (before && f.mask && f.blocks);
                     };
                   }});

}  // namespace
}  // namespace attest
