// SPDX-License-Identifier: Apache-2.0
// Alignment, causality, windows, prefix: which keys a query sees by position.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

bool bottom_right(Problem p) { return p.align == Align::bottom_right && uses_query_positions(p); }
bool top_left(Problem p) { return p.align == Align::top_left && uses_query_positions(p); }
bool given_offset(Problem p) { return p.align == Align::q_offset; }
bool is_full(Problem p) { return p.base == Base::full; }
bool is_prefix(Problem p) { return p.base == Base::prefix; }
bool has_left(Problem p) { return p.window_left >= 0; }
bool has_right(Problem p) { return p.window_right >= 0; }
bool has_global(Problem p) { return p.global_tokens > 0; }

void use_align(Variant& v, Align align) {
  v.problem.align = align;
  v.problem.q_offset.clear();
}

ATTEST_HYPOTHESIS(align_top_left,
                  {.id = "align_top_left",
                   .sentence = "causal mask aligned top_left; declared bottom_right",
                   .explains = {"causal_top_left", "offset_ignores_cache"},
                   .applies = bottom_right,
                   .change = [](Variant& v) { use_align(v, Align::top_left); }});
ATTEST_HYPOTHESIS(align_bottom_right,
                  {.id = "align_bottom_right",
                   .sentence = "causal mask aligned bottom_right; declared top_left",
                   .explains = {"top_left_as_bottom_right"},
                   .applies = top_left,
                   .change = [](Variant& v) { use_align(v, Align::bottom_right); }});
ATTEST_HYPOTHESIS(offset_as_top_left,
                  {.id = "offset_as_top_left",
                   .sentence = "q_offset taken for 0: queries stand at the first key",
                   .explains = {"offset_ignores_cache", "causal_top_left"},
                   .applies = given_offset,
                   .change = [](Variant& v) { use_align(v, Align::top_left); }});
ATTEST_HYPOTHESIS(offset_as_bottom_right,
                  {.id = "offset_as_bottom_right",
                   .sentence = "q_offset ignored: queries stand at the last keys",
                   .explains = {"offset_ignores_cache", "q_start_from_kv_len"},
                   .applies = given_offset,
                   .change = [](Variant& v) { use_align(v, Align::bottom_right); }});
ATTEST_HYPOTHESIS(always_top_left,
                  {.id = "always_top_left",
                   .sentence = "queries stand at the first key whatever the alignment asked for",
                   .explains = {"causal_top_left", "offset_ignores_cache"},
                   .rank = 1,
                   .applies = uses_query_positions,
                   .change = [](Variant& v) { use_align(v, Align::top_left); }});
ATTEST_HYPOTHESIS(
    offset_from_capacity,
    {.id = "offset_from_capacity",
     .sentence = "bottom_right alignment by the capacities of q and k, not by the real lengths",
     .explains = {"q_start_from_kv_len", "offset_from_capacity"},
     .rank = 1,
     .applies = bottom_right,
     .change = [](Variant& v) {
       use_align(v, Align::q_offset);
       v.problem.q_offset.assign(static_cast<std::size_t>(num_sequences(v.problem)),
                                 v.problem.kv_len - v.problem.q_len);
     }});
ATTEST_HYPOTHESIS(offset_from_kv_len,
                  {.id = "offset_from_kv_len",
                   .sentence = "queries stand after the last key: offset = number of keys",
                   .explains = {"q_start_from_kv_len"},
                   .rank = 1,
                   .applies = uses_query_positions,
                   .change = [](Variant& v) {
                     std::vector<std::int64_t> offsets;
                     for (std::int64_t b = 0; b < v.problem.batch; ++b)
                       for (const Segment& s : rows_of(v.problem, b).segments)
                         offsets.push_back(s.k1 - s.k0);
                     use_align(v, Align::q_offset);
                     v.problem.q_offset = offsets;
                   }});

ATTEST_HYPOTHESIS(causal_ignored, {.id = "causal_ignored",
                                   .sentence = "the causal mask is ignored",
                                   .explains = {"causal_flag_ignored"},
                                   .applies = is_causal,
                                   .change = [](Variant& v) { v.problem.base = Base::full; }});
ATTEST_HYPOTHESIS(always_causal, {.id = "always_causal",
                                  .sentence = "a causal mask is applied though base=full",
                                  .applies = is_full,
                                  .change = [](Variant& v) { v.problem.base = Base::causal; }});
ATTEST_HYPOTHESIS(causal_only_with_mask,
                  {.id = "causal_only_with_mask",
                   .sentence = "the causal mask is applied only where there is a mask or bias",
                   .rank = 1,
                   .applies = is_causal,
                   .change = [](Variant& v) {
                     if (!has_mask(v.problem) && !has_bias(v.problem)) v.problem.base = Base::full;
                   }});
ATTEST_HYPOTHESIS(causal_only_without_mask,
                  {.id = "mask_replaces_causal",
                   .sentence = "the causal mask is lost where there is a mask",
                   .rank = 1,
                   .applies = is_causal,
                   .change = [](Variant& v) {
                     if (has_mask(v.problem)) v.problem.base = Base::full;
                   }});
ATTEST_HYPOTHESIS(all_true_mask_causal,
                  {.id = "all_true_mask_elided_to_causal",
                   .sentence = "a mask that hides nothing is taken for a causal one",
                   .applies = has_mask,
                   .change = [](Variant& v) {
                     const auto& mask = v.inputs.mask.values;
                     if (std::all_of(mask.begin(), mask.end(), [](auto x) { return x != 0; }))
                       v.problem.base = Base::causal;
                   }});
ATTEST_HYPOTHESIS(causal_strict, {.id = "causal_strict",
                                  .sentence = "the causal mask hides the diagonal too: kpos < qpos",
                                  .applies = is_causal,
                                  .change = [](Variant& v) {
                                    v.sees = [&v](const PairAt& at) {
                                      return at.seen && (at.kpos != at.row.qpos ||
                                                         (v.problem.base == Base::prefix &&
                                                          at.kpos < at.row.segment->prefix_len));
                                    };
                                  }});
ATTEST_HYPOTHESIS(causal_plus_one,
                  {.id = "causal_plus_one",
                   .sentence = "the causal mask shows one key too many: kpos <= qpos + 1",
                   .applies = is_causal,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const Factors f = factors(v, at);
                       return at.seen || (at.in_range && at.kpos == at.row.qpos + 1 && f.band &&
                                          f.mask && f.blocks);
                     };
                   }});
ATTEST_HYPOTHESIS(causal_by_rows,
                  {.id = "causal_by_rows",
                   .sentence = "the causal mask compares row numbers, without pads and offsets",
                   .explains = {"causal_top_left"},
                   .rank = 1,
                   .applies = is_causal,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const Factors f = factors(v, at);
                       return at.in_range && at.j <= at.row.i && f.band && f.mask && f.blocks;
                     };
                   }});
ATTEST_HYPOTHESIS(prefix_ignored, {.id = "prefix_ignored",
                                   .sentence = "base=prefix treated as plain causal",
                                   .explains = {"tile_bound_from_other_mask"},
                                   .applies = is_prefix,
                                   .change = [](Variant& v) { v.problem.base = Base::causal; }});
ATTEST_HYPOTHESIS(prefix_full, {.id = "prefix_full",
                                .sentence = "base=prefix treated as full: nothing is hidden",
                                .applies = is_prefix,
                                .change = [](Variant& v) { v.problem.base = Base::full; }});
void shift_prefix(Variant& v, std::int64_t by) {
  for (std::int64_t& n : v.problem.prefix_len) n = std::max<std::int64_t>(n + by, 0);
}
ATTEST_HYPOTHESIS(prefix_plus_one, {.id = "prefix_plus_one",
                                    .sentence = "the prefix is one key too long",
                                    .applies = is_prefix,
                                    .change = [](Variant& v) { shift_prefix(v, 1); }});
ATTEST_HYPOTHESIS(prefix_minus_one, {.id = "prefix_minus_one",
                                     .sentence = "the prefix is one key too short",
                                     .applies = is_prefix,
                                     .change = [](Variant& v) { shift_prefix(v, -1); }});
ATTEST_HYPOTHESIS(prefix_of_first, {.id = "prefix_of_first",
                                    .sentence = "every sequence gets the prefix of the first",
                                    .explains = {"prefix_first_entry"},
                                    .applies = is_prefix,
                                    .change = [](Variant& v) {
                                      auto& n = v.problem.prefix_len;
                                      if (!n.empty()) n.assign(n.size(), n.front());
                                    }});

ATTEST_HYPOTHESIS(window_ignored, {.id = "window_ignored",
                                   .sentence = "the window is ignored",
                                   .applies = has_window,
                                   .change = [](Variant& v) {
                                     v.problem.window_left = v.problem.window_right = -1;
                                     v.problem.global_tokens = 0;
                                   }});
ATTEST_HYPOTHESIS(window_left_ignored, {.id = "window_left_ignored",
                                        .sentence = "the left bound of the window is ignored",
                                        .explains = {"window_ignored"},
                                        .applies = has_left,
                                        .change = [](Variant& v) { v.problem.window_left = -1; }});
ATTEST_HYPOTHESIS(window_right_ignored,
                  {.id = "window_right_ignored",
                   .sentence = "the right bound of the window is ignored",
                   .explains = {"window_ignored"},
                   .applies = has_right,
                   .change = [](Variant& v) { v.problem.window_right = -1; }});
ATTEST_HYPOTHESIS(window_exclusive,
                  {.id = "window_exclusive",
                   .sentence = "the left bound of the window is exclusive; declared inclusive",
                   .applies = has_left,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const bool global =
                           (at.row.qpos >= 0 && at.row.qpos < v.problem.global_tokens) ||
                           (at.kpos >= 0 && at.kpos < v.problem.global_tokens);
                       return at.seen && (global || at.row.qpos - at.kpos < v.problem.window_left);
                     };
                   }});
ATTEST_HYPOTHESIS(window_plus_one, {.id = "window_plus_one",
                                    .sentence = "the window reaches one key too far to the left",
                                    .applies = has_left,
                                    .change = [](Variant& v) { ++v.problem.window_left; }});
ATTEST_HYPOTHESIS(window_right_exclusive,
                  {.id = "window_right_exclusive",
                   .sentence = "the right bound of the window is exclusive",
                   .explains = {"window_exclusive"},
                   .applies = has_right,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const bool global =
                           (at.row.qpos >= 0 && at.row.qpos < v.problem.global_tokens) ||
                           (at.kpos >= 0 && at.kpos < v.problem.global_tokens);
                       return at.seen && (global || at.kpos - at.row.qpos < v.problem.window_right);
                     };
                   }});
ATTEST_HYPOTHESIS(window_right_plus_one,
                  {.id = "window_right_plus_one",
                   .sentence = "the window reaches one key too far to the right",
                   .explains = {"window_plus_one"},
                   .applies = has_right,
                   .change = [](Variant& v) { ++v.problem.window_right; }});
ATTEST_HYPOTHESIS(window_swapped, {.id = "window_swapped",
                                   .sentence = "left and right bound of the window are swapped",
                                   .applies = has_window,
                                   .change = [](Variant& v) {
                                     std::swap(v.problem.window_left, v.problem.window_right);
                                   }});
ATTEST_HYPOTHESIS(window_zero_is_none, {.id = "window_zero_is_none",
                                        .sentence = "a window bound of 0 is taken for no bound",
                                        .explains = {"window_zero"},
                                        .applies = has_window,
                                        .change = [](Variant& v) {
                                          if (v.problem.window_left == 0)
                                            v.problem.window_left = -1;
                                          if (v.problem.window_right == 0)
                                            v.problem.window_right = -1;
                                        }});
ATTEST_HYPOTHESIS(window_without_offset,
                  {.id = "window_without_offset",
                   .sentence = "the window is measured from the row number, without the offset",
                   .explains = {"causal_top_left", "window_ignores_offset"},
                   .rank = 1,
                   .applies = has_window,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const Factors f = factors(v, at);
                       return at.in_range && f.base && f.mask && f.blocks &&
                              band_visible(v.problem, at.row.i - at.row.segment->q0, at.kpos);
                     };
                   }});
ATTEST_HYPOTHESIS(global_ignored, {.id = "global_tokens_ignored",
                                   .sentence = "global tokens are ignored",
                                   .applies = has_global,
                                   .change = [](Variant& v) { v.problem.global_tokens = 0; }});
ATTEST_HYPOTHESIS(global_keys_only,
                  {.id = "global_keys_only",
                   .sentence = "global tokens count as keys alone: a global query keeps its window",
                   .explains = {"global_tokens_ignored", "global_queries_ignored"},
                   .applies = has_global,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       if (!at.seen || (at.kpos >= 0 && at.kpos < v.problem.global_tokens))
                         return at.seen;
                       AttentionProblem plain;
                       plain.window_left = v.problem.window_left;
                       plain.window_right = v.problem.window_right;
                       return band_visible(plain, at.row.qpos, at.kpos);
                     };
                   }});
ATTEST_HYPOTHESIS(global_past_causal,
                  {.id = "global_past_causal",
                   .sentence = "a global token sees or is seen across the causal mask",
                   .explains = {"global_overrides_causal"},
                   .applies = has_global,
                   .change = [](Variant& v) {
                     v.sees = [&v](const PairAt& at) {
                       const Factors f = factors(v, at);
                       const auto g = v.problem.global_tokens;
                       const bool global =
                           (at.row.qpos >= 0 && at.row.qpos < g) || (at.kpos >= 0 && at.kpos < g);
                       return at.seen || (global && at.in_range && f.mask && f.blocks);
                     };
                   }});
ATTEST_HYPOTHESIS(keys_bound_by_q_len,
                  {.id = "kv_loop_bound_from_q_len",
                   .sentence = "the loop over keys ends at the number of queries",
                   .applies = always,
                   .change = [](Variant& v) {
                     v.sees = [](const PairAt& at) {
                       return at.seen && key_number(at) < at.row.segment->q1 - at.row.segment->q0;
                     };
                   }});
ATTEST_HYPOTHESIS(keys_bound_by_capacity, {.id = "kv_loop_bound_from_q_capacity",
                                           .sentence = "the loop over keys ends at q_len",
                                           .explains = {"kv_loop_bound_from_q_len"},
                                           .rank = 1,
                                           .applies = always,
                                           .change = [](Variant& v) {
                                             v.sees = [&v](const PairAt& at) {
                                               return at.seen && at.j < v.problem.q_len;
                                             };
                                           }});
ATTEST_HYPOTHESIS(tile_bound_causal,
                  {.id = "tile_bound_from_other_mask",
                   .sentence = "the loop over keys ends at the causal bound under another mask",
                   .rank = 1,
                   .applies = [](Problem p) { return p.base != Base::causal; },
                   .change =
                       [](Variant& v) {
                         v.sees = [](const PairAt& at) {
                           return at.seen && at.kpos <= at.row.qpos;
                         };
                       }});

ATTEST_HYPOTHESIS(
    chunk_not_causal,
    {.id = "chunk_prefill_not_causal",
     .sentence = "the causal mask is missing among the keys of the queries' own chunk",
     .applies = is_causal,
     .change = [](Variant& v) {
       v.sees = [&v](const PairAt& at) {
         const Factors f = factors(v, at);
         const Segment& s = *at.row.segment;
         const bool own = at.kpos >= s.offset && at.kpos < s.offset + (s.q1 - s.q0);
         return at.in_range && f.band && f.mask && f.blocks && (f.base || own);
       };
     }});
ATTEST_HYPOTHESIS(after_offset_not_causal,
                  {.id = "chunk_prefill_not_causal/all",
                   .sentence = "keys from the queries' offset on are not masked causally",
                   .explains = {"chunk_prefill_not_causal"},
                   .applies = [](Problem p) { return p.base != Base::full; },
                   .change =
                       [](Variant& v) {
                         v.sees = [&v](const PairAt& at) {
                           const Factors f = factors(v, at);
                           const std::int64_t start = at.row.segment->offset;
                           return at.in_range && f.band && f.mask && f.blocks &&
                                  (f.base || (start > 0 && at.kpos >= start));
                         };
                       }});
ATTEST_HYPOTHESIS(causal_not_in_decode, {.id = "causal_ignored_in_decode",
                                         .sentence = "a single query row is never causal",
                                         .rank = 1,
                                         .applies = is_causal,
                                         .change = [](Variant& v) {
                                           if (v.problem.q_len == 1) v.problem.base = Base::full;
                                         }});
void first_entry(std::vector<std::int64_t>& list) {
  if (!list.empty()) list.assign(list.size(), list.front());
}
ATTEST_HYPOTHESIS(q_offset_of_first,
                  {.id = "q_offset_first_entry",
                   .sentence = "every sequence gets the q_offset of the first",
                   .applies = given_offset,
                   .change = [](Variant& v) { first_entry(v.problem.q_offset); }});
ATTEST_HYPOTHESIS(negative_offset, {.id = "negative_offset_clamped",
                                    .sentence = "a negative offset is taken for 0: with more "
                                                "queries than keys the first stands at key 0",
                                    .rank = 1,
                                    .applies = bottom_right,
                                    .change = [](Variant& v) {
                                      std::vector<std::int64_t> offsets;
                                      for (std::int64_t b = 0; b < v.problem.batch; ++b)
                                        for (const Segment& s : rows_of(v.problem, b).segments)
                                          offsets.push_back(std::max<std::int64_t>(s.offset, 0));
                                      use_align(v, Align::q_offset);
                                      v.problem.q_offset = offsets;
                                    }});
ATTEST_HYPOTHESIS(window_causal, {.id = "window_makes_causal",
                                  .sentence = "a window is taken to be causal",
                                  .applies = has_window,
                                  .change = [](Variant& v) {
                                    if (v.problem.base == Base::full) v.problem.base = Base::causal;
                                  }});
ATTEST_HYPOTHESIS(window_symmetric,
                  {.id = "window_symmetric",
                   .sentence = "the left bound of the window serves on both sides",
                   .applies = has_window,
                   .change = [](Variant& v) { v.problem.window_right = v.problem.window_left; }});
ATTEST_HYPOTHESIS(window_lost_when_causal,
                  {.id = "window_dropped_when_causal",
                   .sentence = "the window is ignored where base=causal",
                   .applies = [](Problem p) { return has_window(p) && is_causal(p); },
                   .change =
                       [](Variant& v) {
                         v.problem.window_left = v.problem.window_right = -1;
                         v.problem.global_tokens = 0;
                       }});
ATTEST_HYPOTHESIS(global_one_more, {.id = "global_plus_one",
                                    .sentence = "one global token too many",
                                    .applies = has_global,
                                    .change = [](Variant& v) { ++v.problem.global_tokens; }});
ATTEST_HYPOTHESIS(
    global_queries_only,
    {.id = "global_keys_ignored",
     .sentence = "global tokens count as queries alone: a global key is not seen by all",
     .applies = has_global,
     .change = [](Variant& v) {
       v.sees = [&v](const PairAt& at) {
         if (!at.seen || (at.row.qpos >= 0 && at.row.qpos < v.problem.global_tokens))
           return at.seen;
         AttentionProblem plain;
         plain.window_left = v.problem.window_left;
         plain.window_right = v.problem.window_right;
         return band_visible(plain, at.row.qpos, at.kpos);
       };
     }});

bool tile_bounds() {
  for (const std::int64_t tile : {8, 16, 32, 64, 128}) {
    register_hypothesis(
        {.id = "tile_bound_from_other_mask/" + std::to_string(tile),
         .sentence = with_number("the loop over keys of a tile of # queries ends at its causal "
                                 "bound under another mask",
                                 tile),
         .rank = 2,
         .applies = [](Problem p) { return p.base != Base::causal; },
         .change =
             [tile](Variant& v) {
               v.sees = [tile](const PairAt& at) {
                 const Segment& s = *at.row.segment;
                 const std::int64_t last =
                     std::min(s.q0 + ((at.row.i - s.q0) / tile + 1) * tile, s.q1) - 1;
                 return at.seen && at.kpos <= qpos(s, last);
               };
             }});
    register_hypothesis(
        {.id = "chunk_prefill_not_causal/" + std::to_string(tile),
         .sentence = with_number(
             "the causal mask is missing inside a chunk: queries see all of # keys", tile),
         .explains = {"chunk_prefill_not_causal"},
         .rank = 2,
         .applies = is_causal,
         .change = [tile](Variant& v) {
           v.sees = [&v, tile](const PairAt& at) {
             const Factors f = factors(v, at);
             return at.in_range && f.band && f.mask && f.blocks && at.row.qpos >= 0 &&
                    (f.base || at.kpos / tile == at.row.qpos / tile);
           };
         }});
  }
  return true;
}
[[maybe_unused]] const bool tile_bounds_are_known = tile_bounds();

}  // namespace
}  // namespace attest
