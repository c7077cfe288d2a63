// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "harness/simpler_steps.hpp"

namespace attest {
namespace {

using List = std::vector<std::int64_t>;

/// Nearer to 0: 0, 1 step, half, one less; the sign stays.
List nearer_to_zero(std::int64_t value) {
  const std::int64_t magnitude = std::abs(value);
  const std::int64_t sign = value < 0 ? -1 : 1;
  List nearer;
  for (const std::int64_t candidate :
       {std::int64_t{0}, std::int64_t{1}, magnitude / 2, magnitude - magnitude / 4, magnitude - 1})
    if (candidate < magnitude && candidate >= 0) nearer.push_back(sign * candidate);
  return nearer;
}

void entries_down(Steps& steps, List AttentionProblem::*list) {
  const List& entries = steps.from().*list;
  for (std::size_t n = 0; n < std::min<std::size_t>(entries.size(), 8); ++n)
    for (const std::int64_t nearer : nearer_to_zero(entries[n]))
      steps.edit([&](AttentionProblem& p) { (p.*list)[n] = nearer; });
  for (const std::int64_t all : {0, 1})
    steps.edit([&](AttentionProblem& p) {
      for (std::int64_t& entry : p.*list) entry = all;
    });
}

void bound_down(Steps& steps, std::int64_t AttentionProblem::*bound) {
  if (steps.from().*bound <= 0) return;
  for (const std::int64_t nearer : nearer_to_zero(steps.from().*bound))
    steps.edit([&](AttentionProblem& p) { p.*bound = nearer; });
}

/// Takes rows away from segment s of one side.
void shorten_segment(List& cuts, std::int64_t& rows, std::size_t s, std::int64_t fewer) {
  for (std::size_t n = s + 1; n < cuts.size(); ++n) cuts[n] -= fewer;
  rows -= fewer;
}

void drop_segment(AttentionProblem& p, std::size_t s) {
  const auto at = static_cast<std::ptrdiff_t>(s);
  shorten_segment(p.cu_seqlens_q, p.q_len, s, p.cu_seqlens_q[s + 1] - p.cu_seqlens_q[s]);
  shorten_segment(p.cu_seqlens_k, p.kv_len, s, p.cu_seqlens_k[s + 1] - p.cu_seqlens_k[s]);
  for (auto* list : {&p.cu_seqlens_q, &p.cu_seqlens_k, &p.q_offset, &p.prefix_len})
    if (!list->empty()) list->erase(list->begin() + at);
}

/// Gives the rows of segment s to the one after it.
void inner_cuts_down(Steps& steps, List AttentionProblem::*cuts) {
  const List& from = steps.from().*cuts;
  for (std::size_t n = 1; n + 1 < std::min<std::size_t>(from.size(), 9); ++n)
    steps.edit([&](AttentionProblem& p) { (p.*cuts)[n] = (p.*cuts)[n - 1]; });
}

void segment_lengths_down(Steps& steps, List AttentionProblem::*cuts,
                          std::int64_t AttentionProblem::*rows) {
  const List& from = steps.from().*cuts;
  for (std::size_t s = 0; s + 1 < std::min<std::size_t>(from.size(), 9); ++s) {
    const std::int64_t length = from[s + 1] - from[s];
    for (const std::int64_t shorter : nearer_to_zero(length))
      steps.edit(
          [&](AttentionProblem& p) { shorten_segment(p.*cuts, p.*rows, s, length - shorter); });
  }
}

}  // namespace

void segments_down(Steps& steps) {
  const AttentionProblem& from = steps.from();
  if (from.cu_seqlens_q.empty()) return;
  const std::size_t segments = from.cu_seqlens_q.size() - 1;
  for (std::size_t s = 0; segments > 1 && s < std::min<std::size_t>(segments, 8); ++s)
    steps.edit([&](AttentionProblem& p) { drop_segment(p, s); });
  // The rows after the last segment.
  steps.edit([](AttentionProblem& p) { p.q_len = p.cu_seqlens_q.back(); });
  steps.edit([](AttentionProblem& p) { p.kv_len = p.cu_seqlens_k.back(); });
  segment_lengths_down(steps, &AttentionProblem::cu_seqlens_q, &AttentionProblem::q_len);
  segment_lengths_down(steps, &AttentionProblem::cu_seqlens_k, &AttentionProblem::kv_len);
  inner_cuts_down(steps, &AttentionProblem::cu_seqlens_q);
  inner_cuts_down(steps, &AttentionProblem::cu_seqlens_k);
}

void positions_down(Steps& steps) {
  bound_down(steps, &AttentionProblem::window_left);
  bound_down(steps, &AttentionProblem::window_right);
  bound_down(steps, &AttentionProblem::global_tokens);
  bound_down(steps, &AttentionProblem::rope_dim);
  bound_down(steps, &AttentionProblem::cache_rows);
  bound_down(steps, &AttentionProblem::page_size);
  bound_down(steps, &AttentionProblem::num_splits);
  for (auto list :
       {&AttentionProblem::seqlens_q, &AttentionProblem::seqlens_k, &AttentionProblem::left_pad_q,
        &AttentionProblem::left_pad_k, &AttentionProblem::q_offset, &AttentionProblem::prefix_len,
        &AttentionProblem::positions})
    entries_down(steps, list);
}

}  // namespace attest
