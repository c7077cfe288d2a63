// SPDX-License-Identifier: Apache-2.0
// Faults of heads, strides and indices.
#include <algorithm>
#include <cstdint>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kHeads = "heads";
constexpr const char* kLayout = "layout";

template <class S>
struct GqaModulo : Stepwise<S> {
  std::int64_t kv_head(std::int64_t h) const override { return h % this->sizes.kv_heads; }
};
ATTEST_PLANT(GqaModulo, {.id = "gqa_modulo",
                         .kind = kHeads,
                         .sentence = "query head h reads key/value head h mod Hkv",
                         .reference = "onnx/onnx#7274"});

template <class S>
struct GqaGroupAsStride : Stepwise<S> {
  std::int64_t kv_head(std::int64_t h) const override {
    return std::min(h / this->sizes.kv_heads, this->sizes.kv_heads - 1);
  }
};
ATTEST_PLANT(GqaGroupAsStride,
             {.id = "gqa_group_as_stride",
              .kind = kHeads,
              .sentence = "query head h reads key/value head h / Hkv instead of h / G"});

template <class S>
struct GqaAsMqa : Stepwise<S> {
  std::int64_t kv_head(std::int64_t h) const override { return this->sizes.group > 1 ? 0 : h; }
};
ATTEST_PLANT(GqaAsMqa, {.id = "gqa_as_mqa",
                        .kind = kHeads,
                        .sentence = "with groups, all query heads read key/value head 0"});

template <class S>
struct GqaGroupOfTwo : Stepwise<S> {
  std::int64_t kv_head(std::int64_t h) const override {
    return this->sizes.group > 2 ? std::min(h / 2, this->sizes.kv_heads - 1)
                                 : Stepwise<S>::kv_head(h);
  }
};
ATTEST_PLANT(GqaGroupOfTwo, {.id = "gqa_groups_of_two",
                             .kind = kHeads,
                             .sentence = "groups of more than two are taken for groups of two"});

template <class S>
struct GqaVOfHead : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, (g + 1) % this->sizes.kv_heads, k, to);
  }
};
ATTEST_PLANT(GqaVOfHead, {.id = "v_of_next_head",
                          .kind = kHeads,
                          .sentence = "k is of the right head, v of the next one"});

template <class S>
struct HeadsFrom8 : Stepwise<S> {
  std::int64_t kv_head(std::int64_t h) const override { return Stepwise<S>::kv_head(h % 8); }
};
ATTEST_PLANT(HeadsFrom8, {.id = "heads_from_8_wrap",
                          .kind = kHeads,
                          .sentence = "query head 8 reads the keys and values of head 0"});

template <class S>
struct KvOfSequence0 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Sequence first = at;
    first.b = 0;
    Stepwise<S>::load_key(first, g, k, to);
  }
};
ATTEST_PLANT(KvOfSequence0, {.id = "k_of_sequence_0",
                             .kind = kHeads,
                             .sentence = "all sequences take the keys of the first"});

template <class S>
struct ThirdSequence : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Query at = q;
    if (at.b >= 2) --at.b;
    Stepwise<S>::load_query(at, to);
  }
};
ATTEST_PLANT(ThirdSequence,
             {.id = "q_of_sequence_before",
              .kind = kHeads,
              .sentence = "from the third sequence on, q is that of the one before"});

template <class S>
struct HeadSplitByReshape : Stepwise<S> {
  using typename Stepwise<S>::C;
  // [L, H*D] read as [H, L, D] without a transpose.
  void load_query(const Query& q, C* to) const override {
    if (this->sizes.q_len == 0) return;
    const std::int64_t flat = q.h * this->sizes.q_len + q.row;
    Query at = q;
    at.row = flat / this->sizes.heads;
    at.h = flat % this->sizes.heads;
    load_row(row_of<S>(this->problem.q, at.b, at.h, at.row), this->problem.q->strides[3],
             this->sizes.dim, to);
    if (this->problem.rope) this->rotate(to, q.position);
  }
};
ATTEST_PLANT(HeadSplitByReshape,
             {.id = "head_split_by_reshape",
              .kind = kHeads,
              .sentence = "heads of q are split by a reshape, without the transpose"});

/// A tensor read as if its strides were others. Where that would leave the tensor the right
/// strides serve: the accident of an out-of-bounds read is another fault.
template <class S>
struct OtherStrides : Stepwise<S> {
  using typename Stepwise<S>::C;
  static std::int64_t reach(const DLTensor* t) {
    std::int64_t last = 0;
    for (int axis = 0; axis < 4; ++axis) last += (t->shape[axis] - 1) * t->strides[axis];
    return last;
  }
  /// n elements from element `start` on, `stride` apart; false if the tensor does not hold them.
  static bool load_within(const DLTensor* t, std::int64_t start, std::int64_t stride,
                          std::int64_t n, C* to) {
    if (n == 0 || start < 0 || start + (n - 1) * stride > reach(t)) return false;
    load_row(static_cast<const S*>(t->data) + start, stride, n, to);
    return true;
  }
};

template <class S>
struct StrideIgnoredV : OtherStrides<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t* const stride = this->problem.k->strides;  // those of k, for v
    if (this->sizes.v_dim > this->sizes.dim ||
        !this->load_within(this->problem.v, at.b * stride[0] + g * stride[1] + k.row * stride[2],
                           stride[3], this->sizes.v_dim, to))
      Stepwise<S>::load_value(at, g, k, to);
  }
};
ATTEST_PLANT(StrideIgnoredV, {.id = "stride_ignored_v",
                              .kind = kLayout,
                              .sentence = "v is read with the strides of k",
                              .reference = "pytorch/pytorch#181133"});

template <class S>
struct DenseK : OtherStrides<S> {
  using typename Stepwise<S>::C;
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t row = (at.b * this->sizes.kv_heads + g) * this->sizes.kv_len + k.row;
    if (!this->load_within(this->problem.k, row * this->sizes.dim, 1, this->sizes.dim, to))
      return Stepwise<S>::load_key(at, g, k, to);
    if (this->problem.rope) this->rotate(to, k.position);
  }
};
ATTEST_PLANT(DenseK, {.id = "k_taken_for_contiguous",
                      .kind = kLayout,
                      .sentence = "k is read as [B, H, L, D] without gaps"});

template <class S>
struct ChannelStrideOne : OtherStrides<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    const std::int64_t* const stride = this->problem.q->strides;
    if (!this->load_within(this->problem.q, q.b * stride[0] + q.h * stride[1] + q.row * stride[2],
                           1, this->sizes.dim, to))
      return Stepwise<S>::load_query(q, to);
    if (this->problem.rope) this->rotate(to, q.position);
  }
};
ATTEST_PLANT(ChannelStrideOne,
             {.id = "channel_stride_taken_for_1",
              .kind = kLayout,
              .sentence = "neighbouring channels of q are taken to be neighbours"});

template <class S>
struct OutputStridesOfQ : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const override {
    if (this->sizes.v_dim != this->sizes.dim) return Stepwise<S>::write_output(b, h, row, o);
    const DLTensor *q = this->problem.q, *to = this->problem.o;
    S* const at =
        static_cast<S*>(to->data) + b * q->strides[0] + h * q->strides[1] + row * q->strides[2];
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c) at[c * q->strides[3]] = narrow<S>(o[c]);
  }
};
ATTEST_PLANT(OutputStridesOfQ,
             {.id = "o_written_by_strides_of_q",
              .kind = kLayout,
              .sentence = "with as many channels, o is taken to lie in memory as q does"});

template <class S>
struct LseDense : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const override {
    const DLTensor* const to = this->problem.lse;
    if (!to) return;
    const std::int64_t rows = this->sizes.q_len, heads = this->sizes.heads;
    std::int64_t last = 0;
    for (int axis = 0; axis < 3; ++axis) last += (to->shape[axis] - 1) * to->strides[axis];
    if (this->sizes.batch * heads * rows - 1 > last) return Stepwise<S>::write_lse(b, h, row, lse);
    static_cast<C*>(to->data)[(b * heads + h) * rows + row] = lse;
  }
};
ATTEST_PLANT(LseDense, {.id = "lse_taken_for_contiguous",
                        .kind = kLayout,
                        .sentence = "lse is written as [B, H, L] without gaps"});

template <class S>
struct SizeOneSqueezed : Stepwise<S> {
  using typename Stepwise<S>::C;
  // A bias [.., .., L, 1] is squeezed and broadcast along the rows instead of the keys.
  C bias(const Query& q, const Key& k) const override {
    const TensorView<const S> bias(this->problem.bias);
    if (bias.extent(2) == 1 || bias.extent(3) > 1) return Stepwise<S>::bias(q, k);
    Query at = q;
    at.row = std::min(k.row, bias.extent(2) - 1);
    return Stepwise<S>::bias(at, k);
  }
};
ATTEST_PLANT(SizeOneSqueezed,
             {.id = "size_one_axis_squeezed",
              .kind = kLayout,
              .sentence = "an axis of size 1 is squeezed, and the bias broadcast along another",
              .reference = "pytorch/pytorch#130196"});

template <class S>
struct BroadcastAxisRead : OtherStrides<S> {
  using typename Stepwise<S>::C;
  // What repeats through stride 0 is read as if the next sequence or head began one row later.
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t* const stride = this->problem.k->strides;
    const std::int64_t batches = stride[0] == 0 ? stride[2] : stride[0];
    const std::int64_t heads = stride[1] == 0 ? stride[2] : stride[1];
    if (!this->load_within(this->problem.k, at.b * batches + g * heads + k.row * stride[2],
                           stride[3], this->sizes.dim, to))
      return Stepwise<S>::load_key(at, g, k, to);
    if (this->problem.rope) this->rotate(to, k.position);
  }
};
ATTEST_PLANT(BroadcastAxisRead, {.id = "stride_zero_taken_for_one_row",
                                 .kind = kLayout,
                                 .sentence = "stride 0 of k is taken for the step of one row"});

template <class S>
struct IndexInt16 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    // The row's offset within its head in 16 bits, unsigned: it stays within the tensor.
    const std::int64_t stride = this->problem.v->strides[2];
    const auto offset = static_cast<std::uint16_t>(k.row * stride);
    load_row(row_of<S>(this->problem.v, at.b, g, 0) + offset, this->problem.v->strides[3],
             this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(IndexInt16, {.id = "index_int16",
                          .kind = kLayout,
                          .sentence = "a row's offset within its head is kept in 16 bits",
                          .reference = "pytorch/pytorch#162588"});

template <class S>
struct OffsetInt32 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t* const stride = this->problem.k->strides;
    const std::int64_t offset = at.b * stride[0] + g * stride[1] + k.row * stride[2];
    const auto cut = static_cast<std::int32_t>(offset * static_cast<std::int64_t>(sizeof(S)));
    load_row(reinterpret_cast<const S*>(static_cast<const char*>(this->problem.k->data) + cut),
             stride[3], this->sizes.dim, to);
    if (this->problem.rope) this->rotate(to, k.position);
  }
};
ATTEST_PLANT(OffsetInt32, {.id = "offset_int32",
                           .kind = kLayout,
                           .sentence = "byte offsets into k are kept in 32 bits",
                           .reference = "Dao-AILab/flash-attention#2260"});

template <class S>
struct OffsetInt32Output : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const override {
    const std::int64_t* const stride = this->problem.o->strides;
    const auto offset = static_cast<std::int32_t>(b * stride[0] + h * stride[1] + row * stride[2]);
    S* const to = static_cast<S*>(this->problem.o->data) + offset;
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c) to[c * stride[3]] = narrow<S>(o[c]);
  }
};
ATTEST_PLANT(OffsetInt32Output, {.id = "output_offset_int32",
                                 .kind = kLayout,
                                 .sentence = "element offsets into o are kept in 32 bits"});

template <class S>
struct KeyIndexUint8 : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t n = k.position % 256;
    Stepwise<S>::load_value(at, g, {at.k0 + n, n}, to);
  }
};
ATTEST_PLANT(KeyIndexUint8,
             {.id = "key_index_uint8",
              .kind = kLayout,
              .sentence = "key numbers are kept in 8 bits: v of key 256 is that of 0"});

}  // namespace
}  // namespace attest::faulty
