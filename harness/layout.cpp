// SPDX-License-Identifier: Apache-2.0
#include "harness/layout.hpp"

#include <algorithm>

#include "attest/sequences.hpp"
#include "attest/tensor.hpp"
#include "harness/cache.hpp"

namespace attest {

namespace {

constexpr std::uint64_t kMargin = 4096;

using Extents = std::array<std::int64_t, 4>;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

/// Strides of a tensor whose axes lie in memory in this order, outermost first, with `gap[axis]`
/// unused elements after each step along the axis.
Extents strides_in_order(const Extents& shape, const std::array<int, 4>& order,
                         const Extents& gap) {
  Extents strides{};
  std::int64_t step = 1;
  for (int place = 3; place >= 0; --place) {
    const auto axis = static_cast<std::size_t>(order[static_cast<std::size_t>(place)]);
    step = saturating_add(step, gap[axis]);
    strides[axis] = step;
    step = saturating_multiply(step, std::max<std::int64_t>(1, shape[axis]));
  }
  return strides;
}

constexpr std::array<int, 4> kBhld{0, 1, 2, 3}, kBlhd{0, 2, 1, 3}, kBhdl{0, 1, 3, 2};
constexpr Extents kNoGap{0, 0, 0, 0};
// Odd, so that a wrong stride meets a gap and not another row; channels stay together.
// Other ones for v and o, so that no tensor lies as another does.
constexpr Extents kGaps{7, 5, 3, 0}, kGapsOfV{9, 3, 5, 0}, kGapsOfO{5, 9, 7, 0};

// A step along any axis but the last leaves 32 bits, signed and unsigned, in elements and in bytes.
// The rest of 3 and the row itself keep an offset that was cut to 16 or 32 bits off every row.
constexpr std::int64_t kFarRow = (std::int64_t{1} << 31) + 3;

/// Rows of the last axis far apart.
Extents far_strides(const Extents& shape) {
  Extents strides{0, 0, saturating_add(shape[3], kFarRow), 1};
  strides[1] =
      saturating_add(saturating_multiply(std::max<std::int64_t>(shape[2], 1), strides[2]), 5);
  strides[0] =
      saturating_add(saturating_multiply(std::max<std::int64_t>(shape[1], 1), strides[1]), 7);
  return strides;
}

/// q, k, v and o.
Extents strides_of(const Extents& shape, Layout layout, const Extents& gaps = kGaps) {
  switch (layout) {
    case Layout::far: return far_strides(shape);
    case Layout::bhld: return strides_in_order(shape, kBhld, kNoGap);
    case Layout::bhdl: return strides_in_order(shape, kBhdl, kNoGap);
    case Layout::strided: return strides_in_order(shape, kBhld, gaps);
    case Layout::blhd:
    case Layout::kv_packed:
    case Layout::broadcast: break;
  }
  return strides_in_order(shape, kBlhd, kNoGap);
}

/// lse [B, H, L]: contiguous, as libraries with a [B, L, H, D] layout have it too; rows outside
/// heads beside channels outside rows; gaps where everything has gaps.
Extents lse_strides(const Extents& shape, Layout layout) {
  Extents strides = layout == Layout::strided ? strides_in_order(shape, kBhld, {5, 3, 2, 0})
                    : layout == Layout::far   ? far_strides(shape)
                    : layout == Layout::bhdl  ? strides_in_order(shape, kBlhd, kNoGap)
                                              : strides_in_order(shape, kBhld, kNoGap);
  strides[3] = 0;
  return strides;
}

TensorForm make(Slot slot, Element element, int rank, const Extents& shape,
                const Extents& strides) {
  TensorForm form;
  form.present = true;
  form.element = element;
  form.rank = rank;
  form.shape = shape;
  form.strides = strides;
  for (int axis = rank; axis < 4; ++axis) form.strides[static_cast<std::size_t>(axis)] = 0;
  form.home = slot;
  return form;
}

/// bias, mask, blocks, keep: gaps in the layouts that have gaps.
TensorForm make_map(Slot slot, Element element, const Extents& shape, Layout layout) {
  const bool gaps = layout == Layout::strided;
  return make(slot, element, 4, shape,
              layout == Layout::far ? far_strides(shape)
                                    : strides_in_order(shape, kBhld, gaps ? kGaps : kNoGap));
}

/// Whether gaps of gigabytes lie between the rows of the last axis (or between the elements of an
/// lse).
bool has_far_rows(const TensorForm& form) { return form.strides[2] >= kFarRow; }

std::uint64_t row_bytes(const TensorForm& form) {
  return static_cast<std::uint64_t>(form.shape[3] * size_of(form.element));
}

/// Arena offsets at which the rows begin.
std::vector<std::uint64_t> far_rows(const TensorForm& form, std::uint64_t first) {
  std::vector<std::uint64_t> rows;
  for (std::int64_t a = 0; a < form.shape[0]; ++a)
    for (std::int64_t b = 0; b < form.shape[1]; ++b)
      for (std::int64_t c = 0; c < form.shape[2]; ++c)
        rows.push_back(first +
                       static_cast<std::uint64_t>(
                           (a * form.strides[0] + b * form.strides[1] + c * form.strides[2]) *
                           size_of(form.element)));
  return rows;
}

TensorForm make_vector(Slot slot, Element element, std::size_t size) {
  return make(slot, element, 1, {static_cast<std::int64_t>(size), 1, 1, 1}, {1, 0, 0, 0});
}

Extents axes_shape(const Axes& axes, std::int64_t b, std::int64_t h, std::int64_t q,
                   std::int64_t k) {
  return {axes.b ? b : 1, axes.h ? h : 1, axes.q ? q : 1, axes.k ? k : 1};
}

void form_k_and_v(const AttentionProblem& p, int alignment, CallForm& form) {
  const Element element = element_of(p.dtype);
  const std::int64_t rows = p.operation == Operation::decode ? p.q_len : p.kv_len;
  const Extents k_shape{p.batch, p.num_kv_heads, rows, p.head_dim};
  const Extents v_shape{p.batch, p.num_kv_heads, rows, p.v_head_dim};
  TensorForm& k = form[static_cast<std::size_t>(Slot::k)];
  TensorForm& v = form[static_cast<std::size_t>(Slot::v)];
  k = make(Slot::k, element, 4, k_shape, strides_of(k_shape, p.layout));
  v = make(Slot::v, element, 4, v_shape, strides_of(v_shape, p.layout, kGapsOfV));
  const std::int64_t step = saturating_multiply(p.head_dim, size_of(element));
  const bool aligned = alignment <= 0 || step % alignment == 0;
  if (p.layout == Layout::kv_packed && p.head_dim == p.v_head_dim && aligned) {
    // [B, L, Hkv, 2, D]: as [B, L, Hkv, D] with rows twice as long.
    k.strides = strides_of({p.batch, p.num_kv_heads, p.kv_len, saturating_multiply(2, p.head_dim)},
                           p.layout);
    v.strides = k.strides;
    v.home = Slot::k;
    v.first = p.head_dim;
  }
  if (p.layout == Layout::broadcast) k.strides[0] = v.strides[0] = 0;
}

void form_lists(const AttentionProblem& p, CallForm& form) {
  const auto put = [&form](Slot slot, const std::vector<std::int64_t>& values) {
    form[static_cast<std::size_t>(slot)] = make_vector(slot, Element::i32, values.size());
  };
  const auto add = [&put](Slot slot, const std::vector<std::int64_t>& values) {
    if (!values.empty()) put(slot, values);
  };
  add(Slot::seqlens_q, p.seqlens_q);
  if (p.operation != Operation::decode) add(Slot::seqlens_k, p.seqlens_k);
  add(Slot::left_pad_q, p.left_pad_q);
  add(Slot::left_pad_k, p.left_pad_k);
  add(Slot::cu_seqlens_q, p.cu_seqlens_q);
  add(Slot::cu_seqlens_k, p.cu_seqlens_k);
  // These go with align and base, also for a batch of 0, where they have no elements.
  if (p.align == Align::q_offset) put(Slot::q_offset, p.q_offset);
  if (p.base == Base::prefix) put(Slot::prefix_len, p.prefix_len);
}

/// dO and dLSE, and each wanted gradient in the shape of its input. Strides of their own, so that
/// none lies as its input does; what repeats over the batch has a gradient that does not.
void form_gradients(const AttentionProblem& p, CallForm& form) {
  const auto at = [&form](Slot slot) -> TensorForm& {
    return form[static_cast<std::size_t>(slot)];
  };
  const Element element = element_of(p.dtype);
  const auto rows = [&](Slot slot, const Extents& shape, const Extents& gaps) {
    at(slot) = make(slot, element, 4, shape, strides_of(shape, p.layout, gaps));
  };
  const Extents k_shape{p.batch, p.num_kv_heads, p.kv_len, p.head_dim};
  const Extents v_shape{p.batch, p.num_kv_heads, p.kv_len, p.v_head_dim};
  const Layout d_o_layout = p.d_o_layout.value_or(p.layout);
  at(Slot::d_o) =
      make(Slot::d_o, element, 4, at(Slot::o).shape,
           p.d_o_layout == Layout::broadcast ? Extents{0, 0, 0, 0}
                                             : strides_of(at(Slot::o).shape, d_o_layout, kGapsOfV));
  if (p.d_lse)
    at(Slot::d_lse) = make(Slot::d_lse, at(Slot::lse).element, 3, at(Slot::lse).shape,
                           lse_strides(at(Slot::lse).shape, p.layout));
  if (wants_gradient(p, Gradient::q)) rows(Slot::d_q, at(Slot::q).shape, kGapsOfO);
  if (wants_gradient(p, Gradient::k)) rows(Slot::d_k, k_shape, kGapsOfV);
  if (wants_gradient(p, Gradient::v)) rows(Slot::d_v, v_shape, kGapsOfO);
  const auto like = [&](Gradient gradient, Slot slot, Slot input) {
    if (!wants_gradient(p, gradient)) return;
    at(slot) = at(input);
    at(slot).home = slot;
  };
  like(Gradient::bias, Slot::d_bias, Slot::bias);
  like(Gradient::slopes, Slot::d_alibi_slopes, Slot::alibi_slopes);
  like(Gradient::sink, Slot::d_sink, Slot::sink);
}

/// The caches of a decode call, with strides of the problem's layout over their own axes.
void form_caches(const AttentionProblem& p, CallForm& form) {
  const CachePlan plan = plan_cache(p);
  const Element element = element_of(p.dtype);
  const auto put = [&](Slot slot, std::int64_t channels, const Extents& gaps) {
    const Extents shape{plan.entries, p.num_kv_heads, plan.rows, channels};
    form[static_cast<std::size_t>(slot)] =
        make(slot, element, 4, shape, strides_of(shape, p.layout, gaps));
  };
  // As k and v lie in a forward call, but not as they lie in this one.
  put(Slot::k_cache, p.head_dim, kGapsOfV);
  put(Slot::v_cache, p.v_head_dim, kGapsOfO);
  form[static_cast<std::size_t>(Slot::cache_len)] =
      make_vector(Slot::cache_len, Element::i32, static_cast<std::size_t>(p.batch));
  if (p.cache == CacheKind::paged)
    form[static_cast<std::size_t>(Slot::block_table)] =
        make(Slot::block_table, Element::i32, 2, {p.batch, plan.pages_per_sequence, 1, 1},
             {plan.pages_per_sequence, 1, 0, 0});
}

void form_rope_tables(const AttentionProblem& p, CallForm& form) {
  const Element wide = p.dtype == DType::f64 ? Element::f64 : Element::f32;
  const Extents shape{rope_positions(p).count, effective_rope_dim(p) / 2, 1, 1};
  for (Slot slot : {Slot::rope_cos, Slot::rope_sin})
    form[static_cast<std::size_t>(slot)] = make(slot, wide, 2, shape, {shape[1], 1, 0, 0});
}

/// The rotary embedding alone: y lies otherwise than x.
void form_rope_call(const AttentionProblem& p, CallForm& form) {
  const Element element = element_of(p.dtype);
  const Extents shape{p.batch, p.num_heads, p.q_len, p.head_dim};
  form[static_cast<std::size_t>(Slot::x)] =
      make(Slot::x, element, 4, shape, strides_of(shape, p.layout));
  form[static_cast<std::size_t>(Slot::y)] =
      make(Slot::y, element, 4, shape, strides_of(shape, p.layout, kGapsOfO));
  form[static_cast<std::size_t>(Slot::positions)] =
      make(Slot::positions, Element::i32, 2, {p.batch, p.q_len, 1, 1}, {p.q_len, 1, 0, 0});
  form_rope_tables(p, form);
}

/// Of what lies in each slot.
SlotBytes bytes_of(const CallForm& form) {
  SlotBytes bytes{};
  for (const TensorForm& tensor : form) {
    if (!tensor.present || tensor.count() == 0) continue;
    const std::int64_t end =
        saturating_multiply(saturating_add(tensor.first, tensor.span()), size_of(tensor.element));
    auto& slot = bytes[static_cast<std::size_t>(tensor.home)];
    slot = std::max(slot, static_cast<std::uint64_t>(end));
  }
  return bytes;
}

}  // namespace

std::int64_t TensorForm::count() const {
  std::int64_t product = 1;
  for (std::int64_t extent : shape) {
    if (extent == 0) return 0;
    product = saturating_multiply(product, extent);
  }
  return product;
}

std::int64_t TensorForm::span() const {
  if (count() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < 4; ++axis)
    last = saturating_add(last, saturating_multiply(shape[axis] - 1, strides[axis]));
  return saturating_add(last, 1);
}

PositionRange rope_positions(const AttentionProblem& problem) {
  if (problem.operation == Operation::rope) {
    const PositionSpan span = row_positions(problem);
    return {span.first, span.count};
  }
  std::int64_t first = INT64_MAX, end = INT64_MIN;
  const auto cover = [&](std::int64_t from, std::int64_t rows) {
    if (rows <= 0) return;
    first = std::min(first, from);
    end = std::max(end, saturating_add(from, rows));
  };
  for (const SequenceRows& rows : sequence_rows(problem)) {
    cover(rows.offset, rows.q1 - rows.q0);
    cover(0, rows.k1 - rows.k0);
  }
  if (first > end) return {};
  return {first, saturating_subtract(end, first)};
}

CallForm call_form(const AttentionProblem& p, int alignment) {
  CallForm form;
  if (p.operation == Operation::rope) {
    form_rope_call(p, form);
    return form;
  }
  const Element element = element_of(p.dtype);
  const Element wide = p.dtype == DType::f64 ? Element::f64 : Element::f32;
  const auto at = [&form](Slot slot) -> TensorForm& {
    return form[static_cast<std::size_t>(slot)];
  };
  const Extents q_shape{p.batch, p.num_heads, p.q_len, p.head_dim};
  const Extents o_shape{p.batch, p.num_heads, p.q_len, p.v_head_dim};
  at(Slot::q) = make(Slot::q, element, 4, q_shape, strides_of(q_shape, p.layout));
  at(Slot::o) = make(Slot::o, element, 4, o_shape, strides_of(o_shape, p.layout, kGapsOfO));
  form_k_and_v(p, alignment, form);
  if (p.want_lse) {
    const Extents shape{p.batch, p.num_heads, p.q_len, 1};
    at(Slot::lse) = make(Slot::lse, wide, 3, shape, lse_strides(shape, p.layout));
  }
  const auto map_shape = [&p](const Axes& axes) {
    return axes_shape(axes, p.batch, p.num_heads, p.q_len, p.kv_len);
  };
  if (p.bias != BiasKind::none)
    at(Slot::bias) = make_map(Slot::bias, element, map_shape(p.bias_axes), p.layout);
  if (p.mask != MaskKind::none)
    at(Slot::mask) = make_map(Slot::mask, Element::u8, map_shape(p.mask_axes), p.layout);
  if (p.blocks)
    at(Slot::blocks) =
        make_map(Slot::blocks, Element::u8,
                 axes_shape({p.block_axes.b, p.block_axes.h, true, true}, p.batch, p.num_heads,
                            ceil_divide(p.q_len, p.block_q), ceil_divide(p.kv_len, p.block_k)),
                 p.layout);
  if (p.dropout_p > 0) at(Slot::keep) = make_map(Slot::keep, Element::u8, map_shape({}), p.layout);
  if (p.alibi != AlibiKind::none)
    at(Slot::alibi_slopes) =
        p.slopes == SlopesKind::per_batch
            ? make(Slot::alibi_slopes, wide, 2, {p.batch, p.num_heads, 1, 1},
                   {p.num_heads, 1, 0, 0})
            : make_vector(Slot::alibi_slopes, wide, static_cast<std::size_t>(p.num_heads));
  if (p.sink != SinkKind::none)
    at(Slot::sink) = make_vector(Slot::sink, wide, static_cast<std::size_t>(p.num_heads));
  form_lists(p, form);
  if (p.operation == Operation::backward) form_gradients(p, form);
  if (p.operation == Operation::decode) form_caches(p, form);
  if (p.rope != RopePairing::none) form_rope_tables(p, form);
  return form;
}

SlotBytes slot_bytes(const CallForm& form, int alignment) {
  SlotBytes bytes = bytes_of(form);
  // Room to align the block down; page alignment serves both ends otherwise.
  for (std::uint64_t& slot : bytes)
    if (slot) slot += static_cast<std::uint64_t>(std::max(alignment, 0));
  return bytes;
}

std::int64_t touched_bytes(const CallForm& form) {
  std::int64_t total = 0;
  for (const TensorForm& tensor : form) {
    if (!tensor.present || tensor.count() == 0) continue;
    const std::int64_t size = size_of(tensor.element);
    const std::int64_t row = saturating_add(saturating_multiply(tensor.shape[3], size),
                                            static_cast<std::int64_t>(4 * kPageBytes));
    total = saturating_add(
        total,
        has_far_rows(tensor)
            ? saturating_multiply(tensor.count() / std::max<std::int64_t>(tensor.shape[3], 1), row)
            : saturating_multiply(tensor.span(), size));
  }
  return total;
}

void place(const CallForm& form, const Arena& arena, int alignment, Flush flush, PlacedCall& call) {
  const SlotBytes bytes = bytes_of(form);
  for (std::size_t i = 0; i < form.size(); ++i) {
    const TensorForm& tensor = form[i];
    PlacedTensor& placed = call.tensors[i];
    placed = {};
    if (!tensor.present) continue;
    const SlotRange& slot = arena.slot(tensor.home);
    const auto size = static_cast<std::uint64_t>(size_of(tensor.element));
    const std::uint64_t unit = std::max(size, static_cast<std::uint64_t>(std::max(alignment, 1)));
    const std::uint64_t slot_end = slot.offset + slot.bytes;
    placed.present = 1;
    placed.rank = static_cast<std::uint16_t>(tensor.rank);
    const bool real = tensor.element <= Element::bf16;
    const DLDataType type = real ? dl_dtype(static_cast<DType>(tensor.element))
                            : tensor.element == Element::u8 ? kDlUint8
                                                            : kDlInt32;
    placed.code = type.code;
    placed.bits = type.bits;
    if (tensor.count() == 0) {
      placed.offset = flush == Flush::high ? slot_end : slot.offset - kPageBytes;
      placed.extent_begin = placed.extent_end = placed.offset;
    } else {
      const std::uint64_t block =
          flush == Flush::low
              ? slot.offset
              : (slot_end - bytes[static_cast<std::size_t>(tensor.home)]) / unit * unit;
      placed.offset = block + static_cast<std::uint64_t>(tensor.first) * size;
      placed.extent_begin = placed.offset;
      placed.extent_end = placed.offset + static_cast<std::uint64_t>(tensor.span()) * size;
    }
    std::copy(tensor.shape.begin(), tensor.shape.end(), placed.shape);
    std::copy(tensor.strides.begin(), tensor.strides.end(), placed.strides);
  }
}

std::vector<Region> regions_of(const CallForm& form, const PlacedCall& call, const Arena& arena) {
  std::vector<Region> regions;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const auto slot = static_cast<Slot>(i);
    const TensorForm& tensor = form[i];
    if (!tensor.present || tensor.home != slot || tensor.count() == 0) continue;
    const SlotRange& range = arena.slot(slot);
    std::uint64_t begin = call.tensors[i].extent_begin, end = call.tensors[i].extent_end;
    const TensorForm& v = form[static_cast<std::size_t>(Slot::v)];
    if (slot == Slot::k && v.present && v.home == Slot::k)
      end = std::max(end, call.tensors[static_cast<std::size_t>(Slot::v)].extent_end);
    const std::uint64_t origin = begin;
    const auto add = [&](std::uint64_t from, std::uint64_t to) {
      regions.push_back(
          {slot, tensor.element, from, to, std::max(range.offset, from - std::min(from, kMargin)),
           std::min(range.offset + range.bytes, to + kMargin), origin, has_far_rows(tensor)});
    };
    if (has_far_rows(tensor))
      for (const std::uint64_t row : far_rows(tensor, begin)) add(row, row + row_bytes(tensor));
    else
      add(begin, end);
  }
  return regions;
}

}  // namespace attest
