// SPDX-License-Identifier: Apache-2.0
// Faults of memory: reading and writing where nothing is, leaving outputs unwritten, junk trusted.
#include <algorithm>
#include <cstdint>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "memory";

/// A read that the compiler must not leave out.
template <class T>
void touch(const T* address) {
  [[maybe_unused]] const volatile auto byte = *reinterpret_cast<const volatile char*>(address);
}

template <class S>
struct OobReadTail : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_block(const Sequence& at, std::int64_t h, Block<C>& block) const override {
    Stepwise<S>::load_block(at, h, block);
    if (block.first + block.count < at.keys() || this->sizes.v_dim == 0) return;
    // Loads are 16 rows wide; the rows beyond the last key are read and thrown away.
    const std::int64_t last = at.k0 + (at.keys() + 15) / 16 * 16 - 1;
    touch(row_of<S>(this->problem.v, at.b, block.g, last) +
          (this->sizes.v_dim - 1) * this->problem.v->strides[3]);
  }
};
ATTEST_PLANT(OobReadTail, {.id = "oob_read_tail",
                           .kind = kKind,
                           .sentence = "v is read in whole groups of 16 rows, past its end",
                           .reference = "pytorch/pytorch#169222"});

template <class S>
struct OobReadChannels : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    const std::int64_t wide = (this->sizes.dim + 7) / 8 * 8;
    touch(row_of<S>(this->problem.q, q.b, q.h, q.row) + (wide - 1) * this->problem.q->strides[3]);
  }
};
ATTEST_PLANT(OobReadChannels,
             {.id = "oob_read_channels",
              .kind = kKind,
              .sentence = "q is read in whole groups of 8 channels, past its end"});

template <class S>
struct OobReadBefore : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_block(const Sequence& at, std::int64_t h, Block<C>& block) const override {
    Stepwise<S>::load_block(at, h, block);
    if (block.first == 0 && this->problem.window_left >= 0 && this->sizes.dim > 0)
      touch(row_of<S>(this->problem.k, at.b, block.g, at.k0 - this->problem.window_left % 4 - 1));
  }
};
ATTEST_PLANT(OobReadBefore, {.id = "oob_read_before_window",
                             .kind = kKind,
                             .sentence = "under a left window k is read from before row 0"});

template <class S>
struct MaskReadPastEnd : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    if (this->problem.mask && block.first + block.count == row.query.sequence->keys()) {
      const TensorView<const std::uint8_t> mask(this->problem.mask);
      const std::int64_t wide = (this->sizes.kv_len + 3) / 4 * 4;  // four entries in one load
      if (mask.extent(3) > 1)
        touch(&mask.broadcast(row.query.b, row.query.h, row.query.row, wide - 1));
    }
    Stepwise<S>::absorb(row, block);
  }
};
ATTEST_PLANT(MaskReadPastEnd, {.id = "mask_read_past_end",
                               .kind = kKind,
                               .sentence = "the mask is read in groups of 4, past its end",
                               .reference = "flashinfer-ai/flashinfer#1005"});

template <class S>
struct LengthsReadPastEnd : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    if (this->problem.seqlens_k)
      touch(static_cast<const std::int32_t*>(this->problem.seqlens_k->data) +
            (n + 1) * this->problem.seqlens_k->strides[0]);
    return Stepwise<S>::sequence(n);
  }
};
ATTEST_PLANT(LengthsReadPastEnd,
             {.id = "seqlens_read_past_end",
              .kind = kKind,
              .sentence = "seqlens_k is read as if it had one entry more, like cu_seqlens"});

template <class S>
struct OobWriteTail : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const override {
    Stepwise<S>::write_output(b, h, row, o);
    const std::int64_t stride = this->problem.o->strides[3], dim = this->sizes.v_dim;
    S* const to = output_row<S>(this->problem.o, b, h, row);
    // Stores are two channels wide. The row that follows overwrites what it gets; the last does
    // not.
    if (dim % 2 == 1) to[dim * stride] = S{};
  }
};
ATTEST_PLANT(OobWriteTail, {.id = "oob_write_tail",
                            .kind = kKind,
                            .sentence = "o is written two channels at a time, past an odd end"});

template <class S>
struct OobWriteLse : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const override {
    Stepwise<S>::write_lse(b, h, row, lse);
    const bool last = b + 1 == this->sizes.batch && h + 1 == this->sizes.heads &&
                      row + 1 == this->sizes.q_len && this->sizes.q_len % 4 != 0;
    if (last && this->problem.lse) TensorView<C>(this->problem.lse)(b, h, row + 1) = 0;
  }
};
ATTEST_PLANT(OobWriteLse, {.id = "oob_write_lse",
                           .kind = kKind,
                           .sentence = "one lse too many is written after the last row"});

template <class S>
struct OutputPartlyUnwritten : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const override {
    const std::int64_t whole = this->sizes.v_dim / 4 * 4;
    S* const to = output_row<S>(this->problem.o, b, h, row);
    for (std::int64_t c = 0; c < (whole > 0 ? whole : this->sizes.v_dim); ++c)
      to[c * this->problem.o->strides[3]] = narrow<S>(o[c]);
  }
};
ATTEST_PLANT(OutputPartlyUnwritten,
             {.id = "output_partly_unwritten",
              .kind = kKind,
              .sentence = "channels after the last multiple of 4 are not written",
              .reference = "Dao-AILab/flash-attention#2324"});

template <class S>
struct LseUnwritten : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t, std::int64_t, std::int64_t, C) const override {}
};
ATTEST_PLANT(LseUnwritten, {.id = "lse_unwritten",
                            .kind = kKind,
                            .sentence = "lse is not written",
                            .reference = "pytorch-labs/attention-gym#37"});

template <class S>
struct LseOfLastHeadUnwritten : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const override {
    if (h == 0 || h + 1 < this->sizes.heads) Stepwise<S>::write_lse(b, h, row, lse);
  }
};
ATTEST_PLANT(LseOfLastHeadUnwritten,
             {.id = "lse_of_last_head_unwritten",
              .kind = kKind,
              .sentence = "lse of the last of several heads is not written"});

template <class S>
struct OutputAssumedZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const override {
    S* const to = output_row<S>(this->problem.o, b, h, row);
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c) {
      S& element = to[c * this->problem.o->strides[3]];
      element = narrow<S>(o[c] + widen(element));
    }
  }
};
ATTEST_PLANT(OutputAssumedZero, {.id = "output_assumed_zero",
                                 .kind = kKind,
                                 .sentence = "the result is added to what stands in o"});

template <class S>
struct InputModified : Stepwise<S> {
  void run() override {
    // q is scaled in place and scaled back: 0.1 * x / 0.1 is not always x.
    scale(static_cast<float>(0.1));
    Stepwise<S>::run();
  }
  void scale(float factor) const {
    const DLTensor* const q = this->problem.q;
    for_each_row(this->problem, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
      S* const row = output_row<S>(q, b, h, i);
      for (std::int64_t c = 0; c < this->sizes.dim; ++c) {
        S& x = row[c * q->strides[3]];
        x = narrow<S>(widen(narrow<S>(widen(x) * static_cast<Compute<S>>(factor))) /
                      static_cast<Compute<S>>(factor));
      }
    });
  }
};
ATTEST_PLANT(InputModified, {.id = "input_modified",
                             .kind = kKind,
                             .sentence = "q is scaled in place and scaled back, with roundings"});

template <class S>
struct MaskModified : Stepwise<S> {
  void run() override {
    if (this->problem.mask && this->problem.base == ATTEST_BASE_CAUSAL && this->sizes.batch > 0 &&
        this->sizes.q_len > 0 && this->sizes.kv_len > 1) {
      // The causal rule is folded into the caller's mask: here, its first row and last key.
      const DLTensor* const mask = this->problem.mask;
      auto* const row = static_cast<std::uint8_t*>(mask->data);
      Stepwise<S>::run();
      row[(mask->shape[3] - 1) * mask->strides[3]] = 0;
      return;
    }
    Stepwise<S>::run();
  }
};
ATTEST_PLANT(MaskModified, {.id = "mask_modified",
                            .kind = kKind,
                            .sentence = "the causal rule is folded into the caller's mask"});

template <class S>
struct WorkspaceAssumedZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  static std::uint64_t workspace_bytes(const attest_attention& asked) {
    return static_cast<std::uint64_t>(asked.q->shape[1]) * sizeof(C);
  }
  void start(Row<C>& row, bool with_sink) const override {
    Stepwise<S>::start(row, with_sink);
    const auto* const sums = static_cast<const C*>(this->context.workspace);
    if (sums) row.sum += sums[row.query.h];
  }
};
ATTEST_PLANT(WorkspaceAssumedZero, {.id = "workspace_assumed_zero",
                                    .kind = kKind,
                                    .sentence = "sums start from the workspace, taken to be 0"});

template <class S>
struct WorkspaceTooSmall : Stepwise<S> {
  static std::uint64_t workspace_bytes(const attest_attention& asked) {
    return static_cast<std::uint64_t>(asked.q->shape[0] * asked.q->shape[1]) * sizeof(float);
  }
  void run() override {
    Stepwise<S>::run();
    // One counter for each tile, where one for each head was asked for.
    auto* const counters = static_cast<float*>(this->context.workspace);
    const std::int64_t tiles = (this->sizes.q_len + kQueryTile - 1) / kQueryTile;
    const std::int64_t count = this->sizes.batch * this->sizes.heads * tiles;
    for (std::int64_t n = 0; counters && n < count; ++n) counters[n] = 0;
  }
};
ATTEST_PLANT(WorkspaceTooSmall, {.id = "workspace_too_small",
                                 .kind = kKind,
                                 .sentence = "more workspace is used than was asked for"});

}  // namespace
}  // namespace attest::faulty
