// SPDX-License-Identifier: Apache-2.0
// A call laid out in shared memory, as offsets: the same bytes mean the same call in the runner and
// in the kernel host. C-compatible plain data, since the host is a thin child that links libc and
// libdl alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attest {

/// The tensors of attest_attention, in its order, then those of a component. One fixed slot between
/// guard pages for each.
enum class Slot : std::uint8_t {
  q,
  k,
  v,
  o,
  lse,
  bias,
  mask,
  blocks,
  keep,
  alibi_slopes,
  sink,
  seqlens_q,
  seqlens_k,
  left_pad_q,
  left_pad_k,
  cu_seqlens_q,
  cu_seqlens_k,
  q_offset,
  prefix_len,
  rope_cos,
  rope_sin,
  d_o,
  d_lse,
  d_q,
  d_k,
  d_v,
  d_bias,
  d_alibi_slopes,
  d_sink,
  k_cache,
  v_cache,
  cache_len,
  block_table,
  x,
  y,
  positions,
  workspace,
};
inline constexpr int kNumSlots = static_cast<int>(Slot::workspace) + 1;
/// Read and written by a decode call.
constexpr bool is_cache(Slot slot) { return slot == Slot::k_cache || slot == Slot::v_cache; }
/// The tensors that a backward call writes; the other ones write o and lse.
constexpr bool is_gradient(Slot slot) { return slot >= Slot::d_q && slot <= Slot::d_sink; }
const char* name(Slot slot);

struct PlacedTensor {
  std::uint32_t present;
  std::uint8_t code, bits;  ///< DLDataType
  std::uint16_t rank;
  std::uint64_t offset;  ///< of element [0, 0, ...] from the arena's base
  std::int64_t shape[4];
  std::int64_t strides[4];  ///< elements
  std::uint64_t extent_begin,
      extent_end;  ///< arena offsets of the bytes the tensor spans, for attribution
};

struct PlacedScalars {
  double scale, softcap, dropout_p, rope_base, rope_scale, rope_ntk;
  std::int64_t window_left, window_right, global_tokens, block_q, block_k, rope_dim, rope_position;
  std::int64_t num_splits;
  std::int32_t base, align, alibi, alibi_inside_softcap, rope, cache, cache_rotated, num_threads;
  std::int32_t operation;  ///< of the enum Operation
  std::int32_t rope_inverse;
};

struct PlacedCall {
  PlacedTensor tensors[kNumSlots];
  PlacedScalars scalars;
  /// The workspace's size is known only once the kernel has planned, so the callee lays it out: at
  /// which end of its slot, and filled with what.
  std::uint64_t workspace_fill;
  std::uint32_t workspace_at_end;
  std::uint32_t repeats;  ///< how often the operation runs, planned once; 0 as 1
};

}  // namespace attest
