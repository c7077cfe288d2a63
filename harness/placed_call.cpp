// SPDX-License-Identifier: Apache-2.0
#include "harness/placed_call.hpp"

namespace attest {

const char* name(Slot slot) {
  constexpr const char* kNames[kNumSlots] = {
      "q",
      "k",
      "v",
      "o",
      "lse",
      "bias",
      "mask",
      "blocks",
      "keep",
      "alibi_slopes",
      "sink",
      "seqlens_q",
      "seqlens_k",
      "left_pad_q",
      "left_pad_k",
      "cu_seqlens_q",
      "cu_seqlens_k",
      "q_offset",
      "prefix_len",
      "rope_cos",
      "rope_sin",
      "d_o",
      "d_lse",
      "d_q",
      "d_k",
      "d_v",
      "d_bias",
      "d_alibi_slopes",
      "d_sink",
      "k_cache",
      "v_cache",
      "cache_len",
      "block_table",
      "x",
      "y",
      "positions",
      "the workspace",
  };
  const int index = static_cast<int>(slot);
  return index < kNumSlots ? kNames[index] : "?";
}

}  // namespace attest
