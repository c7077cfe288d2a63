// SPDX-License-Identifier: Apache-2.0
// AttentionProblem: everything that decides what the right answer is, and where the input values
// come from.
//
// Symbols, formulas and conventions: docs/semantics.md. Encodings that differ between kernels
// without changing the answer (mask polarity, lse base, exclusive window bounds) are no part of it:
// they are translated at the subject's edge.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/dtype.hpp"

namespace attest {

/// `rope` is the rotary embedding as a component of its own: y = R x.
enum class Operation : std::uint8_t { forward, backward, decode, rope };
/// The inputs that have a gradient.
enum class Gradient : std::uint8_t { q, k, v, bias, slopes, sink };
inline constexpr std::size_t kNumGradients = 6;

enum class Base : std::uint8_t { full, causal, prefix };
enum class Align : std::uint8_t { bottom_right, top_left, q_offset };
enum class AlibiKind : std::uint8_t { none, absolute, signed_, key_anchored };
enum class RopePairing : std::uint8_t { none, interleaved, half };

/// What a query row without any visible key must give. `unspecified` values are not judged.
enum class EmptyOutput : std::uint8_t { zero, nan, mean_v, unspecified };
enum class EmptyLse : std::uint8_t { neg_inf, pos_inf, zero, unspecified };

/// Where the values of q, k and v come from; each value is a function of (seed, tensor,
/// coordinates) alone. `list` takes them from AttentionProblem::literal.
enum class Family : std::uint8_t {
  gaussian,          ///< standard normal (a sum of uniforms)
  uniform,           ///< in [-1, 1)
  integers,          ///< -3 .. 3: scores are exact in every type
  heavy_tails,       ///< normal, one value in 16 multiplied by up to 2^6
  outlier_channels,  ///< normal, one channel in 16 multiplied by 100
  saturated,         ///< scores around +-40: nearly one-hot rows
  all_low,           ///< every score near -120
  all_high,          ///< every score near +120
  rising,            ///< scores rise with the key: the running maximum moves at every block
  falling,           ///< scores fall with the key
  equal_scores,      ///< every score the same
  needle,            ///< one key per query carries the weight
  identity_v,        ///< v = identity (Dv >= Lk): o is the weight matrix; q, k normal
  one_hot_v,         ///< v has a single 1 per key, at channel j mod Dv; q, k normal
  constant_v,        ///< every v the same non-zero number: o is that number
  alternating,       ///< v = +-1 by key: o cancels
  subnormal,         ///< v in the subnormals of the storage type
  signed_zeros,      ///< +0 and -0 only
  zeros,
  huge,           ///< |q.k| beyond the range of f16 with moderate scaled scores; v large
  low_rank,       ///< keys of rank 1
  repeated_keys,  ///< each key stands 8 times
  sink_keys,      ///< the first keys of a sequence carry most of every row
  addressed,      ///< each key is the needle of the queries that spell its number: half of the row
  list,           ///< literal values
};

enum class BiasKind : std::uint8_t {
  none,
  normal,
  neg_inf,  ///< normal, one entry in four -inf
  lowest,   ///< normal, one entry in four the most negative finite number
  t5,       ///< a T5 relative bias: table[bucket(kpos - qpos)][head]
  list,
};

enum class MaskKind : std::uint8_t {
  none,
  random,  ///< half of the entries visible
  sparse,  ///< one entry in eight visible: many rows are empty
  dense,   ///< one entry in sixteen hidden
  all_true,
  all_false,
  empty_rows,  ///< every third query row hidden, all else visible
  list,
};

enum class SinkKind : std::uint8_t {
  none,
  normal,
  mixed_inf /* every second head -inf */,
  large /* +20 */,
  list
};

enum class SlopesKind : std::uint8_t {
  standard /* docs/semantics.md, section 4 */,
  random,
  per_batch,
  list
};

/// Which axes of a [B, Hq, Lq, Lk] tensor are stored; the others have extent 1 and broadcast.
/// Printed as a subset of "bhqk", "-" for none.
struct Axes {
  bool b = true, h = true, q = true, k = true;
  bool operator==(const Axes&) const = default;
};

/// Memory order and strides of q, k, v and o. Not part of the semantics, part of the case.
enum class Layout : std::uint8_t {
  bhld,       ///< contiguous, as the logical shape
  blhd,       ///< contiguous [B, L, H, D]
  bhdl,       ///< channels outside: the last logical axis is strided
  strided,    ///< bhld with gaps between rows, heads and sequences
  kv_packed,  ///< k and v interleaved in one [B, L, Hkv, 2, D] block (falls back to blhd for Dv !=
              ///< D)
  broadcast,  ///< blhd; k and v have stride 0 over the batch (their values repeat)
  far,        ///< bhld with rows, heads and sequences 2^31 elements and more apart; the memory
              ///< between them is address space alone
};

/// Where a decode call finds the keys and values of earlier calls, and puts the new ones.
enum class CacheKind : std::uint8_t {
  contiguous,  ///< position p of a sequence in its row p
  ring,        ///< in row p mod cache_rows: the oldest rows are overwritten
  paged,       ///< in row p mod page_size of the page that block_table[b][p / page_size] names
};

/// Which pages the sequences of a paged cache have.
enum class PageOrder : std::uint8_t {
  in_order,  ///< one after the other
  shuffled,  ///< in any order, with unused pages between them
  shared,    ///< shuffled; the pages that all sequences have filled before the call are the same
};

/// Values given in the case line, in logical row-major order. Empty = generated.
struct Literal {
  std::vector<double> q, k, v, bias, sink, slopes;
  std::vector<double> mask, blocks, keep;  // 0 or 1
  std::vector<double> d_o, d_lse;          // backward
  bool operator==(const Literal&) const = default;
};

struct AttentionProblem {
  Operation operation = Operation::forward;
  DType dtype = DType::f32;
  std::int64_t batch = 1;
  std::int64_t num_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t q_len = 1;
  std::int64_t kv_len = 1;
  std::int64_t head_dim = 1;
  std::int64_t v_head_dim = 1;

  std::optional<double> scale;  ///< nullopt: exactly 1/sqrt(head_dim)
  double softcap = 0;           ///< 0: none
  double dropout_p = 0;         ///< 0: none; a keep mask is generated otherwise

  Base base = Base::full;
  Align align = Align::bottom_right;
  std::vector<std::int64_t> q_offset;    ///< one per sequence, with Align::q_offset
  std::vector<std::int64_t> prefix_len;  ///< one per sequence, with Base::prefix
  std::int64_t window_left = -1;         ///< inclusive; -1 = unlimited
  std::int64_t window_right = -1;
  std::int64_t global_tokens = 0;  ///< needs a window

  std::vector<std::int64_t> seqlens_q, seqlens_k;    ///< [B] end rows; empty: the full length
  std::vector<std::int64_t> left_pad_q, left_pad_k;  ///< [B]; empty: 0
  std::vector<std::int64_t> cu_seqlens_q,
      cu_seqlens_k;  ///< [S+1], both or neither; needs batch = 1, excludes lengths

  MaskKind mask = MaskKind::none;
  Axes mask_axes;
  BiasKind bias = BiasKind::none;
  Axes bias_axes;
  std::int64_t t5_buckets = 32;
  std::int64_t t5_max_distance = 128;
  bool t5_bidirectional = true;
  bool blocks = false;                      ///< random, three in four set
  Axes block_axes{true, true, true, true};  ///< only b and h matter
  std::int64_t block_q = 16, block_k = 16;
  AlibiKind alibi = AlibiKind::none;
  bool alibi_inside_softcap = false;
  SlopesKind slopes = SlopesKind::standard;
  SinkKind sink = SinkKind::none;
  RopePairing rope = RopePairing::none;
  std::int64_t rope_dim = 0;  ///< 0: head_dim rounded down to even
  double rope_base = 10000;
  double rope_scale = 1;
  double rope_ntk = 1;

  EmptyOutput empty_output = EmptyOutput::zero;
  EmptyLse empty_lse = EmptyLse::neg_inf;

  bool want_lse = true;
  // Of Operation::backward alone:
  std::array<bool, kNumGradients> no_gradient{};  ///< by Gradient: not asked for
  bool d_lse = false;                             ///< a gradient of lse is given; needs want_lse
  Family d_o_data = Family::gaussian;             ///< values of dO, as for v
  std::optional<Layout> d_o_layout;  ///< of dO alone; nullopt: as `layout`. broadcast: one number,
                                     ///< every stride 0, as the gradient of a sum is given

  // Of Operation::decode alone. The problem is that of the whole sequences: of the keys and values
  // of sequence b the last seqlens_q[b] rows (all of q_len) come with the call, those before them
  // lie in the cache.
  CacheKind cache = CacheKind::contiguous;
  std::int64_t cache_rows = 0;  ///< per sequence; 0: as many as kv_len, and at least 1
  std::int64_t page_size = 0;   ///< rows of a page; 0: not paged
  PageOrder pages = PageOrder::in_order;
  bool cache_rotated = false;   ///< keys lie in the cache rotated to their positions
  std::int64_t num_splits = 0;  ///< parts that the keys are worked on in; 0: as the kernel likes

  // Of Operation::rope alone, which turns x = q to the positions q_offset[b] + i (q_offset empty:
  // i) and has none of the fields that speak of keys, scores and rows.
  std::vector<std::int64_t> positions;  ///< of every row instead, [B * L]
  bool rope_inverse = false;            ///< turns back, by -theta: what a backward pass does

  Layout layout = Layout::bhld;
  Family data = Family::gaussian;
  std::optional<Family> v_data;  ///< for v alone; nullopt: as `data`
  std::uint64_t seed = 0;
  Literal literal;

  bool operator==(const AttentionProblem&) const = default;
};

/// 1/sqrt(head_dim) correctly rounded, or the given scale.
double effective_scale(const AttentionProblem& problem);
/// The number of rotated channels.
std::int64_t effective_rope_dim(const AttentionProblem& problem);
/// Sequences that q_offset and prefix_len are given for: the batch, or the segments of a packed
/// batch.
std::int64_t num_sequences(const AttentionProblem& problem);

/// Why the problem contradicts itself or lies outside the domain of docs/semantics.md section 1,
/// naming the field; nullopt where it is legal. Total: any field values, also hostile ones, are
/// safe to pass.
std::optional<std::string> problem_error(const AttentionProblem& problem);

/// Whether the problem is a backward call that asks for this gradient: its input is there.
bool wants_gradient(const AttentionProblem& problem, Gradient gradient);
/// The forward call before a backward one, or over the whole sequences of a decode call.
AttentionProblem forward_of(AttentionProblem problem);
/// What only a backward call, or only a decode call, says becomes the default.
void drop_gradients(AttentionProblem& problem);
void drop_cache(AttentionProblem& problem);

/// Of a decode call: rows of the cache that each sequence has, pages that a sequence may have, and
/// the rows of sequence b before the call and those that come with it.
std::int64_t cache_capacity(const AttentionProblem& problem);
std::int64_t pages_per_sequence(const AttentionProblem& problem);
std::int64_t cached_rows(const AttentionProblem& problem, std::int64_t b);
std::int64_t new_rows(const AttentionProblem& problem, std::int64_t b);
/// Pages that every sequence has in common: those that all have filled before the call.
std::int64_t shared_pages(const AttentionProblem& problem);

/// A problem of Operation::rope that has those fields of the given one that it may have, and the
/// defaults in all others.
AttentionProblem rope_alone(const AttentionProblem& problem);
/// Of such a problem: the position that row i of sequence b is turned to, and the least one with
/// the number of those from it to the greatest.
std::int64_t row_position(const AttentionProblem& problem, std::int64_t b, std::int64_t i);
struct PositionSpan {
  std::int64_t first = 0, count = 0;
};
PositionSpan row_positions(const AttentionProblem& problem);

/// Bytes of all tensors of the call together, saturating at 2^63-1.
std::int64_t tensor_bytes(const AttentionProblem& problem);

}  // namespace attest
