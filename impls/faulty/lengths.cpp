// SPDX-License-Identifier: Apache-2.0
// Faults of lengths, left pads and packed segments.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "lengths";

template <class S>
struct PaddingIgnored : EveryBlock<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_k) at.k1 = this->sizes.kv_len;
    return at;
  }
};
ATTEST_PLANT(PaddingIgnored, {.id = "padding_ignored",
                              .kind = kKind,
                              .sentence = "keys beyond seqlens_k are visible",
                              .reference = "microsoft/DeepSpeed#1912"});

template <class S>
struct PaddingPlusOne : EveryBlock<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_k) at.k1 = std::min(at.k1 + 1, this->sizes.kv_len);
    return at;
  }
};
ATTEST_PLANT(PaddingPlusOne, {.id = "padding_first_key_visible",
                              .kind = kKind,
                              .sentence = "the first key beyond seqlens_k is visible (<= for <)"});

template <class S>
struct PaddingOnQueryAxis : Stepwise<S> {
  bool visible(const Query& q, const Key& k) const override {
    const bool hidden = this->problem.seqlens_k && q.row >= q.sequence->k1;
    return !hidden && Stepwise<S>::visible(q, k);
  }
};
ATTEST_PLANT(PaddingOnQueryAxis, {.id = "padding_on_query_axis",
                                  .kind = kKind,
                                  .sentence = "the length of the keys cuts queries as well"});

template <class S>
struct LeftPadKIgnored : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.left_pad_k) at.k0 = 0;
    return at;
  }
};
ATTEST_PLANT(LeftPadKIgnored, {.id = "left_pad_k_ignored",
                               .kind = kKind,
                               .sentence = "the keys of the left pad are visible"});

template <class S>
struct LeftPadNotInKeyPositions : Stepwise<S> {
  Key key(const Sequence& at, std::int64_t n) const override { return {at.k0 + n, at.k0 + n}; }
};
ATTEST_PLANT(LeftPadNotInKeyPositions,
             {.id = "left_pad_in_key_positions",
              .kind = kKind,
              .sentence = "key positions are counted from row 0, pad and other segments included"});

template <class S>
struct LeftPadNotInQueryPositions : Stepwise<S> {
  Query query(const Sequence& at, std::int64_t h, std::int64_t row) const override {
    Query q = Stepwise<S>::query(at, h, row);
    q.position += at.q0;
    return q;
  }
};
ATTEST_PLANT(
    LeftPadNotInQueryPositions,
    {.id = "left_pad_in_query_positions",
     .kind = kKind,
     .sentence = "query positions are counted from row 0, pad and other segments included"});

template <class S>
struct LengthsAsCounts : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_k && this->problem.left_pad_k)
      at.k1 = std::min(at.k0 + at.k1, this->sizes.kv_len);
    return at;
  }
};
ATTEST_PLANT(LengthsAsCounts,
             {.id = "lengths_as_counts",
              .kind = kKind,
              .sentence = "seqlens_k is taken for the number of keys after the left pad"});

template <class S>
struct SeqlensKFirstEntry : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_k)
      at.k1 = std::max(at.k0, Stepwise<S>::entry(this->problem.seqlens_k, 0, 0));
    at.offset = this->offset(at);
    return at;
  }
};
ATTEST_PLANT(SeqlensKFirstEntry, {.id = "seqlens_k_first_entry",
                                  .kind = kKind,
                                  .sentence = "every sequence takes the first entry of seqlens_k"});

template <class S>
struct SeqlensQForKeys : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_q && !this->problem.seqlens_k && !this->problem.left_pad_k)
      at.k1 = std::min(at.k1, at.q1);
    return at;
  }
};
ATTEST_PLANT(SeqlensQForKeys, {.id = "seqlens_q_cuts_keys",
                               .kind = kKind,
                               .sentence = "the length of the queries cuts keys as well"});

template <class S>
struct SeqlensQIgnored : Stepwise<S> {
  void clear_padding() const override {}
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.seqlens_q) at.q1 = this->sizes.q_len;
    return at;
  }
};
ATTEST_PLANT(SeqlensQIgnored, {.id = "seqlens_q_ignored",
                               .kind = kKind,
                               .sentence = "padding query rows are attended like all others"});

template <class S>
struct KvLoopBoundFromQLen : Stepwise<S> {
  Span tile_keys(const Query& first, const Query& last) const override {
    const Span span = Stepwise<S>::tile_keys(first, last);
    return {span.begin, std::min(span.end, first.sequence->queries())};
  }
};
ATTEST_PLANT(KvLoopBoundFromQLen,
             {.id = "kv_loop_bound_from_q_len",
              .kind = kKind,
              .sentence = "the loop over the keys ends at the number of queries"});

template <class S>
struct SegmentsLeak : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (!this->problem.cu_seqlens_k) return at;
    at.offset += at.k0;  // the positions within the segment stay what they are to the rows
    at.k0 = 0;
    return at;
  }
};
ATTEST_PLANT(SegmentsLeak, {.id = "segments_leak",
                            .kind = kKind,
                            .sentence = "a packed segment sees the keys of those before it",
                            .reference = "huggingface/transformers#46634"});

template <class S>
struct SegmentLosesLastKey : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.cu_seqlens_k && n + 1 < this->sizes.sequences && at.keys() > 1) --at.k1;
    return at;
  }
};
ATTEST_PLANT(SegmentLosesLastKey,
             {.id = "segment_loses_last_key",
              .kind = kKind,
              .sentence = "every packed segment but the last ends one key early"});

template <class S>
struct LastSegmentToTheEnd : EveryBlock<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (this->problem.cu_seqlens_k && n + 1 == this->sizes.sequences) at.k1 = this->sizes.kv_len;
    return at;
  }
};
ATTEST_PLANT(LastSegmentToTheEnd,
             {.id = "last_segment_to_the_end",
              .kind = kKind,
              .sentence = "the last packed segment goes on to the end of the tensor"});

template <class S>
struct SegmentKeysFromQueries : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (!this->problem.cu_seqlens_k) return at;
    at.k0 = std::min(at.q0, this->sizes.kv_len);
    at.k1 = std::min(at.q1, this->sizes.kv_len);
    return at;
  }
};
ATTEST_PLANT(SegmentKeysFromQueries,
             {.id = "cu_seqlens_q_for_keys",
              .kind = kKind,
              .sentence = "the segments of the queries are taken for those of the keys"});

template <class S>
struct EmptySegmentShifts : Stepwise<S> {
  Sequence sequence(std::int64_t n) const override {
    Sequence at = Stepwise<S>::sequence(n);
    if (!this->problem.cu_seqlens_k || n == 0) return at;
    const Sequence before = Stepwise<S>::sequence(n - 1);
    if (before.keys() == 0 && at.keys() > 0) ++at.k0;
    return at;
  }
};
ATTEST_PLANT(EmptySegmentShifts,
             {.id = "empty_segment_eats_a_key",
              .kind = kKind,
              .sentence = "the segment after one without keys loses its first key"});

}  // namespace
}  // namespace attest::faulty
