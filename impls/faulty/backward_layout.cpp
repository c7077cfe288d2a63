// SPDX-License-Identifier: Apache-2.0
// Faults of the backward pass in sizes, strides and memory.
#include <algorithm>
#include <limits>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_backward.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kLayout = "backward layout";
constexpr const char* kMemory = "backward memory";

/// Elements from the first to the last of a tensor.
std::int64_t reach(const DLTensor* t) {
  std::int64_t last = 0;
  for (int axis = 0; axis < 4; ++axis) last += (t->shape[axis] - 1) * t->strides[axis];
  return last;
}

template <class S>
struct DOutByStridesOfOut : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  // Where that leaves dO the right strides serve: reading beyond is another fault.
  void load_d_out(const Query& q, C* to) const override {
    if (reach(this->problem.o) > reach(this->problem.d_o))
      return StepwiseBackward<S>::load_d_out(q, to);
    DLTensor d_o = *this->problem.d_o;
    d_o.strides = this->problem.o->strides;
    load_row(row_of<S>(&d_o, q.b, q.h, q.row), d_o.strides[3], this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(DOutByStridesOfOut, {.id = "dout_uses_out_strides",
                                  .kind = kLayout,
                                  .sentence = "dO is read with the strides of o",
                                  .reference = "Dao-AILab/flash-attention#355",
                                  .base = "backward",
                                  .declares = kBackward});

template <class S>
struct OutByStridesOfDOut : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_out(const Query& q, C* to) const override {
    if (reach(this->problem.d_o) > reach(this->problem.o))
      return StepwiseBackward<S>::load_out(q, to);
    DLTensor o = *this->problem.o;
    o.strides = this->problem.d_o->strides;
    load_row(row_of<S>(&o, q.b, q.h, q.row), o.strides[3], this->sizes.v_dim, to);
  }
};
ATTEST_PLANT(OutByStridesOfDOut,
             {.id = "out_uses_dout_strides",
              .kind = kLayout,
              .sentence = "delta reads o with the strides of dO, in one loop over both",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct BackwardDvFromDqk : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  C d_weight(const GradientRow<C>& row, C kept, const C* value) const override {
    const std::int64_t channels = std::min(this->sizes.dim, this->sizes.v_dim);
    return kept == 0 ? C{0} : kept * this->dot(row.d_o.data(), value, channels);
  }
};
ATTEST_PLANT(BackwardDvFromDqk, {.id = "dv_from_dqk_in_backward",
                                 .kind = kLayout,
                                 .sentence = "dO v sums over the first D of the Dv channels",
                                 .reference = "Dao-AILab/flash-attention#2552",
                                 .base = "backward",
                                 .declares = kBackward});

template <class S>
struct SmallestSizeNaN : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const override {
    // The other lanes of the only tile hold junk of shared memory, and 0 * NaN enters the sum.
    if (at.queries() == 1)
      std::fill(keys.d_k.begin(), keys.d_k.end(), std::numeric_limits<C>::quiet_NaN());
    StepwiseBackward<S>::finish_keys(at, g, keys);
  }
};
ATTEST_PLANT(SmallestSizeNaN, {.id = "smallest_size_backward_nan",
                               .kind = kLayout,
                               .sentence = "a sequence of one query gets NaN for dK",
                               .reference = "Dao-AILab/flash-attention#334",
                               .base = "backward",
                               .declares = kBackward});

template <class S>
struct DqChannelsInEights : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void write_d_q(const Query& q, const C* d_q) const override {
    std::vector<C> whole(d_q, d_q + this->sizes.dim);
    if (this->sizes.dim > 8) std::fill(whole.begin() + this->sizes.dim / 8 * 8, whole.end(), C{0});
    StepwiseBackward<S>::write_d_q(q, whole.data());
  }
};
ATTEST_PLANT(DqChannelsInEights,
             {.id = "dq_channel_tail_zero",
              .kind = kLayout,
              .sentence = "dQ of channels beyond the last whole group of 8 is 0",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct DvOnlyWithDk : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void clear_gradients() const override {
    if (this->problem.d_k) StepwiseBackward<S>::clear_gradients();
  }
  void finish_keys(const Sequence& at, std::int64_t g, KeyGradients<C>& keys) const override {
    if (this->problem.d_k) StepwiseBackward<S>::finish_keys(at, g, keys);
  }
};
ATTEST_PLANT(DvOnlyWithDk, {.id = "dv_only_with_dk",
                            .kind = kLayout,
                            .sentence = "a frozen k stops dV too: one test decides for both",
                            .base = "backward",
                            .declares = kBackward});

template <class S>
struct NullDq : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_d_q(GradientRow<C>& row) const override {
    StepwiseBackward<S>::finish_d_q(row);
    if (!this->problem.d_q && this->sizes.dim > 0) *static_cast<volatile char*>(nullptr) = 0;
  }
};
ATTEST_PLANT(NullDq, {.id = "unwanted_dq_is_written",
                      .kind = kMemory,
                      .sentence = "a dQ that nobody wants is written through its null pointer",
                      .base = "backward",
                      .declares = kBackward});

template <class S>
struct DkOutOfBounds : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void write_d_k(const Sequence& at, std::int64_t g, const Key& k, const C* d_k) const override {
    StepwiseBackward<S>::write_d_k(at, g, k, d_k);
    // Stores are two channels wide. The row that follows overwrites what it gets; the last does
    // not.
    const std::int64_t dim = this->sizes.dim;
    if (dim % 2 == 1)
      output_row<S>(this->problem.d_k, at.b, g, k.row)[dim * this->problem.d_k->strides[3]] = S{};
  }
};
ATTEST_PLANT(DkOutOfBounds, {.id = "dk_written_past_end",
                             .kind = kMemory,
                             .sentence = "dK is written two channels at a time, past an odd end",
                             .base = "backward",
                             .declares = kBackward});

template <class S>
struct DOutModified : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_d_q(GradientRow<C>& row) const override {
    StepwiseBackward<S>::finish_d_q(row);
    if (!row.d_o.empty())
      *output_row<S>(this->problem.d_o, row.query.b, row.query.h, row.query.row) =
          narrow<S>(row.delta);
  }
};
ATTEST_PLANT(DOutModified,
             {.id = "dout_modified",
              .kind = kMemory,
              .sentence = "delta is left where dO was, which backward does not need any more",
              .base = "backward",
              .declares = kBackward});

template <class S>
struct OutModified : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void finish_d_q(GradientRow<C>& row) const override {
    StepwiseBackward<S>::finish_d_q(row);
    if (!row.d_o.empty() && !row.empty)
      *output_row<S>(this->problem.o, row.query.b, row.query.h, row.query.row) =
          narrow<S>(row.delta);
  }
};
ATTEST_PLANT(OutModified, {.id = "out_modified_in_backward",
                           .kind = kMemory,
                           .sentence = "o, which the call may not write to now, serves as scratch",
                           .base = "backward",
                           .declares = kBackward});

template <class S>
struct DOutReadPastEnd : StepwiseBackward<S> {
  using typename Stepwise<S>::C;
  void load_d_out(const Query& q, C* to) const override {
    StepwiseBackward<S>::load_d_out(q, to);
    const std::int64_t wide = (this->sizes.v_dim + 7) / 8 * 8;
    [[maybe_unused]] const volatile auto byte = *reinterpret_cast<const volatile char*>(
        row_of<S>(this->problem.d_o, q.b, q.h, q.row) + (wide - 1) * this->problem.d_o->strides[3]);
  }
};
ATTEST_PLANT(DOutReadPastEnd, {.id = "dout_read_past_end",
                               .kind = kMemory,
                               .sentence = "dO is read in whole groups of 8 channels, past its end",
                               .base = "backward",
                               .declares = kBackward});

}  // namespace
}  // namespace attest::faulty
