// SPDX-License-Identifier: Apache-2.0
#include "harness/simpler.hpp"

#include <algorithm>

#include "harness/complexity.hpp"
#include "harness/legal.hpp"
#include "harness/literal.hpp"
#include "harness/simpler_steps.hpp"
#include "harness/switches.hpp"

namespace attest {

void Steps::propose(AttentionProblem edited) {
  edited = mend(with_cut_literals(from_, std::move(edited)));
  if (!(complexity(edited) < complexity_)) return;
  if (std::find(found_.begin(), found_.end(), edited) == found_.end())
    found_.push_back(std::move(edited));
}

namespace {

/// Leaps that end most searches for an accident, which has nothing to do with the values: a hang
/// costs its time limit at every step that is accepted.
void plainest(Steps& steps) {
  for (const bool keep_lengths : {false, true})
    for (const bool keep_data : {false, true})
      steps.edit([&](AttentionProblem& p) {
        for (const Switch& feature : switches()) feature.off(p);
        p.batch = p.num_heads = p.num_kv_heads = p.head_dim = p.v_head_dim = 1;
        if (!keep_lengths) p.q_len = p.kv_len = 1;
        if (keep_data) return;
        p.data = Family::zeros;
        p.seed = 0;
      });
}

void features_off(Steps& steps) {
  steps.edit([](AttentionProblem& p) {
    for (const Switch& feature : switches()) feature.off(p);
  });
  const auto on = [&](const Switch& feature) { return feature.on(steps.from()); };
  for (const Switch& kept : switches()) {
    if (!on(kept)) continue;
    steps.edit([&](AttentionProblem& p) {
      for (const Switch& feature : switches())
        if (&feature != &kept) feature.off(p);
    });
  }
  for (const Switch& feature : switches())
    if (on(feature)) steps.edit(feature.off);
}

std::vector<std::vector<std::int64_t>*> per_sequence_lists(AttentionProblem& p) {
  return {&p.q_offset, &p.prefix_len, &p.seqlens_q, &p.seqlens_k, &p.left_pad_q, &p.left_pad_k};
}

void keep_sequences(AttentionProblem& p, std::int64_t first, std::int64_t count) {
  if (!p.positions.empty())
    p.positions = std::vector<std::int64_t>(p.positions.begin() + first * p.q_len,
                                            p.positions.begin() + (first + count) * p.q_len);
  p.batch = count;
  for (auto* list : per_sequence_lists(p))
    if (!list->empty())
      *list = std::vector<std::int64_t>(list->begin() + first, list->begin() + first + count);
}

void batch_down(Steps& steps) {
  const std::int64_t batch = steps.from().batch;
  // Which sequence matters is seen by keeping each of them alone.
  for (std::int64_t b = 0; b < std::min<std::int64_t>(batch, 4) && batch > 1; ++b)
    steps.edit([&](AttentionProblem& p) { keep_sequences(p, b, 1); });
  for (const std::int64_t fewer : smaller_extents(batch)) {
    steps.edit([&](AttentionProblem& p) { keep_sequences(p, 0, fewer); });
    steps.edit([&](AttentionProblem& p) { keep_sequences(p, batch - fewer, fewer); });
  }
}

void heads_down(Steps& steps) {
  const std::int64_t kv_heads = steps.from().num_kv_heads;
  const std::int64_t group = steps.from().num_heads / kv_heads;
  const auto heads = [&](std::int64_t fewer_kv, std::int64_t smaller_group) {
    steps.edit([&](AttentionProblem& p) {
      p.num_kv_heads = fewer_kv;
      p.num_heads = fewer_kv * smaller_group;
    });
  };
  heads(1, 1);
  heads(kv_heads, 1);
  for (const std::int64_t fewer : smaller_extents(kv_heads)) heads(fewer, group);
  for (const std::int64_t smaller : smaller_extents(group)) heads(kv_heads, smaller);
  for (const std::int64_t fewer : smaller_extents(kv_heads))
    for (const std::int64_t smaller : smaller_extents(group)) heads(fewer, smaller);
}

/// Where the channels of v are one per key, they follow the keys.
void set_kv_len(AttentionProblem& p, std::int64_t kv_len) {
  if (p.v_data.value_or(p.data) == Family::identity_v && p.v_head_dim == p.kv_len)
    p.v_head_dim = kv_len;
  p.kv_len = kv_len;
}

/// The same number of rows fewer at the end of every sequence that has them.
void take_from_lengths(std::vector<std::int64_t>& lens, std::int64_t rows) {
  for (std::int64_t& length : lens) length = std::max<std::int64_t>(length - rows, 0);
}

void lengths_down(Steps& steps) {
  const AttentionProblem& from = steps.from();
  for (const std::int64_t fewer : smaller_extents(from.q_len)) {
    steps.edit([&](AttentionProblem& p) { p.q_len = fewer; });
    if (!from.seqlens_q.empty())
      steps.edit([&](AttentionProblem& p) {
        take_from_lengths(p.seqlens_q, from.q_len - fewer);
        p.q_len = fewer;
      });
  }
  for (const std::int64_t fewer : smaller_extents(from.kv_len)) {
    steps.edit([&](AttentionProblem& p) { set_kv_len(p, fewer); });
    if (!from.seqlens_k.empty())
      steps.edit([&](AttentionProblem& p) {
        take_from_lengths(p.seqlens_k, from.kv_len - fewer);
        set_kv_len(p, fewer);
      });
  }
}

std::vector<std::int64_t> smaller_channels(std::int64_t channels) {
  std::vector<std::int64_t> fewer = smaller_extents(channels);
  for (const std::int64_t count : {2, 4, 8, 16, 32, 64}) fewer.push_back(count);
  fewer.push_back(channels - 8);
  std::erase_if(fewer, [&](std::int64_t count) { return count < 1 || count >= channels; });
  return fewer;
}

void channels_down(Steps& steps) {
  const AttentionProblem& from = steps.from();
  if (from.head_dim == from.v_head_dim)
    for (const std::int64_t fewer : smaller_channels(from.head_dim))
      steps.edit([&](AttentionProblem& p) { p.head_dim = p.v_head_dim = fewer; });
  for (const std::int64_t fewer : smaller_channels(from.head_dim))
    steps.edit([&](AttentionProblem& p) { p.head_dim = fewer; });
  for (const std::int64_t fewer : smaller_channels(from.v_head_dim))
    steps.edit([&](AttentionProblem& p) { p.v_head_dim = fewer; });
}

/// Both lengths together, and everything that is measured in rows with them.
void coupled_down(Steps& steps) {
  const AttentionProblem& from = steps.from();
  const std::int64_t shorter = std::min(from.q_len, from.kv_len);
  for (const std::int64_t fewer : smaller_extents(shorter))
    steps.edit([&](AttentionProblem& p) {
      p.q_len -= shorter - fewer;
      set_kv_len(p, p.kv_len - (shorter - fewer));
      take_from_lengths(p.seqlens_q, shorter - fewer);
      take_from_lengths(p.seqlens_k, shorter - fewer);
    });
  if (shorter < 2) return;
  steps.edit([&](AttentionProblem& p) {
    p.q_len /= 2;
    set_kv_len(p, p.kv_len / 2);
    for (auto* list : per_sequence_lists(p))
      for (std::int64_t& entry : *list) entry /= 2;
    for (auto* cuts : {&p.cu_seqlens_q, &p.cu_seqlens_k})
      for (std::int64_t& cut : *cuts) cut /= 2;
    if (p.window_left > 0) p.window_left /= 2;
    if (p.window_right > 0) p.window_right /= 2;
  });
}

}  // namespace

std::vector<std::int64_t> smaller_extents(std::int64_t extent) {
  std::vector<std::int64_t> smaller;
  for (const std::int64_t candidate :
       {std::int64_t{1}, extent / 2, extent - extent / 4, extent - extent / 16, extent - 1})
    if (candidate >= 1 && candidate < extent &&
        std::find(smaller.begin(), smaller.end(), candidate) == smaller.end())
      smaller.push_back(candidate);
  return smaller;
}

std::vector<AttentionProblem> simpler(const AttentionProblem& problem) {
  Steps steps(problem);
  plainest(steps);
  features_off(steps);
  batch_down(steps);
  heads_down(steps);
  lengths_down(steps);
  channels_down(steps);
  coupled_down(steps);
  segments_down(steps);
  positions_down(steps);
  choices_down(steps);
  data_down(steps);
  literals_down(steps);
  return std::move(steps).found();
}

}  // namespace attest
