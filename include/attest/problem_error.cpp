// SPDX-License-Identifier: Apache-2.0
// What makes a problem illegal. Fields are called by their case-line keys (docs/case-line.md),
// since that is where most people meet them.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "attest/problem.hpp"
#include "attest/sequences.hpp"
#include "attest/text.hpp"

namespace attest {
namespace {

using MaybeError = std::optional<std::string>;

/// No tensor and no total beyond this; windows too, so that sums with positions never overflow.
constexpr std::int64_t kLimit = std::int64_t{1} << 62;
constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kInt32Min = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kMostT5Buckets = 1024;
/// RoPE base and factors stay in here, so that base * ntk^(R/(R-2)) and positions / scale do too.
constexpr double kLeastRope = 0x1p-40, kMostRope = 0x1p40;
constexpr std::int64_t kMostRopeRows = std::int64_t{1} << 24;

MaybeError unknown_values(const AttentionProblem& p) {
  const auto check = [](bool known, const char* key) -> MaybeError {
    if (known) return std::nullopt;
    return fmt::format("{} is a number that stands for nothing", key);
  };
  for (auto error :
       {check(in_list(p.dtype), "dtype"), check(in_list(p.base), "base"),
        check(in_list(p.align), "align"), check(in_list(p.mask), "mask"),
        check(in_list(p.bias), "bias"), check(in_list(p.alibi), "alibi"),
        check(in_list(p.slopes), "slopes"), check(in_list(p.sink), "sink"),
        check(in_list(p.rope), "rope"), check(in_list(p.empty_output), "empty_output"),
        check(in_list(p.empty_lse), "empty_lse"), check(in_list(p.layout), "layout"),
        check(in_list(p.data), "data"), check(!p.v_data || in_list(*p.v_data), "v_data"),
        check(in_list(p.operation), "the operation"), check(in_list(p.d_o_data), "d_o_data"),
        check(!p.d_o_layout || in_list(*p.d_o_layout), "d_o_layout"),
        check(in_list(p.cache), "cache"), check(in_list(p.pages), "pages")})
    if (error) return error;
  return std::nullopt;
}

MaybeError dims(const AttentionProblem& p) {
  const auto below = [](const char* key, std::int64_t value, std::int64_t least) -> MaybeError {
    if (value >= least) return std::nullopt;
    return fmt::format("{} is {}; it must be at least {}", key, value, least);
  };
  if (auto error = below("b", p.batch, 0)) return error;
  if (auto error = below("hkv", p.num_kv_heads, 1)) return error;
  if (auto error = below("hq", p.num_heads, 1)) return error;
  if (p.num_heads % p.num_kv_heads != 0)
    return fmt::format("hkv={} does not divide hq={}", p.num_kv_heads, p.num_heads);
  if (auto error = below("lq", p.q_len, 0)) return error;
  if (auto error = below("lk", p.kv_len, 0)) return error;
  if (auto error = below("d", p.head_dim, 0)) return error;
  if (auto error = below("dv", p.v_head_dim, 0)) return error;
  if (p.head_dim == 0 && !p.scale) return "d is 0, which needs an explicit scale";
  if (p.blocks) {
    for (auto value : {p.block_q, p.block_k})
      if (value < 1 || value > kLimit)
        return fmt::format("blocks={},{}: a block has 1 to 2^62 rows", p.block_q, p.block_k);
  }
  return std::nullopt;
}

/// Strides are products of extents, and must not overflow where an extent is 0 either.
MaybeError sizes(const AttentionProblem& p) {
  const auto too_large = [](const char* tensor, std::initializer_list<std::int64_t> extents,
                            std::int64_t element) -> MaybeError {
    std::int64_t bytes = element;
    for (auto extent : extents) bytes = saturating_multiply(bytes, extent < 1 ? 1 : extent);
    if (bytes <= kLimit) return std::nullopt;
    return fmt::format("{} would need more than 2^62 bytes", tensor);
  };
  const auto element = static_cast<std::int64_t>(size_of(p.dtype));
  if (auto error = too_large("q (b*hq*lq*d)", {p.batch, p.num_heads, p.q_len, p.head_dim}, element))
    return error;
  if (auto error =
          too_large("k (b*hkv*lk*d)", {p.batch, p.num_kv_heads, p.kv_len, p.head_dim}, element))
    return error;
  if (auto error =
          too_large("v (b*hkv*lk*dv)", {p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim}, element))
    return error;
  if (auto error =
          too_large("o (b*hq*lq*dv)", {p.batch, p.num_heads, p.q_len, p.v_head_dim}, element))
    return error;
  if (auto error =
          too_large("the scores (b*hq*lq*lk)", {p.batch, p.num_heads, p.q_len, p.kv_len}, element))
    return error;
  if (tensor_bytes(p) > kLimit) return "all tensors together would need more than 2^62 bytes";
  return std::nullopt;
}

MaybeError scalars(const AttentionProblem& p) {
  if (p.scale && !std::isfinite(*p.scale))
    return fmt::format("scale is {}; it must be finite", *p.scale);
  if (!(p.softcap >= 0) || std::isinf(p.softcap))
    return fmt::format("softcap is {}; it must be 0 (none) or finite and above 0", p.softcap);
  if (!(p.dropout_p >= 0 && p.dropout_p < 1))
    return fmt::format("dropout is {}; it must lie in [0, 1)", p.dropout_p);
  return std::nullopt;
}

/// A list of int32 with one entry per sequence, each in [least, most].
MaybeError per_sequence(const AttentionProblem& p, const char* key,
                        const std::vector<std::int64_t>& values, std::int64_t least,
                        std::int64_t most) {
  if (static_cast<std::int64_t>(values.size()) != num_sequences(p))
    return fmt::format("{} has {} entries, but there are {} sequences", key, values.size(),
                       num_sequences(p));
  for (std::size_t n = 0; n < values.size(); ++n)
    if (values[n] < least || values[n] > most)
      return fmt::format("{}[{}] is {}; it must lie in {}..{}", key, n, values[n], least, most);
  return std::nullopt;
}

MaybeError cumulative(const char* key, const std::vector<std::int64_t>& starts, const char* len_key,
                      std::int64_t length) {
  if (starts.size() < 2)
    return fmt::format("{} needs at least one segment, e.g. 0,{}", key, length);
  if (starts.front() != 0) return fmt::format("{} starts at {}, not at 0", key, starts.front());
  for (std::size_t s = 1; s < starts.size(); ++s)
    if (starts[s] < starts[s - 1])
      return fmt::format("{} descends from {} to {} at entry {}", key, starts[s - 1], starts[s], s);
  if (starts.back() > length || starts.back() > kInt32Max)
    return fmt::format("{} ends at {}, beyond {}={}", key, starts.back(), len_key, length);
  return std::nullopt;
}

MaybeError packing(const AttentionProblem& p) {
  if (p.cu_seqlens_q.empty() && p.cu_seqlens_k.empty()) return std::nullopt;
  if (p.cu_seqlens_q.empty() || p.cu_seqlens_k.empty())
    return "cu_seqlens_q and cu_seqlens_k belong together; one is missing";
  if (p.batch != 1) return fmt::format("cu_seqlens_q needs b=1, but b is {}", p.batch);
  if (!p.seqlens_q.empty() || !p.seqlens_k.empty() || !p.left_pad_q.empty() ||
      !p.left_pad_k.empty())
    return "cu_seqlens_q and per-sequence lengths or pads exclude each other";
  if (auto error = cumulative("cu_seqlens_q", p.cu_seqlens_q, "lq", p.q_len)) return error;
  if (auto error = cumulative("cu_seqlens_k", p.cu_seqlens_k, "lk", p.kv_len)) return error;
  if (p.cu_seqlens_q.size() != p.cu_seqlens_k.size())
    return fmt::format("cu_seqlens_q has {} segments, cu_seqlens_k has {}",
                       p.cu_seqlens_q.size() - 1, p.cu_seqlens_k.size() - 1);
  return std::nullopt;
}

MaybeError lengths(const AttentionProblem& p) {
  const auto check = [&p](const char* lens_key, const std::vector<std::int64_t>& lens,
                          const char* pad_key, const std::vector<std::int64_t>& pads,
                          std::int64_t capacity) -> MaybeError {
    const std::int64_t most = std::min(capacity, kInt32Max);
    if (!lens.empty())
      if (auto error = per_sequence(p, lens_key, lens, 0, most)) return error;
    if (pads.empty()) return std::nullopt;
    if (auto error = per_sequence(p, pad_key, pads, 0, most)) return error;
    for (std::size_t n = 0; n < pads.size() && !lens.empty(); ++n)
      if (pads[n] > lens[n])
        return fmt::format("{}[{}] is {}, above {}[{}]={}", pad_key, n, pads[n], lens_key, n,
                           lens[n]);
    return std::nullopt;
  };
  if (auto error = check("seqlens_q", p.seqlens_q, "left_pad_q", p.left_pad_q, p.q_len))
    return error;
  return check("seqlens_k", p.seqlens_k, "left_pad_k", p.left_pad_k, p.kv_len);
}

MaybeError positions(const AttentionProblem& p) {
  if (p.operation == Operation::rope) return std::nullopt;  // row_list() looks at its q_offset
  if (p.align == Align::q_offset) {
    if (auto error = per_sequence(p, "q_offset", p.q_offset, kInt32Min, kInt32Max)) return error;
  } else if (!p.q_offset.empty()) {
    return fmt::format("q_offset is given, but align is {}; say align=q_offset",
                       enum_name(p.align));
  }
  if (p.base == Base::prefix) {
    if (auto error = per_sequence(p, "prefix_len", p.prefix_len, 0, kInt32Max)) return error;
  } else if (!p.prefix_len.empty()) {
    return fmt::format("prefix_len is given, but base is {}; say base=prefix", enum_name(p.base));
  }
  for (auto bound : {p.window_left, p.window_right})
    if (bound < -1 || bound > kLimit)
      return fmt::format("window={},{}: a bound is -1 (unlimited) or 0..2^62", p.window_left,
                         p.window_right);
  if (p.global_tokens < 0 || p.global_tokens > kLimit)
    return fmt::format("global_tokens is {}; it must lie in 0..2^62", p.global_tokens);
  if (p.global_tokens > 0 && p.window_left == -1 && p.window_right == -1)
    return "global_tokens needs a window";
  return std::nullopt;
}

/// kpos - qpos at row 0, which a bias shared by the batch needs to be the same everywhere.
bool relative_positions_differ(const AttentionProblem& p) {
  const auto sequences = sequence_rows(p);
  const auto shift = [](const SequenceRows& rows) { return rows.q0 - rows.k0 - rows.offset; };
  for (const SequenceRows& rows : sequences)
    if (shift(rows) != shift(sequences.front())) return true;
  return false;
}

MaybeError t5(const AttentionProblem& p) {
  if (p.bias != BiasKind::t5) {
    if (p.t5_buckets != 32 || p.t5_max_distance != 128 || !p.t5_bidirectional)
      return "t5 is given, but bias is not t5";
    return std::nullopt;
  }
  if (p.t5_buckets < (p.t5_bidirectional ? 4 : 2) || p.t5_buckets > kMostT5Buckets)
    return fmt::format("t5 has {} buckets; {} need {}..{}", p.t5_buckets,
                       p.t5_bidirectional ? "bidirectional ones" : "causal ones",
                       p.t5_bidirectional ? 4 : 2, kMostT5Buckets);
  const std::int64_t exact = (p.t5_bidirectional ? p.t5_buckets / 2 : p.t5_buckets) / 2;
  if (p.t5_max_distance <= exact || p.t5_max_distance > kInt32Max)
    return fmt::format("t5 has max_distance {}; it must lie in {}..{}", p.t5_max_distance,
                       exact + 1, kInt32Max);
  if (!p.bias_axes.q || !p.bias_axes.k) return "bias=t5 needs the axes q and k in bias_axes";
  if (!p.bias_axes.b && p.cu_seqlens_q.empty() && relative_positions_differ(p))
    return "bias=t5 needs the axis b in bias_axes where positions differ between sequences";
  return std::nullopt;
}

MaybeError alibi(const AttentionProblem& p) {
  if (p.alibi == AlibiKind::none) {
    if (p.slopes != SlopesKind::standard) return "slopes is given, but alibi is none";
    if (p.alibi_inside_softcap) return "alibi_inside is given, but alibi is none";
  } else if (p.alibi_inside_softcap && p.softcap == 0) {
    return "alibi_inside needs a softcap";
  }
  return std::nullopt;
}

MaybeError rope(const AttentionProblem& p) {
  if (p.rope == RopePairing::none) {
    if (p.rope_dim != 0 || p.rope_base != 10000 || p.rope_scale != 1 || p.rope_ntk != 1)
      return "rope_dim, rope_base, rope_scale or rope_ntk is given, but rope is none";
    return std::nullopt;
  }
  if (p.head_dim < 2) return fmt::format("rope needs d of at least 2, but d is {}", p.head_dim);
  if (p.rope_dim != 0 && (p.rope_dim < 2 || p.rope_dim % 2 != 0 || p.rope_dim > p.head_dim))
    return fmt::format("rope_dim is {}; it must be even and lie in 2..{}", p.rope_dim, p.head_dim);
  const auto range = [](const char* key, double value) -> MaybeError {
    if (value >= kLeastRope && value <= kMostRope) return std::nullopt;
    return fmt::format("{} is {}; it must lie in 2^-40..2^40", key, value);
  };
  if (auto error = range("rope_base", p.rope_base)) return error;
  if (auto error = range("rope_scale", p.rope_scale)) return error;
  if (auto error = range("rope_ntk", p.rope_ntk)) return error;
  if (p.rope_ntk != 1 && effective_rope_dim(p) <= 2)
    return "rope_ntk needs more than 2 rotated channels";
  return std::nullopt;
}

/// The first key of the case line that attest.rope does not take.
std::string not_of_rope(const AttentionProblem& p) {
  const std::string given = print_case(p), taken = print_case(rope_alone(p)) + ' ';
  for (const Word& word : split_words(given)) {
    if (taken.find(std::string(word.text) + ' ') != std::string::npos) continue;
    const std::string_view key = word.text.substr(0, word.text.find('='));
    if (key == "hkv") return "attention.rope has no heads of keys: hkv is hq";
    if (key == "dv") return "attention.rope has no values: dv is d";
    return fmt::format("attention.rope takes no {}", key);
  }
  return "attention.rope takes no fields of keys and scores";
}

/// A position for each row of attention.rope, and tables that can be made.
MaybeError row_list(const AttentionProblem& p) {
  if (!p.positions.empty() && !p.q_offset.empty())
    return "q_offset and positions exclude each other";
  if (!p.q_offset.empty())
    if (auto error = per_sequence(p, "q_offset", p.q_offset, kInt32Min,
                                  std::max(kInt32Max - p.q_len, kInt32Min)))
      return error;
  if (p.q_len > kInt32Max) return fmt::format("lq is {}; positions are int32", p.q_len);
  if (!p.positions.empty() &&
      static_cast<std::int64_t>(p.positions.size()) != saturating_multiply(p.batch, p.q_len))
    return fmt::format("positions has {} entries; b*lq={}*{} rows need one each",
                       p.positions.size(), p.batch, p.q_len);
  for (std::size_t n = 0; n < p.positions.size(); ++n)
    if (p.positions[n] < kInt32Min || p.positions[n] > kInt32Max)
      return fmt::format("positions[{}] is {}; it must lie in {}..{}", n, p.positions[n], kInt32Min,
                         kInt32Max);
  if (const std::int64_t rows = row_positions(p).count; rows > kMostRopeRows)
    return fmt::format("positions lie up to {} apart; tables have at most {} rows", rows - 1,
                       kMostRopeRows);
  return std::nullopt;
}

MaybeError rope_call(const AttentionProblem& p) {
  if (p.operation != Operation::rope) {
    if (p.rope_inverse) return "rope_inverse needs attention.rope";
    if (!p.positions.empty()) return "positions needs attention.rope";
    return std::nullopt;
  }
  if (p.rope == RopePairing::none) return "attention.rope needs rope=interleaved or rope=half";
  if (p.layout == Layout::kv_packed || p.layout == Layout::broadcast || p.layout == Layout::far)
    return fmt::format("attention.rope takes no layout={}", enum_name(p.layout));
  if (p != rope_alone(p)) return not_of_rope(p);
  return row_list(p);
}

MaybeError axes(const AttentionProblem& p) {
  if (p.mask == MaskKind::none && p.mask_axes != Axes{})
    return "mask_axes is given, but mask is none";
  if (p.bias == BiasKind::none && p.bias_axes != Axes{})
    return "bias_axes is given, but bias is none";
  if (!p.blocks && (p.block_axes != Axes{} || p.block_q != 16 || p.block_k != 16))
    return "block_axes or block sizes are given, but blocks is not";
  if (!p.block_axes.q || !p.block_axes.k) return "block_axes needs the axes q and k";
  return std::nullopt;
}

enum class Values : std::uint8_t { any, finite, boolean };

/// `wanted`: the field is to hold `count` values; else none. Values must be exact in `type`.
MaybeError literal(const char* key, const std::vector<double>& values, bool wanted,
                   const char* owner, std::int64_t count, DType type, Values allowed) {
  if (!wanted) {
    if (values.empty()) return std::nullopt;
    return fmt::format("{} is given, but {} is not", key, owner);
  }
  if (static_cast<std::int64_t>(values.size()) != count)
    return fmt::format("{} has {} values; the shape needs {}", key, values.size(), count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (allowed == Values::boolean && value != 0 && value != 1)
      return fmt::format("{}[{}] is {}; it must be 0 or 1", key, i, value);
    if (allowed == Values::finite && !std::isfinite(value))
      return fmt::format("{}[{}] is {}; it must be finite", key, i, value);
    if (!std::isnan(value) && round_to(type, value) != value)
      return fmt::format("{}[{}] is {}, which {} does not hold exactly", key, i, value, name(type));
  }
  return std::nullopt;
}

std::int64_t stored(const Axes& axes, std::int64_t b, std::int64_t h, std::int64_t q,
                    std::int64_t k) {
  return (axes.b ? b : 1) * (axes.h ? h : 1) * (axes.q ? q : 1) * (axes.k ? k : 1);
}

/// Layout::broadcast lets sequences share k and v, so literal values must repeat too.
MaybeError repeats(const AttentionProblem& p, const char* key, const std::vector<double>& values) {
  if (p.layout != Layout::broadcast || p.batch < 2) return std::nullopt;
  const std::size_t per_sequence_count = values.size() / static_cast<std::size_t>(p.batch);
  for (std::size_t i = per_sequence_count; i < values.size(); ++i)
    if (std::bit_cast<std::uint64_t>(values[i]) !=
        std::bit_cast<std::uint64_t>(values[i - per_sequence_count]))
      return fmt::format("layout=broadcast shares {} between sequences, but {}[{}] differs", key,
                         key, i);
  return std::nullopt;
}

/// Sequences share pages too: literal values of their rows must repeat.
MaybeError repeats_on_pages(const AttentionProblem& p, const char* key,
                            const std::vector<double>& values, std::int64_t channels) {
  const std::int64_t shared = shared_pages(p);
  if (shared == 0 || values.empty()) return std::nullopt;
  const auto of_head = static_cast<std::size_t>(p.kv_len * channels);
  const std::size_t of_sequence = of_head * static_cast<std::size_t>(p.num_kv_heads);
  const auto on_pages = static_cast<std::size_t>(shared * p.page_size * channels);
  for (std::size_t i = of_sequence; i < values.size(); ++i)
    if (i % of_head < on_pages && std::bit_cast<std::uint64_t>(values[i]) !=
                                      std::bit_cast<std::uint64_t>(values[i % of_sequence]))
      return fmt::format("pages=shared shares {} between sequences, but {}[{}] differs", key, key,
                         i);
  return std::nullopt;
}

MaybeError literals(const AttentionProblem& p) {
  const Literal& given = p.literal;
  const bool qk = p.data == Family::list;
  const bool alone = p.operation == Operation::rope;
  const bool v = p.v_data.value_or(p.data) == Family::list && !alone;
  const DType statistic = p.dtype == DType::f64 ? DType::f64 : DType::f32;
  const std::int64_t slope_count = static_cast<std::int64_t>(given.slopes.size()) == p.num_heads
                                       ? p.num_heads
                                       : p.batch * p.num_heads;
  const auto blocks_of = [](std::int64_t rows, std::int64_t block) {
    return rows / block + (rows % block != 0);
  };
  if (auto error = literal("q", given.q, qk, "data=list",
                           p.batch * p.num_heads * p.q_len * p.head_dim, p.dtype, Values::any))
    return error;
  if (auto error = literal("k", given.k, qk && !alone, "data=list",
                           p.batch * p.num_kv_heads * p.kv_len * p.head_dim, p.dtype, Values::any))
    return error;
  if (auto error =
          literal("v", given.v, v, "data=list or v_data=list",
                  p.batch * p.num_kv_heads * p.kv_len * p.v_head_dim, p.dtype, Values::any))
    return error;
  if (auto error = literal("bias_values", given.bias, p.bias == BiasKind::list, "bias=list",
                           stored(p.bias_axes, p.batch, p.num_heads, p.q_len, p.kv_len), p.dtype,
                           Values::any))
    return error;
  if (auto error = literal("mask_values", given.mask, p.mask == MaskKind::list, "mask=list",
                           stored(p.mask_axes, p.batch, p.num_heads, p.q_len, p.kv_len), DType::f64,
                           Values::boolean))
    return error;
  if (auto error = literal("sink_values", given.sink, p.sink == SinkKind::list, "sink=list",
                           p.num_heads, statistic, Values::any))
    return error;
  if (auto error = literal("slope_values", given.slopes, p.slopes == SlopesKind::list,
                           "slopes=list", slope_count, statistic, Values::finite))
    return error;
  // Blocks and keep masks are random unless they are listed.
  if (!given.blocks.empty())
    if (auto error = literal(
            "block_values", given.blocks, p.blocks, "blocks",
            stored(p.block_axes, p.batch, p.num_heads, p.blocks ? blocks_of(p.q_len, p.block_q) : 0,
                   p.blocks ? blocks_of(p.kv_len, p.block_k) : 0),
            DType::f64, Values::boolean))
      return error;
  if (!given.keep.empty())
    if (auto error =
            literal("keep_values", given.keep, p.dropout_p > 0, "dropout",
                    p.batch * p.num_heads * p.q_len * p.kv_len, DType::f64, Values::boolean))
      return error;
  if (qk && !alone)
    for (const auto& error :
         {repeats(p, "k", given.k), repeats_on_pages(p, "k", given.k, p.head_dim)})
      if (error) return error;
  if (v)
    for (const auto& error :
         {repeats(p, "v", given.v), repeats_on_pages(p, "v", given.v, p.v_head_dim)})
      if (error) return error;
  return std::nullopt;
}

MaybeError backward(const AttentionProblem& p) {
  const Literal& given = p.literal;
  if (p.operation != Operation::backward) {
    const AttentionProblem plain = forward_of(p);
    if (p.no_gradient != plain.no_gradient) return "no_gradient needs attention.backward";
    if (p.d_lse) return "d_lse needs attention.backward";
    if (p.d_o_data != plain.d_o_data) return "d_o_data needs attention.backward";
    if (p.d_o_layout) return "d_o_layout needs attention.backward";
  }
  if (p.d_lse && !p.want_lse) return "d_lse needs lse";
  if (auto error = literal("d_o_values", given.d_o, p.d_o_data == Family::list, "d_o_data=list",
                           p.batch * p.num_heads * p.q_len * p.v_head_dim, p.dtype, Values::any))
    return error;
  if (p.d_o_layout == Layout::kv_packed || p.d_o_layout == Layout::far)
    return "d_o_layout is one of bhld, blhd, bhdl, strided, broadcast";
  for (const double x : given.d_o)
    if (p.d_o_layout == Layout::broadcast &&
        std::bit_cast<std::uint64_t>(x) != std::bit_cast<std::uint64_t>(given.d_o.front()))
      return "d_o_layout=broadcast stores one number, but d_o_values has several";
  if (given.d_lse.empty()) return std::nullopt;
  return literal("d_lse_values", given.d_lse, p.d_lse, "d_lse", p.batch * p.num_heads * p.q_len,
                 p.dtype == DType::f64 ? DType::f64 : DType::f32, Values::any);
}

/// One for all where no length is given per sequence: a batch of 2^50 must not take time here.
std::int64_t sequences_that_differ(const AttentionProblem& p) {
  return p.seqlens_q.empty() && p.seqlens_k.empty() ? 1 : p.batch;
}

/// A ring holds what the new rows see if no row that they overwrite is one of it.
MaybeError ring(const AttentionProblem& p) {
  for (std::int64_t b = 0; b < sequences_that_differ(p); ++b) {
    const std::int64_t rows = new_rows(p, b);
    if (cached_rows(p, b) + rows <= cache_capacity(p)) continue;
    if (p.window_left < 0 || p.global_tokens > 0)
      return "cache=ring with more keys than cache_rows needs a left window and no global_tokens";
    if (cache_capacity(p) - rows < p.window_left)
      return fmt::format(
          "cache_rows={} is below window + new rows = {} + {}: keys that are seen would be "
          "overwritten",
          cache_capacity(p), p.window_left, rows);
  }
  return std::nullopt;
}

MaybeError paged(const AttentionProblem& p) {
  if (p.cache != CacheKind::paged) {
    if (p.page_size != 0) return "page_size needs cache=paged";
    if (p.pages != PageOrder::in_order) return "pages needs cache=paged";
    return std::nullopt;
  }
  if (p.page_size < 1 || p.page_size > kInt32Max)
    return fmt::format("page_size is {}; cache=paged needs 1..{}", p.page_size, kInt32Max);
  if (saturating_multiply(saturating_add(p.batch, 1), pages_per_sequence(p)) > kInt32Max / 2)
    return "more pages than block_table can number";
  return std::nullopt;
}

MaybeError decode(const AttentionProblem& p) {
  if (p.operation != Operation::decode) {
    const AttentionProblem plain;
    if (p.cache != plain.cache || p.cache_rows != 0 || p.page_size != 0 || p.pages != plain.pages ||
        p.cache_rotated || p.num_splits != 0)
      return "cache, cache_rows, page_size, pages, cache_rotated and splits need attention.decode";
    return std::nullopt;
  }
  if (p.align != Align::bottom_right)
    return "attention.decode has align=bottom_right: the new rows stand behind the cached ones";
  if (!p.cu_seqlens_q.empty()) return "attention.decode takes no cu_seqlens_q";
  if (!p.left_pad_q.empty() || !p.left_pad_k.empty())
    return "attention.decode takes no left_pad_q or left_pad_k";
  if (p.dropout_p > 0) return "attention.decode takes no dropout";
  if (p.layout == Layout::kv_packed || p.layout == Layout::broadcast || p.layout == Layout::far)
    return fmt::format("attention.decode takes no layout={}", enum_name(p.layout));
  for (std::int64_t b = 0; b < sequences_that_differ(p); ++b)
    if (cached_rows(p, b) < 0)
      return fmt::format(
          "sequence {} has more new rows than rows: lq or seqlens_q above lk or "
          "seqlens_k",
          b);
  if (p.cache_rows < 0 || p.cache_rows > kInt32Max || p.kv_len > kInt32Max)
    return fmt::format("cache_rows and lk must lie in 0..{}", kInt32Max);
  if (p.cache != CacheKind::ring && cache_capacity(p) < p.kv_len)
    return fmt::format("cache_rows={} is below lk={}", p.cache_rows, p.kv_len);
  if (auto error = paged(p)) return error;
  if (p.cache == CacheKind::ring)
    if (auto error = ring(p)) return error;
  if (p.cache_rotated && p.rope == RopePairing::none) return "cache_rotated needs rope";
  if (p.num_splits < 0 || p.num_splits > kInt32Max)
    return fmt::format("splits is {}; it must lie in 0..{}", p.num_splits, kInt32Max);
  return std::nullopt;
}

MaybeError data(const AttentionProblem& p) {
  const bool identity = p.v_data.value_or(p.data) == Family::identity_v;
  if (identity && p.v_head_dim < p.kv_len)
    return fmt::format("identity_v needs dv of at least lk, but dv={} and lk={}", p.v_head_dim,
                       p.kv_len);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> problem_error(const AttentionProblem& problem) {
  // Later checks rely on earlier ones: dims before sizes before anything that multiplies.
  for (auto* check : {unknown_values, dims, scalars, packing, lengths, positions, alibi, rope,
                      rope_call, axes, decode, sizes, t5, literals, backward, data})
    if (auto error = check(problem)) return error;
  return std::nullopt;
}

}  // namespace attest
