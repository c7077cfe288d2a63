// SPDX-License-Identifier: Apache-2.0
// Faults of append in what is written into the rows.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/honest.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache append";

template <class S>
struct CacheNoValues : StepwiseDecode<S> {
  void append_head(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    this->put(this->problem.k_cache, this->append_slot(at, i), g, this->stored_key(at, g, i));
  }
};
ATTEST_PLANT(CacheNoValues, {.id = "append_values_missing",
                             .kind = kKind,
                             .sentence = "new keys are stored, new values are not",
                             .base = "decode",
                             .declares = kDecode});

template <class S>
struct CacheNoKeys : StepwiseDecode<S> {
  void append_head(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    this->put(this->problem.v_cache, this->append_slot(at, i), g, this->stored_value(at, g, i));
  }
};
ATTEST_PLANT(CacheNoKeys, {.id = "append_keys_missing",
                           .kind = kKind,
                           .sentence = "new values are stored, new keys are not",
                           .base = "decode",
                           .declares = kDecode});

template <class S>
struct CacheValueByKeyStrides : StepwiseDecode<S> {
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    const DLTensor& k = *this->problem.k;
    std::vector<S> row(static_cast<std::size_t>(this->sizes.v_dim));
    const S* const from = static_cast<const S*>(this->problem.v->data) + at.b * k.strides[0] +
                          g * k.strides[1] + i * k.strides[2];
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c)
      row[static_cast<std::size_t>(c)] = from[c * k.strides[3]];
    return row;
  }
};
ATTEST_PLANT(CacheValueByKeyStrides, {.id = "append_v_with_strides_of_k",
                                      .kind = kKind,
                                      .sentence = "new values are found with the strides of k",
                                      .base = "decode",
                                      .declares = kDecode});

template <class S>
struct CacheKeysAsValues : StepwiseDecode<S> {
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    return this->sizes.dim == this->sizes.v_dim ? this->stored_key(at, g, i)
                                                : StepwiseDecode<S>::stored_value(at, g, i);
  }
};
ATTEST_PLANT(CacheKeysAsValues,
             {.id = "append_keys_as_values",
              .kind = kKind,
              .sentence = "where keys and values have one size, keys are stored twice",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheEightBits : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t g,
           const std::vector<S>& row) const override {
    std::vector<S> cut = row;
    for (S& x : cut) x = narrow<S>(to_bits(widen(x), 8));
    StepwiseDecode<S>::put(cache, to, g, cut);
  }
};
ATTEST_PLANT(CacheEightBits,
             {.id = "append_in_8_bits",
              .kind = kKind,
              .sentence = "new rows are rounded to 8 significant bits before they are stored",
              .dtypes = "f64,f32,f16",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheChannelsPermuted : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t g,
           const std::vector<S>& row) const override {
    std::vector<S> other = row;
    std::rotate(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(row.size() / 2),
                other.end());
    StepwiseDecode<S>::put(cache, to, g, other);
  }
};
ATTEST_PLANT(CacheChannelsPermuted, {.id = "append_channels_permuted",
                                     .kind = kKind,
                                     .sentence = "the second half of the channels is stored first",
                                     .base = "decode",
                                     .declares = kDecode});

template <class S>
struct CacheAdds : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t g,
           const std::vector<S>& row) const override {
    std::vector<S> sum = row;
    const S* const there = this->cache_row(cache, to, g);
    for (std::size_t c = 0; c < sum.size(); ++c)
      sum[c] =
          narrow<S>(widen(there[static_cast<std::int64_t>(c) * cache->strides[3]]) + widen(row[c]));
    StepwiseDecode<S>::put(cache, to, g, sum);
  }
};
ATTEST_PLANT(CacheAdds, {.id = "append_adds",
                         .kind = kKind,
                         .sentence = "new rows are added to what their slots hold",
                         .base = "decode",
                         .declares = kDecode});

template <class S>
struct CacheLastChannelsLost : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t g,
           const std::vector<S>& row) const override {
    std::vector<S> whole = row;
    whole.resize(row.size() / 8 * 8);
    StepwiseDecode<S>::put(cache, to, g, whole);
  }
};
ATTEST_PLANT(CacheLastChannelsLost,
             {.id = "append_last_channels_lost",
              .kind = kKind,
              .sentence = "rows are copied in vectors of 8 channels; what is left over is not",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheWholeVectors : StepwiseDecode<S> {
  void put(const DLTensor* cache, const Slot& to, std::int64_t g,
           const std::vector<S>& row) const override {
    std::vector<S> whole = row;
    if (cache->strides[3] == 1) whole.resize((row.size() + 7) / 8 * 8);
    StepwiseDecode<S>::put(cache, to, g, whole);
  }
};
ATTEST_PLANT(CacheWholeVectors,
             {.id = "append_writes_whole_vectors",
              .kind = kKind,
              .sentence = "rows are copied in vectors of 8 channels, the last one beyond the row",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheChannelsOfKey : StepwiseDecode<S> {
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    std::vector<S> row = StepwiseDecode<S>::stored_value(at, g, i);
    row.resize(static_cast<std::size_t>(std::min(this->sizes.dim, this->sizes.v_dim)));
    return row;
  }
};
ATTEST_PLANT(CacheChannelsOfKey,
             {.id = "append_v_of_head_dim",
              .kind = kKind,
              .sentence = "of a value only as many channels are stored as a key has",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRowsOfFirst : StepwiseDecode<S> {
  std::vector<S> stored_key(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    return StepwiseDecode<S>::stored_key(first(at), g, i);
  }
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    return StepwiseDecode<S>::stored_value(first(at), g, i);
  }
  static Sequence first(Sequence at) {
    at.b = 0;
    return at;
  }
};
ATTEST_PLANT(CacheRowsOfFirst,
             {.id = "append_rows_of_sequence_0",
              .kind = kKind,
              .sentence = "every sequence's cache gets the new rows of sequence 0",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheRowsFromTheEnd : StepwiseDecode<S> {
  std::vector<S> stored_value(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    return StepwiseDecode<S>::stored_value(at, g, i + this->sizes.q_len - at.queries());
  }
};
ATTEST_PLANT(
    CacheRowsFromTheEnd,
    {.id = "append_last_rows_of_call",
     .kind = kKind,
     .sentence =
         "of a shorter sequence the last rows of the call are stored, as if padding came first",
     .base = "decode",
     .declares = kDecode});

template <class S>
struct CacheHeadTimesGroup : StepwiseDecode<S> {
  std::vector<S> stored_key(const Sequence& at, std::int64_t g, std::int64_t i) const override {
    return StepwiseDecode<S>::stored_key(at, g * this->sizes.group % this->sizes.kv_heads, i);
  }
};
ATTEST_PLANT(
    CacheHeadTimesGroup,
    {.id = "append_head_of_group",
     .kind = kKind,
     .sentence = "head g of the cache gets new head G g, as if k had a head for every query head",
     .base = "decode",
     .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
