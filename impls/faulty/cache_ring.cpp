// SPDX-License-Identifier: Apache-2.0
// Faults of rings.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/decode_longer.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache ring";

/// Keys and values are read back from the ring after all new rows are in it.
template <class S>
struct DecodeOverwrites : StepwiseDecode<S> {
  bool from_cache(const Sequence&, const Key&) const override { return true; }
};

template <class S>
struct CacheRingNotWrapped : StepwiseDecode<S> {
  Slot ring_slot(const Sequence& at, std::int64_t position) const override {
    return {at.b, std::min(position, this->entry_rows() - 1)};
  }
};
ATTEST_PLANT(CacheRingNotWrapped, {.id = "ring_not_wrapped",
                                   .kind = kKind,
                                   .sentence = "rows beyond the ring all lie in its last row",
                                   .base = "decode",
                                   .declares = kDecode});

template <class S>
struct CacheRingShort : StepwiseDecode<S> {
  Slot ring_slot(const Sequence& at, std::int64_t position) const override {
    return {at.b, position % std::max<std::int64_t>(1, this->entry_rows() - 1)};
  }
};
ATTEST_PLANT(CacheRingShort, {.id = "ring_wraps_one_row_early",
                              .kind = kKind,
                              .sentence = "a ring of C rows starts anew after C - 1",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheRingOfWindow : StepwiseDecode<S> {
  Slot ring_slot(const Sequence& at, std::int64_t position) const override {
    const std::int64_t rows = this->entry_rows();
    const bool wraps = this->end(at) > rows;
    return {at.b, position % (wraps ? std::min(rows, this->problem.window_left + 1) : rows)};
  }
};
ATTEST_PLANT(CacheRingOfWindow,
             {.id = "ring_wraps_at_window",
              .kind = kKind,
              .sentence = "positions wrap at the window's length, not at the ring's",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRingOverwrites : DecodeOverwrites<S> {
  bool fits_ring(const Sequence&) const override {
    return this->problem.window_left >= 0 && this->problem.window_left < this->capacity();
  }
};
ATTEST_PLANT(
    CacheRingOverwrites,
    {.id = "ring_append_overwrites_seen_keys",
     .kind = kKind,
     .sentence =
         "a ring may be too short by the new rows: they overwrite keys before these are read",
     .reference = "pytorch/executorch#20346",
     .base = "decode_as_stored",
     .declares = kDecode});

template <class S>
struct CacheRingNoCheck : StepwiseDecode<S> {
  bool fits_ring(const Sequence&) const override { return true; }
};
ATTEST_PLANT(CacheRingNoCheck, {.id = "ring_never_refuses",
                                .kind = kKind,
                                .sentence = "a ring takes whatever comes, in or out of the window",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheRingRefuses : StepwiseDecode<S> {
  bool fits_ring(const Sequence&) const override { return false; }
};
ATTEST_PLANT(CacheRingRefuses, {.id = "wrapped_ring_refused",
                                .kind = kKind,
                                .sentence = "a ring is refused as soon as it wraps",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheRingWindowTwice : StepwiseDecode<S> {
  bool fits_ring(const Sequence& at) const override {
    return this->problem.window_left + 1 <= this->capacity() - at.queries() &&
           StepwiseDecode<S>::fits_ring(at);
  }
};
ATTEST_PLANT(CacheRingWindowTwice,
             {.id = "ring_check_one_row_strict",
              .kind = kKind,
              .sentence = "a ring that holds exactly the window and the new rows is refused",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRingOldestLost : StepwiseDecode<S> {
  bool band_allows(const Query& q, const Key& k) const override {
    const bool oldest = this->ring() && this->end(*q.sequence) > this->entry_rows() &&
                        q.position - k.position == this->problem.window_left;
    return !oldest && StepwiseDecode<S>::band_allows(q, k);
  }
};
ATTEST_PLANT(CacheRingOldestLost,
             {.id = "ring_oldest_row_lost",
              .kind = kKind,
              .sentence = "of a wrapped ring the oldest row in the window is not read",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRingBySlot : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    const std::int64_t position = this->ring() ? k.position % this->entry_rows() : k.position;
    return StepwiseDecode<S>::visible(q, {k.row, position});
  }
};
ATTEST_PLANT(
    CacheRingBySlot,
    {.id = "ring_visible_by_slot",
     .kind = kKind,
     .sentence = "which keys of a ring a row sees goes by their rows, not by their positions",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheRingAlibi : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  C alibi(const Query& q, const Key& k) const override {
    const std::int64_t position = this->ring() ? k.position % this->entry_rows() : k.position;
    return StepwiseDecode<S>::alibi(q, {k.row, position});
  }
};
ATTEST_PLANT(CacheRingAlibi, {.id = "ring_alibi_by_slot",
                              .kind = kKind,
                              .sentence = "ALiBi of a ring goes by rows, not by positions",
                              .base = "decode",
                              .declares = kDecode});

template <class S>
struct CacheRingChunkCut : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    const std::int64_t rows = this->entry_rows();
    for (std::int64_t i = 0; i < at.queries(); ++i)
      if (!this->ring() || at.offset % rows + i < rows) this->append_row(at, i);
  }
};
ATTEST_PLANT(CacheRingChunkCut,
             {.id = "ring_append_stops_at_end",
              .kind = kKind,
              .sentence = "of a chunk that reaches the end of the ring, the rest is not written",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRingUnrolled : StepwiseDecode<S> {
  Slot load_slot(const Sequence& at, const Key& k) const override {
    const std::int64_t oldest = this->end(at) - this->entry_rows();
    return this->slot(at, this->ring() && oldest > 0 ? k.position - oldest : k.position);
  }
};
ATTEST_PLANT(CacheRingUnrolled,
             {.id = "ring_read_from_row_0",
              .kind = kKind,
              .sentence = "a wrapped ring is read as if its oldest row were row 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRingUnfilled : DecodeLonger<S> {
  std::int64_t extra(const Sequence& at) const override {
    return this->ring() ? this->entry_rows() - this->end(at) : 0;
  }
};
ATTEST_PLANT(CacheRingUnfilled, {.id = "ring_attended_before_it_is_full",
                                 .kind = kKind,
                                 .sentence = "all rows of a ring are attended to, filled or not",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheRingRestart : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    const std::int64_t rows = this->entry_rows(),
                       first = at.offset % std::max<std::int64_t>(1, rows);
    const bool restarts = this->ring() && first + at.queries() > rows;
    return this->slot(at, restarts ? i : at.offset + i);
  }
};
ATTEST_PLANT(CacheRingRestart,
             {.id = "ring_appends_from_row_0_when_full",
              .kind = kKind,
              .sentence = "a chunk that does not fit behind the last row starts at row 0 instead",
              .base = "decode",
              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
