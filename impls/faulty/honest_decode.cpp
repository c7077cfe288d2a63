// SPDX-License-Identifier: Apache-2.0
// Honest kernels that decode.
#include <algorithm>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "honest decode";

ATTEST_HONEST(StepwiseDecode, {.id = "decode",
                               .kind = kKind,
                               .sentence = "the stepwise kernel on a cache",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct DecodeAttendFirst : StepwiseDecode<S> {
  void run_decode() override {
    this->check_fits();
    this->run();
    this->append_all();
  }
};
ATTEST_HONEST(DecodeAttendFirst, {.id = "decode_attend_first",
                                  .kind = kKind,
                                  .sentence = "new rows are written after every query has attended",
                                  .base = "decode_attend_first",
                                  .declares = kDecode});

template <class S>
struct DecodeBlock1 : StepwiseDecode<S> {
  std::int64_t key_block() const override { return 1; }
};
ATTEST_HONEST(DecodeBlock1, {.id = "decode_block_1",
                             .kind = kKind,
                             .sentence = "one cached or new key at a time",
                             .base = "decode_block_1",
                             .declares = kDecode});

template <class S>
struct DecodeBlock16 : StepwiseDecode<S> {
  std::int64_t key_block() const override { return 16; }
};
ATTEST_HONEST(DecodeBlock16, {.id = "decode_block_16",
                              .kind = kKind,
                              .sentence = "blocks of 16 keys, cached and new ones mixed",
                              .base = "decode_block_16",
                              .declares = kDecode});

/// As kernels do that append in a launch of their own.
template <class S>
struct DecodeAsStored : StepwiseDecode<S> {
  bool from_cache(const Sequence&, const Key&) const override { return true; }
};
ATTEST_HONEST(DecodeAsStored,
              {.id = "decode_as_stored",
               .kind = kKind,
               .sentence = "new keys are read back from the cache, rounded after their rotation",
               .base = "decode_as_stored",
               .declares = kDecode});

template <class S>
struct DecodeSplits : StepwiseDecode<S> {
  std::int64_t key_block() const override { return 16; }
  int splits_by_default(const Sequence& at) const override {
    const std::int64_t each = 3 * key_block();
    return static_cast<int>(std::max<std::int64_t>(1, (at.keys() + each - 1) / each));
  }
};
ATTEST_HONEST(DecodeSplits,
              {.id = "decode_splits",
               .kind = kKind,
               .sentence = "a split for every three blocks where the caller does not choose",
               .base = "decode_splits",
               .declares = kDecode});

template <class S>
struct DecodeReversed : DecodeBlock16<S> {
  using typename Stepwise<S>::C;
  void sweep(const Sequence& at, std::int64_t h, Span keys,
             std::vector<Row<C>>& rows) const override {
    for (std::int64_t end = keys.end; end > keys.begin; end -= this->key_block())
      Stepwise<S>::sweep(at, h, {std::max(keys.begin, end - this->key_block()), end}, rows);
  }
};
ATTEST_HONEST(DecodeReversed, {.id = "decode_reversed",
                               .kind = kKind,
                               .sentence = "new keys first, then the cache from its end",
                               .base = "decode_reversed",
                               .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
