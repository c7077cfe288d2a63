// SPDX-License-Identifier: Apache-2.0
// Faults of caches that are full: what is refused, and what is written then.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache capacity";

template <class S>
struct CachePastCapacity : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return this->ring() ? StepwiseDecode<S>::fits(at) : true;
  }
  S* cache_row(const DLTensor* cache, const Slot& at, std::int64_t g) const override {
    return output_row<S>(cache, at.entry, g, at.row);
  }
};
ATTEST_PLANT(CachePastCapacity, {.id = "append_past_capacity",
                                 .kind = kKind,
                                 .sentence = "rows beyond the cache are written behind its end",
                                 .reference = "Dao-AILab/flash-attention#638",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheSilentlyFull : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return this->ring() ? StepwiseDecode<S>::fits(at) : true;
  }
  void append_row(const Sequence& at, std::int64_t i) const override {
    if (this->ring() || at.offset + i < this->capacity()) StepwiseDecode<S>::append_row(at, i);
  }
};
ATTEST_PLANT(
    CacheSilentlyFull,
    {.id = "append_to_full_cache_silently_lost",
     .kind = kKind,
     .sentence = "rows that do not fit are attended to and not stored, with a status of OK",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheShiftedBack : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return this->ring() ? StepwiseDecode<S>::fits(at) : true;
  }
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    const std::int64_t over = this->ring() ? 0 : this->end(at) - this->capacity();
    return this->slot(at,
                      std::max<std::int64_t>(0, at.offset + i - std::max<std::int64_t>(0, over)));
  }
};
ATTEST_PLANT(CacheShiftedBack, {.id = "append_shifted_back",
                                .kind = kKind,
                                .sentence = "rows that do not fit overwrite the last cached ones",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheLastRowRefused : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return this->end(at) < this->capacity() || (this->ring() && this->fits_ring(at));
  }
};
ATTEST_PLANT(CacheLastRowRefused, {.id = "full_cache_refused",
                                   .kind = kKind,
                                   .sentence = "rows that fill a cache to its last row are refused",
                                   .base = "decode",
                                   .declares = kDecode});

template <class S>
struct CacheCountedInPages : StepwiseDecode<S> {
  std::int64_t capacity() const override {
    return this->paged() ? this->problem.block_table->shape[1] : StepwiseDecode<S>::capacity();
  }
};
ATTEST_PLANT(CacheCountedInPages,
             {.id = "capacity_counted_in_pages",
              .kind = kKind,
              .sentence = "a paged cache is taken to have as many rows as its table has entries",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheCheckedWithoutNew : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return at.offset < this->capacity() || StepwiseDecode<S>::fits(at);
  }
};
ATTEST_PLANT(CacheCheckedWithoutNew,
             {.id = "capacity_check_forgets_new_rows",
              .kind = kKind,
              .sentence = "a call is refused only where the cache is full before it",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheFirstChecked : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override { return at.b > 0 || StepwiseDecode<S>::fits(at); }
};
ATTEST_PLANT(CacheFirstChecked, {.id = "capacity_of_first_sequence_checked",
                                 .kind = kKind,
                                 .sentence = "whether rows fit is asked for sequence 0 alone",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CachePaddingChecked : StepwiseDecode<S> {
  bool fits(const Sequence& at) const override {
    return at.offset + this->sizes.q_len <= this->capacity() ||
           (this->ring() && this->fits_ring(at));
  }
};
ATTEST_PLANT(CachePaddingChecked,
             {.id = "capacity_check_counts_padding",
              .kind = kKind,
              .sentence = "a call is refused where its padding rows would not fit",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CachePartlyWritten : StepwiseDecode<S> {
  void check_fits() const override {
    for (std::int64_t b = 0; b < this->sizes.batch; ++b) {
      const Sequence at = this->sequence(b);
      if (!this->fits(at)) throw Invalid("the cache is full");
      this->append(at);
    }
  }
};
ATTEST_PLANT(CachePartlyWritten,
             {.id = "refused_after_first_sequences",
              .kind = kKind,
              .sentence = "sequences that fit are appended before a later one is refused",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheWrittenThenRefused : StepwiseDecode<S> {
  void check_fits() const override {
    for (std::int64_t b = 0; b < this->sizes.batch; ++b) {
      const Sequence at = this->sequence(b);
      for (std::int64_t i = 0; i < at.queries(); ++i) {
        if (!this->fits(at) && at.offset + i >= this->capacity())
          throw Invalid("the cache is full");
        this->append_row(at, i);
      }
    }
    StepwiseDecode<S>::check_fits();
  }
};
ATTEST_PLANT(CacheWrittenThenRefused,
             {.id = "refused_after_rows_that_fit",
              .kind = kKind,
              .sentence = "of a call that is refused, the rows that fit are written",
              .base = "decode",
              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
