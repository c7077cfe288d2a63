// SPDX-License-Identifier: Apache-2.0
// contiguous: a cache that is allocated once, position p of a sequence in its row p. New rows are
// written behind the old ones, and nothing else moves.
//
// Contract: impls/decode.hpp. Computes in f32 (f64 for f64); weights stay unrounded. A new key is
// rounded to the storage type before it is used. RoPE comes from the caller's tables. Without
// num_splits a sequence has a part for each 512 keys begun; a work item is one sequence, key/value
// head, 16 new rows and part.
#include "attest/plugin.hpp"
#include "impls/decode.hpp"

namespace attest {
namespace {

class ContiguousRows {
 public:
  explicit ContiguousRows(const attest_attention&) {}
  std::int64_t oldest(std::int64_t) const { return 0; }
  template <class Storage>
  Storage* row(const DLTensor* cache, std::int64_t b, std::int64_t g, std::int64_t position) const {
    return output_row<Storage>(cache, b, g, position);
  }
};

class ContiguousKernel : public Kernel {
  void decode(const attest_attention& problem, const Context& context) override {
    decode::run<ContiguousRows>(problem, context, ATTEST_CACHE_CONTIGUOUS);
  }
};
ATTEST_PLUGIN(ContiguousKernel, "contiguous", "1.0",
              "dtype=f64,f32,f16,bf16 features=all forward=none "
              "cache=contiguous cache_keys=raw,rotated splits switch=512 "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
