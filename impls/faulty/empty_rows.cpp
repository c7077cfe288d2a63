// SPDX-License-Identifier: Apache-2.0
// Faults of rows that see nothing, of padding rows, and of finite numbers that stand for -inf.
#include <cmath>
#include <limits>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "empty rows";

template <class C>
constexpr C kNaN = std::numeric_limits<C>::quiet_NaN();
template <class C>
constexpr C kLowest = -static_cast<C>(std::numeric_limits<float>::max());

template <class S>
struct MaskMinus1e4 : Stepwise<S> {
  using typename Stepwise<S>::C;
  C hidden_score(const Query&, const Key&) const override { return -1e4; }
};
ATTEST_PLANT(MaskMinus1e4, {.id = "mask_minus_1e4",
                            .kind = kKind,
                            .sentence = "what is hidden gets the score -10000 instead of -inf",
                            .reference = "karpathy/minGPT#75"});

template <class S>
struct MaskFinfoMin : Stepwise<S> {
  using typename Stepwise<S>::C;
  C hidden_score(const Query&, const Key&) const override { return kLowest<C>; }
};
ATTEST_PLANT(MaskFinfoMin,
             {.id = "mask_finfo_min",
              .kind = kKind,
              .sentence = "what is hidden gets the lowest number as score instead of -inf"});

template <class S>
struct FinfoMinPlusNegative : Stepwise<S> {
  using typename Stepwise<S>::C;
  C hidden_score(const Query& q, const Key& k) const override {
    // The score itself is left out: it could not change the lowest number.
    return this->problem.bias ? kLowest<C> + this->bias(q, k) : kLowest<C>;
  }
  // Without the test that a block has shown something: -inf - -inf where the sum overflowed.
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    if (row.empty && row.max == this->kNone) row.sum = kNaN<C>, row.empty = false;
  }
};
ATTEST_PLANT(FinfoMinPlusNegative,
             {.id = "finfo_min_plus_negative_overflows",
              .kind = kKind,
              .sentence = "the lowest number is added to a bias, and their sum becomes -inf",
              .reference = "pytorch/pytorch#109517"});

template <class S>
struct FirstBlockMaskedNaN : Stepwise<S> {
  using typename Stepwise<S>::C;
  void absorb(Row<C>& row, const Block<C>& block) const override {
    Stepwise<S>::absorb(row, block);
    if (row.max == this->kNone) this->rescale(row, std::exp(row.max - row.max));
  }
};
ATTEST_PLANT(FirstBlockMaskedNaN,
             {.id = "first_block_masked_nan",
              .kind = kKind,
              .sentence = "a block that hides all its keys before any was seen gives -inf - -inf",
              .reference = "pytorch/pytorch#127055"});

template <class S>
struct EmptyRowNaN : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    Partial<C> wrong = answer;
    if (empty) wrong.o.assign(wrong.o.size(), kNaN<C>);
    Stepwise<S>::write(q, wrong, empty);
  }
};
ATTEST_PLANT(EmptyRowNaN, {.id = "empty_row_nan",
                           .kind = kKind,
                           .sentence = "a row that sees nothing is 0/0",
                           .reference = "pytorch/pytorch#103963"});

template <class S>
struct EmptyRowMeanV : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    Partial<C> mean = answer;
    const Sequence& at = *q.sequence;
    if (empty && at.keys() > 0) {
      std::vector<C> v(mean.o.size());
      for (std::int64_t n = 0; n < at.keys(); ++n) {
        this->load_value(at, this->kv_head(q.h), this->key(at, n), v.data());
        for (std::size_t c = 0; c < v.size(); ++c) mean.o[c] += v[c] / static_cast<C>(at.keys());
      }
    }
    Stepwise<S>::write(q, mean, empty);
  }
};
ATTEST_PLANT(EmptyRowMeanV, {.id = "empty_row_mean_v",
                             .kind = kKind,
                             .sentence = "a row that sees nothing gives the mean of v",
                             .reference = "microsoft/onnxruntime#28958"});

template <class S>
struct EmptyRowUnwritten : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    if (!empty) Stepwise<S>::write(q, answer, empty);
  }
};
ATTEST_PLANT(EmptyRowUnwritten, {.id = "empty_row_unwritten",
                                 .kind = kKind,
                                 .sentence = "a row that sees nothing is not written"});

template <class S>
struct EmptyRowTestByIsfinite : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    if (std::isfinite(answer.lse)) return Stepwise<S>::write(q, answer, empty);
    Stepwise<S>::write(q, {std::vector<C>(answer.o.size()), this->kNone}, true);
  }
};
ATTEST_PLANT(EmptyRowTestByIsfinite,
             {.id = "empty_row_test_by_isfinite",
              .kind = kKind,
              .sentence = "every row whose lse is not finite is taken for empty, NaN too"});

/// lse of a row that sees nothing, and has no sink.
template <class S>
struct OtherEmptyLse : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    const bool without = empty && answer.lse == this->kNone;
    Stepwise<S>::write(q, {answer.o, without ? value() : answer.lse}, empty);
  }
  virtual C value() const = 0;
};

template <class S>
struct EmptyLseZero : OtherEmptyLse<S> {
  typename Stepwise<S>::C value() const override { return 0; }
};
ATTEST_PLANT(EmptyLseZero, {.id = "empty_lse_zero",
                            .kind = kKind,
                            .sentence = "lse of a row that sees nothing is 0"});

template <class S>
struct EmptyLseInf : OtherEmptyLse<S> {
  typename Stepwise<S>::C value() const override { return -this->kNone; }
};
ATTEST_PLANT(EmptyLseInf, {.id = "empty_lse_pos_inf",
                           .kind = kKind,
                           .sentence = "lse of a row that sees nothing is +inf"});

template <class S>
struct EmptyLseLowest : OtherEmptyLse<S> {
  typename Stepwise<S>::C value() const override { return kLowest<typename Stepwise<S>::C>; }
};
ATTEST_PLANT(EmptyLseLowest, {.id = "empty_lse_lowest",
                              .kind = kKind,
                              .sentence = "lse of a row that sees nothing is the lowest number"});

template <class S>
struct EmptyRowForgetsSink : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write(const Query& q, const Partial<C>& answer, bool empty) const override {
    Stepwise<S>::write(q, {answer.o, empty ? this->kNone : answer.lse}, empty);
  }
};
ATTEST_PLANT(EmptyRowForgetsSink, {.id = "empty_row_forgets_sink",
                                   .kind = kKind,
                                   .sentence = "a row that sees its sink alone has lse -inf"});

template <class S>
struct KvLenZeroDivides : Stepwise<S> {
  using typename Stepwise<S>::C;
  Partial<C> finish(const Row<C>& row) const override {
    Partial<C> part = Stepwise<S>::finish(row);
    if (row.query.sequence->keys() == 0)
      for (C& o : part.o) o /= row.sum;
    return part;
  }
};
ATTEST_PLANT(KvLenZeroDivides, {.id = "kv_len_zero_divides",
                                .kind = kKind,
                                .sentence = "a sequence without keys divides by its sum of 0",
                                .reference = "facebookresearch/xformers#1042"});

template <class S>
struct PaddingLseZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void write_padding(std::int64_t b, std::int64_t h, std::int64_t row) const override {
    Stepwise<S>::write_padding(b, h, row);
    this->write_lse(b, h, row, C{0});
  }
};
ATTEST_PLANT(PaddingLseZero, {.id = "padding_lse_zero",
                              .kind = kKind,
                              .sentence = "lse of a padding query row is 0"});

template <class S>
struct PaddingLseSink : Stepwise<S> {
  void write_padding(std::int64_t b, std::int64_t h, std::int64_t row) const override {
    Stepwise<S>::write_padding(b, h, row);
    this->write_lse(b, h, row, this->sink(h));
  }
};
ATTEST_PLANT(PaddingLseSink, {.id = "padding_lse_is_sink",
                              .kind = kKind,
                              .sentence = "lse of a padding query row is the sink"});

template <class S>
struct PaddingUnwritten : Stepwise<S> {
  void clear_padding() const override {}
};
ATTEST_PLANT(PaddingUnwritten, {.id = "padding_unwritten",
                                .kind = kKind,
                                .sentence = "padding query rows are not written"});

template <class S>
struct PaddingLeft : PaddingUnwritten<S> {};
ATTEST_HONEST(PaddingLeft, {.id = "padding_left_as_it_was",
                            .kind = "honest declaration",
                            .sentence = "padding query rows are not written, and it says so",
                            .base = "padding_left_as_it_was",
                            .declares = "features=all precision=mma_f32acc deterministic "
                                        "batch_invariant thread_invariant masked_nan_safe "
                                        "padding_row=unspecified"});

}  // namespace
}  // namespace attest::faulty
