// SPDX-License-Identifier: Apache-2.0
// ring: a cache of C rows for windows, position p of a sequence in row p mod C: new rows overwrite
// the oldest. A window of w and n new rows need C >= w + n, so every key that a row sees is there.
//
// Contract: impls/decode.hpp. Computes in f32 (f64 for f64); weights stay unrounded. A new key is
// rounded to the storage type before it is used. RoPE comes from the caller's tables. Without
// num_splits a sequence has a part for each 512 keys begun; a work item is one sequence, key/value
// head, 16 new rows and part.
#include "attest/plugin.hpp"
#include "impls/decode.hpp"

namespace attest {
namespace {

class RingRows {
 public:
  explicit RingRows(const attest_attention& p) : rows_(p.k_cache->shape[2]) {}
  std::int64_t oldest(std::int64_t total) const { return std::max<std::int64_t>(0, total - rows_); }
  template <class Storage>
  Storage* row(const DLTensor* cache, std::int64_t b, std::int64_t g, std::int64_t position) const {
    return output_row<Storage>(cache, b, g, position % rows_);
  }

 private:
  std::int64_t rows_;
};

class RingKernel : public Kernel {
  void decode(const attest_attention& problem, const Context& context) override {
    decode::run<RingRows>(problem, context, ATTEST_CACHE_RING);
  }
};
ATTEST_PLUGIN(RingKernel, "ring", "1.0",
              "dtype=f64,f32,f16,bf16 features=all forward=none "
              "cache=ring cache_keys=raw,rotated splits switch=512 "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
