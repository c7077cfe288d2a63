// SPDX-License-Identifier: Apache-2.0
#include "harness/encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "attest/plugin.h"
#include "harness/cache.hpp"
#include "harness/poison.hpp"
#include "reference/definition.hpp"

namespace attest {

namespace {

const TensorForm& at(const CallForm& form, Slot slot) {
  return form[static_cast<std::size_t>(slot)];
}

std::byte* data_of(const PlacedCall& call, Slot slot, std::byte* base) {
  return base + call.tensors[static_cast<std::size_t>(slot)].offset;
}

/// Puts dense row-major values at their places.
template <class T, class From, class Convert>
void scatter(const TensorForm& form, std::byte* data, std::span<const From> values,
             const ReadableCells& readable, Convert convert) {
  auto* first = reinterpret_cast<T*>(data);
  const From* value = values.data();
  const auto [extent_a, extent_b, extent_c, extent_d] = form.shape;
  for (std::int64_t a = 0; a < extent_a; ++a)
    for (std::int64_t b = 0; b < extent_b; ++b)
      for (std::int64_t c = 0; c < extent_c; ++c, value += extent_d) {
        T* row = first + a * form.strides[0] + b * form.strides[1] + c * form.strides[2];
        if (readable.has_columns()) {
          for (std::int64_t d = 0; d < extent_d; ++d)
            if (readable.at(a, c, d)) row[d * form.strides[3]] = convert(value[d]);
        } else if (readable.at(a, c, 0)) {
          for (std::int64_t d = 0; d < extent_d; ++d) row[d * form.strides[3]] = convert(value[d]);
        }
      }
}

void scatter_real(const TensorForm& form, std::byte* data, std::span<const double> values,
                  const ReadableCells& readable) {
  switch (form.element) {
    case Element::f64:
      scatter<double>(form, data, values, readable, [](double x) { return x; });
      break;
    case Element::f32:
      scatter<float>(form, data, values, readable, [](double x) { return static_cast<float>(x); });
      break;
    case Element::f16: scatter<std::uint16_t>(form, data, values, readable, encode_f16); break;
    case Element::bf16: scatter<std::uint16_t>(form, data, values, readable, encode_bf16); break;
    case Element::u8:
    case Element::i32: break;
  }
}

void scatter_bools(const TensorForm& form, std::byte* data, const std::vector<std::uint8_t>& values,
                   const ReadableCells& readable, bool inverted) {
  scatter<std::uint8_t>(
      form, data, std::span<const std::uint8_t>(values), readable,
      [inverted](std::uint8_t x) { return static_cast<std::uint8_t>((x != 0) != inverted); });
}

bool has_ranges(const AttentionProblem& p) {
  return !p.seqlens_q.empty() || !p.seqlens_k.empty() || !p.left_pad_q.empty() ||
         !p.left_pad_k.empty() || !p.cu_seqlens_q.empty();
}

/// End rows, or the rows after the left pad, as the kernel counts.
std::vector<std::int64_t> told_lengths(const std::vector<std::int64_t>& ends,
                                       const std::vector<std::int64_t>& pads, Lengths lengths) {
  std::vector<std::int64_t> told = ends;
  if (lengths == Lengths::real_count)
    for (std::size_t i = 0; i < told.size() && i < pads.size(); ++i) told[i] -= pads[i];
  return told;
}

void write_lists(const AttentionProblem& p, const Declaration& declaration, const CallForm& form,
                 const PlacedCall& call, std::byte* base) {
  const auto put = [&](Slot slot, const std::vector<std::int64_t>& values) {
    if (!at(form, slot).present) return;
    scatter<std::int32_t>(at(form, slot), data_of(call, slot, base),
                          std::span<const std::int64_t>(values), {},
                          [](std::int64_t x) { return static_cast<std::int32_t>(x); });
  };
  if (p.operation == Operation::decode) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < p.batch; ++b) lengths.push_back(cached_rows(p, b));
    put(Slot::cache_len, lengths);
  }
  put(Slot::seqlens_q, told_lengths(p.seqlens_q, p.left_pad_q, declaration.lengths));
  put(Slot::seqlens_k, told_lengths(p.seqlens_k, p.left_pad_k, declaration.lengths));
  put(Slot::left_pad_q, p.left_pad_q);
  put(Slot::left_pad_k, p.left_pad_k);
  put(Slot::cu_seqlens_q, p.cu_seqlens_q);
  put(Slot::cu_seqlens_k, p.cu_seqlens_k);
  put(Slot::q_offset, p.q_offset);
  put(Slot::prefix_len, p.prefix_len);
  if (p.operation != Operation::rope) return;
  std::vector<std::int64_t> positions;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t i = 0; i < p.q_len; ++i) positions.push_back(row_position(p, b, i));
  put(Slot::positions, positions);
}

/// What the caches hold before the call, and where the pages are. The rest stays poison, entries of
/// the block table for pages without a row too.
void write_caches(const AttentionProblem& p, const AttentionInputs& inputs, const CallForm& form,
                  const PlacedCall& call, std::byte* base) {
  const CachePlan plan = plan_cache(p);
  ReadableCells held(plan.entries, plan.rows, 1);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const Positions positions = held_positions(p, b);
    for (std::int64_t at = positions.first; at < positions.end; ++at) {
      const CachePlace place = place_of(p, plan, b, at);
      held.allow(place.entry, place.row, 0);
    }
  }
  const auto put = [&](Slot slot, const Dense<double>& whole) {
    if (at(form, slot).count() != 0)
      scatter_real(at(form, slot), data_of(call, slot, base), cached_rows_of(p, plan, whole).values,
                   held);
  };
  put(Slot::k_cache, inputs.k);
  put(Slot::v_cache, inputs.v);
  auto* table = reinterpret_cast<std::int32_t*>(data_of(call, Slot::block_table, base));
  for (std::size_t n = 0; n < plan.table.size(); ++n)
    if (plan.table[n] != CachePlan::kNoPage) table[n] = static_cast<std::int32_t>(plan.table[n]);
}

/// The tables of one rotation, kept for the next call: a problem is called several times, and an
/// angle is computed in multiprecision.
struct RopeTables {
  double base = 0, scale = 0, ntk = 0;
  std::int64_t dim = 0, first = 0, count = -1;
  std::vector<double> cos, sin;
};

const RopeTables& rope_tables(const AttentionProblem& p) {
  thread_local RopeTables tables;
  const PositionRange range = rope_positions(p);
  const std::int64_t dim = effective_rope_dim(p);
  if (tables.base == p.rope_base && tables.scale == p.rope_scale && tables.ntk == p.rope_ntk &&
      tables.dim == dim && tables.first == range.first && tables.count == range.count)
    return tables;
  tables = {p.rope_base, p.rope_scale, p.rope_ntk, dim, range.first, range.count, {}, {}};
  for (std::int64_t row = 0; row < range.count; ++row)
    for (std::int64_t t = 0; t < dim / 2; ++t) {
      const RopeAngle angle = rope_angle(p, range.first + row, t);
      tables.cos.push_back(angle.cos_high);
      tables.sin.push_back(angle.sin_high);
    }
  return tables;
}

}  // namespace

AttentionProblem as_told(const AttentionProblem& problem, const Declaration& declaration) {
  if (problem.operation == Operation::decode || problem.operation == Operation::rope)
    return problem;
  const std::vector<Feature> used = features_of(problem);
  const bool matters = std::any_of(used.begin(), used.end(), [](Feature feature) {
    return feature == Feature::align_bottom_right || feature == Feature::align_top_left ||
           feature == Feature::align_q_offset;
  });
  AttentionProblem told = problem;
  if (matters) return told;
  const bool top_left_only =
      declaration.has(Feature::align_top_left) && !declaration.has(Feature::align_bottom_right);
  told.align = top_left_only ? Align::top_left : Align::bottom_right;
  told.q_offset.clear();
  return told;
}

PlacedScalars encode_scalars(const AttentionProblem& p, const Declaration& declaration,
                             int num_threads) {
  PlacedScalars scalars{};
  scalars.scale = effective_scale(p);
  scalars.softcap = p.softcap;
  scalars.dropout_p = p.dropout_p;
  scalars.window_left = p.window_left;
  if (p.window_left >= 0 && declaration.window_bound == WindowBound::exclusive)
    scalars.window_left = p.window_left == INT64_MAX ? -1 : p.window_left + 1;
  scalars.window_right = p.window_right;
  scalars.global_tokens = p.global_tokens;
  if (p.blocks) {
    scalars.block_q = p.block_q;
    scalars.block_k = p.block_k;
  }
  scalars.base = static_cast<std::int32_t>(p.base);
  scalars.align = static_cast<std::int32_t>(p.align);
  scalars.alibi = static_cast<std::int32_t>(p.alibi);
  scalars.alibi_inside_softcap = p.alibi_inside_softcap;
  scalars.rope = static_cast<std::int32_t>(p.rope);
  if (p.rope != RopePairing::none) {
    scalars.rope_base = p.rope_base;
    scalars.rope_scale = p.rope_scale;
    scalars.rope_ntk = p.rope_ntk;
    scalars.rope_dim = effective_rope_dim(p);
    scalars.rope_position = rope_positions(p).first;
  }
  scalars.rope_inverse = p.rope_inverse;
  scalars.num_threads = num_threads;
  scalars.operation = static_cast<std::int32_t>(p.operation);
  scalars.num_splits = p.num_splits;
  scalars.cache = static_cast<std::int32_t>(p.cache);
  scalars.cache_rotated = p.cache_rotated;
  return scalars;
}
static_assert(static_cast<int>(Base::prefix) == ATTEST_BASE_PREFIX);
static_assert(static_cast<int>(Align::bottom_right) == ATTEST_ALIGN_BOTTOM_RIGHT);
static_assert(static_cast<int>(Align::q_offset) == ATTEST_ALIGN_Q_OFFSET);
static_assert(static_cast<int>(AlibiKind::key_anchored) == ATTEST_ALIBI_KEY_ANCHORED);
static_assert(static_cast<int>(RopePairing::half) == ATTEST_ROPE_HALF);
static_assert(static_cast<int>(CacheKind::ring) == ATTEST_CACHE_RING);
static_assert(static_cast<int>(CacheKind::paged) == ATTEST_CACHE_PAGED);

ReadableCells::ReadableCells(std::int64_t batch, std::int64_t rows, std::int64_t columns)
    : rows_(rows), columns_(columns), cells_(static_cast<std::size_t>(batch * rows * columns)) {}

ReadableCells readable_cells(const AttentionProblem& p, Slot slot, const TensorForm& form) {
  if (!has_ranges(p) || form.count() == 0) return {};
  const bool is_map = slot == Slot::bias || slot == Slot::mask || slot == Slot::keep;
  // The k and v of a decode call have a row for each row of q.
  const bool new_rows = p.operation == Operation::decode && (slot == Slot::k || slot == Slot::v);
  const bool is_query = slot == Slot::q || slot == Slot::o || slot == Slot::lse ||
                        slot == Slot::d_o || slot == Slot::d_lse || new_rows;
  if (!is_map && !is_query && slot != Slot::k && slot != Slot::v) return {};
  ReadableCells cells(form.shape[0], form.shape[2], is_map ? form.shape[3] : 1);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const std::vector<std::uint8_t> queries = real_query_rows(p, b);
    const std::vector<std::uint8_t> keys = real_key_rows(p, b);
    const std::int64_t stored_b = form.shape[0] == 1 ? 0 : b;
    if (!is_map) {
      const std::vector<std::uint8_t>& rows = is_query ? queries : keys;
      for (std::size_t row = 0; row < rows.size(); ++row)
        if (rows[row]) cells.allow(stored_b, static_cast<std::int64_t>(row), 0);
      continue;
    }
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      if (!queries[static_cast<std::size_t>(i)]) continue;
      for (std::int64_t j = 0; j < p.kv_len; ++j)
        if (keys[static_cast<std::size_t>(j)])
          cells.allow(stored_b, form.shape[2] == 1 ? 0 : i, form.shape[3] == 1 ? 0 : j);
    }
  }
  return cells;
}

std::optional<std::string> shape_mismatch(const AttentionProblem& problem, const CallForm& form,
                                          const AttentionInputs& inputs) {
  const auto differs = [&form](Slot slot, bool present, std::size_t size) {
    const TensorForm& tensor = at(form, slot);
    return present != tensor.present ||
           (present && size != static_cast<std::size_t>(tensor.count()));
  };
  const auto check = [&](Slot slot, const auto& dense) -> std::optional<std::string> {
    if (!differs(slot, dense.present, dense.values.size())) return std::nullopt;
    return fmt::format("the values of {} do not have the shape that the problem gives it",
                       name(slot));
  };
  if (problem.operation == Operation::rope) return check(Slot::x, inputs.q);
  if (auto why = check(Slot::q, inputs.q)) return why;
  if (problem.operation == Operation::decode) {
    const auto whole = [&problem](const Dense<double>& rows, std::int64_t channels) {
      return rows.present && std::ssize(rows.values) ==
                                 problem.batch * problem.num_kv_heads * problem.kv_len * channels;
    };
    if (!whole(inputs.k, problem.head_dim) || !whole(inputs.v, problem.v_head_dim))
      return "the values of k or v are not those of whole sequences";
  } else {
    if (auto why = check(Slot::k, inputs.k)) return why;
    if (auto why = check(Slot::v, inputs.v)) return why;
  }
  if (auto why = check(Slot::bias, inputs.bias)) return why;
  if (auto why = check(Slot::mask, inputs.mask)) return why;
  if (auto why = check(Slot::blocks, inputs.blocks)) return why;
  if (auto why = check(Slot::keep, inputs.keep)) return why;
  if (auto why = check(Slot::alibi_slopes, inputs.slopes)) return why;
  if (auto why = check(Slot::sink, inputs.sink)) return why;
  if (!at(form, Slot::d_o).present) return std::nullopt;
  if (auto why = check(Slot::d_o, inputs.d_o)) return why;
  if (auto why = check(Slot::d_lse, inputs.d_lse)) return why;
  if (auto why = check(Slot::o, inputs.o)) return why;
  return check(Slot::lse, inputs.lse);
}

void write_values(const AttentionProblem& problem, const AttentionInputs& inputs,
                  const Declaration& declaration, const CallForm& form, const PlacedCall& call,
                  const std::vector<Region>& regions, Poison poison, std::byte* base) {
  for (const Region& region : regions)
    fill_poison(base + region.window_begin, base + region.window_end, base + region.origin,
                region.element, poison);
  const auto put_real = [&](Slot slot, const Dense<double>& values) {
    const TensorForm& tensor = at(form, slot);
    if (tensor.present && tensor.count() != 0)
      scatter_real(tensor, data_of(call, slot, base), values.values,
                   readable_cells(problem, slot, tensor));
  };
  const auto put_bools = [&](Slot slot, const Dense<std::uint8_t>& values, bool inverted) {
    const TensorForm& tensor = at(form, slot);
    if (tensor.present && tensor.count() != 0)
      scatter_bools(tensor, data_of(call, slot, base), values.values,
                    readable_cells(problem, slot, tensor), inverted);
  };
  put_real(Slot::q, inputs.q);
  put_real(Slot::x, inputs.q);
  if (problem.operation == Operation::decode) {
    put_real(Slot::k, new_rows_of(problem, inputs.k));
    put_real(Slot::v, new_rows_of(problem, inputs.v));
    write_caches(problem, inputs, form, call, base);
  } else {
    put_real(Slot::k, inputs.k);
    put_real(Slot::v, inputs.v);
  }
  put_real(Slot::bias, inputs.bias);
  put_real(Slot::alibi_slopes, inputs.slopes);
  put_real(Slot::sink, inputs.sink);
  if (at(form, Slot::d_o).present) {
    put_real(Slot::o, inputs.o);
    put_real(Slot::lse, inputs.lse);
    put_real(Slot::d_o, inputs.d_o);
    put_real(Slot::d_lse, inputs.d_lse);
  }
  put_bools(Slot::mask, inputs.mask, declaration.mask_polarity == MaskPolarity::drop);
  put_bools(Slot::blocks, inputs.blocks, false);
  put_bools(Slot::keep, inputs.keep, false);
  write_lists(problem, declaration, form, call, base);
  if (at(form, Slot::rope_cos).present && at(form, Slot::rope_cos).count() != 0) {
    const RopeTables& tables = rope_tables(problem);
    scatter_real(at(form, Slot::rope_cos), data_of(call, Slot::rope_cos, base), tables.cos, {});
    scatter_real(at(form, Slot::rope_sin), data_of(call, Slot::rope_sin, base), tables.sin, {});
  }
}

}  // namespace attest
