// SPDX-License-Identifier: Apache-2.0
// paged: a pool of pages of page_size rows, position p of sequence b in row p mod page_size of page
// block_table[b][p / page_size]. Pages stand in any order, and sequences may share full ones.
//
// Contract: impls/decode.hpp. Computes in f32 (f64 for f64); weights stay unrounded. A new key is
// rounded to the storage type before it is used. RoPE comes from the caller's tables. Without
// num_splits a sequence has a part for each 512 keys begun; a work item is one sequence, key/value
// head, 16 new rows and part.
#include "attest/plugin.hpp"
#include "impls/decode.hpp"

namespace attest {
namespace {

class PagedRows {
 public:
  explicit PagedRows(const attest_attention& p)
      : table_(p.block_table), page_size_(p.k_cache->shape[2]) {}
  std::int64_t oldest(std::int64_t) const { return 0; }
  template <class Storage>
  Storage* row(const DLTensor* cache, std::int64_t b, std::int64_t g, std::int64_t position) const {
    return output_row<Storage>(cache, table_(b, position / page_size_), g, position % page_size_);
  }

 private:
  TensorView<const std::int32_t> table_;
  std::int64_t page_size_;
};

class PagedKernel : public Kernel {
  void decode(const attest_attention& problem, const Context& context) override {
    decode::run<PagedRows>(problem, context, ATTEST_CACHE_PAGED);
  }
};
ATTEST_PLUGIN(PagedKernel, "paged", "1.0",
              "dtype=f64,f32,f16,bf16 features=all forward=none "
              "cache=paged cache_keys=raw,rotated splits switch=512 "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
