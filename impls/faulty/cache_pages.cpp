// SPDX-License-Identifier: Apache-2.0
// Faults of block tables and pages.
#include <algorithm>
#include <vector>

#include "impls/faulty/catalogue.hpp"
#include "impls/faulty/decode_longer.hpp"
#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "cache pages";

template <class S>
struct CachePagesInOrder : StepwiseDecode<S> {
  std::int64_t page(std::int64_t b, std::int64_t index) const override {
    return b * this->problem.block_table->shape[1] + index;
  }
};
ATTEST_PLANT(CachePagesInOrder,
             {.id = "page_table_row_ignored",
              .kind = kKind,
              .sentence = "the table is not read: pages are taken to lie in order",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheTableOfFirst : StepwiseDecode<S> {
  std::int64_t page(std::int64_t, std::int64_t index) const override {
    return StepwiseDecode<S>::page(0, index);
  }
};
ATTEST_PLANT(CacheTableOfFirst, {.id = "page_table_of_sequence_0",
                                 .kind = kKind,
                                 .sentence = "every sequence uses the table's row of sequence 0",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheTableStride : StepwiseDecode<S> {
  std::int64_t page(std::int64_t b, std::int64_t index) const override {
    const DLTensor& table = *this->problem.block_table;
    const std::int64_t rows = this->entry_rows();
    const std::int64_t used = (this->sizes.kv_len + rows - 1) / rows;
    const std::int64_t n = std::min(b * used + index, table.shape[0] * table.shape[1] - 1);
    return StepwiseDecode<S>::page(n / table.shape[1], n % table.shape[1]);
  }
};
ATTEST_PLANT(CacheTableStride,
             {.id = "page_table_stride_of_used_pages",
              .kind = kKind,
              .sentence = "rows of the table are taken to be as long as the longest sequence needs",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CachePageStride : StepwiseDecode<S> {
  S* cache_row(const DLTensor* cache, const Slot& at, std::int64_t g) const override {
    if (!this->paged()) return StepwiseDecode<S>::cache_row(cache, at, g);
    const std::int64_t page = std::min(at.entry, cache->shape[0] - 1);
    return StepwiseDecode<S>::cache_row(cache, {0, at.row}, g) +
           page * std::min(cache->strides[0], cache->shape[2] * cache->strides[2]);
  }
};
ATTEST_PLANT(CachePageStride, {.id = "page_stride_wrong",
                               .kind = kKind,
                               .sentence = "a page is taken to be as large as the rows of one head",
                               .reference = "NVIDIA/TensorRT-LLM#18244",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CachePageHeadsInner : StepwiseDecode<S> {
  S* cache_row(const DLTensor* cache, const Slot& at, std::int64_t g) const override {
    const std::int64_t heads = cache->shape[1], rows = cache->shape[2];
    if (!this->paged() || cache->strides[1] != rows * cache->strides[2])
      return StepwiseDecode<S>::cache_row(cache, at, g);
    const std::int64_t n = at.row * heads + g;
    return StepwiseDecode<S>::cache_row(cache, {at.entry, n % rows}, n / rows);
  }
};
ATTEST_PLANT(CachePageHeadsInner,
             {.id = "page_heads_taken_as_inner",
              .kind = kKind,
              .sentence = "pages are taken to hold rows of all heads, [page_size, Hkv, D]",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CachePageBoundary : StepwiseDecode<S> {
  Slot page_slot(const Sequence& at, std::int64_t position) const override {
    const std::int64_t rows = this->entry_rows();
    return {this->page(at.b, std::max<std::int64_t>(0, position - 1) / rows), position % rows};
  }
};
ATTEST_PLANT(CachePageBoundary,
             {.id = "page_index_off_at_boundary",
              .kind = kKind,
              .sentence = "the first row of a page is looked for in the page before",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheAppendBoundary : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    const std::int64_t position = at.offset + i, rows = this->entry_rows();
    if (!this->paged() || position == 0) return this->slot(at, position);
    return {this->page(at.b, (position - 1) / rows), position % rows};
  }
};
ATTEST_PLANT(CacheAppendBoundary,
             {.id = "append_into_full_page",
              .kind = kKind,
              .sentence = "a row that starts a page is written into the full page before",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CachePowerOfTwo : StepwiseDecode<S> {
  Slot page_slot(const Sequence& at, std::int64_t position) const override {
    std::int64_t shift = 0;
    while (this->entry_rows() >> (shift + 1)) ++shift;
    return {this->page(at.b, position >> shift), position & (this->entry_rows() - 1)};
  }
};
ATTEST_PLANT(CachePowerOfTwo, {.id = "page_size_taken_as_power_of_two",
                               .kind = kKind,
                               .sentence = "positions are cut into page and row by shift and mask",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CachePageOf16 : StepwiseDecode<S> {
  Slot page_slot(const Sequence& at, std::int64_t position) const override {
    const std::int64_t rows = std::min<std::int64_t>(16, this->entry_rows());
    return {this->page(at.b, position / rows), position % rows};
  }
};
ATTEST_PLANT(CachePageOf16,
             {.id = "page_size_taken_as_16",
              .kind = kKind,
              .sentence = "pages are taken to have 16 rows, as long as they have no more",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheTailZeroed : StepwiseDecode<S> {
  void append(const Sequence& at) const override {
    StepwiseDecode<S>::append(at);
    if (!this->paged() || at.queries() == 0) return;
    for (std::int64_t p = this->end(at); p % this->entry_rows() != 0; ++p)
      for (const DLTensor* cache : {this->problem.k_cache, this->problem.v_cache})
        for (std::int64_t g = 0; g < this->sizes.kv_heads; ++g)
          this->put(cache, this->slot(at, p), g,
                    std::vector<S>(static_cast<std::size_t>(cache->shape[3])));
  }
};
ATTEST_PLANT(CacheTailZeroed, {.id = "append_zeroes_page_tail",
                               .kind = kKind,
                               .sentence = "the rest of the last page is set to 0",
                               .base = "decode",
                               .declares = kDecode});

template <class S>
struct CacheTailAttended : DecodeLonger<S> {
  std::int64_t extra(const Sequence& at) const override {
    if (!this->paged()) return 0;
    const std::int64_t rows = this->entry_rows();
    return (rows - this->end(at) % rows) % rows;
  }
};
ATTEST_PLANT(CacheTailAttended, {.id = "page_tail_attended",
                                 .kind = kKind,
                                 .sentence = "the last page is attended to its end",
                                 .base = "decode",
                                 .declares = kDecode});

template <class S>
struct CacheTailTimesZero : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    StepwiseDecode<S>::accumulate(row, seen, block);
    const Sequence& at = *row.query.sequence;
    if (!this->paged() || block.first + block.count != at.k1) return;
    std::vector<C> value(row.o.size());
    for (std::int64_t p = at.k1; p % this->entry_rows() != 0; ++p) {
      this->load_cached_value(at, block.g, {p, p}, value.data());
      for (std::size_t c = 0; c < row.o.size(); ++c) row.o[c] += C{0} * value[c];
    }
  }
};
ATTEST_PLANT(CacheTailTimesZero, {.id = "page_tail_times_zero",
                                  .kind = kKind,
                                  .sentence = "values of the last page's tail are multiplied by 0",
                                  .reference = "vllm-project/vllm#936",
                                  .base = "decode",
                                  .declares = kDecode});

template <class S>
struct CachePartialLost : StepwiseDecode<S> {
  bool visible(const Query& q, const Key& k) const override {
    const std::int64_t cached = q.sequence->offset;
    const bool lost = this->paged() && k.position < cached &&
                      k.position >= cached / this->entry_rows() * this->entry_rows();
    return !lost && StepwiseDecode<S>::visible(q, k);
  }
};
ATTEST_PLANT(CachePartialLost,
             {.id = "partial_page_not_attended",
              .kind = kKind,
              .sentence = "cached keys in a page that was not full are not attended",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CachePageOfChunk : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    const std::int64_t rows = this->entry_rows();
    if (!this->paged()) return this->slot(at, at.offset + i);
    return {this->page(at.b, i / rows), (at.offset + i) % rows};
  }
};
ATTEST_PLANT(CachePageOfChunk, {.id = "append_page_by_chunk_row",
                                .kind = kKind,
                                .sentence = "the page of a new row is found by its row in the call",
                                .base = "decode",
                                .declares = kDecode});

template <class S>
struct CacheChunkInOnePage : StepwiseDecode<S> {
  Slot append_slot(const Sequence& at, std::int64_t i) const override {
    const Slot slot = this->slot(at, at.offset + i);
    return this->paged() ? Slot{this->slot(at, at.offset).entry, slot.row} : slot;
  }
};
ATTEST_PLANT(CacheChunkInOnePage,
             {.id = "append_never_changes_page",
              .kind = kKind,
              .sentence = "a chunk stays in the page of its first row, and starts that anew",
              .base = "decode",
              .declares = kDecode});

template <class S>
struct CacheValuePage : StepwiseDecode<S> {
  using typename Stepwise<S>::C;
  void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    const std::int64_t rows = this->entry_rows();
    Key before = k;
    if (this->paged() && k.position >= rows) before.position -= rows;
    StepwiseDecode<S>::load_cached_value(at, g, before, to);
  }
};
ATTEST_PLANT(CacheValuePage, {.id = "v_page_of_previous_entry",
                              .kind = kKind,
                              .sentence = "pages of values are found one table entry too early",
                              .base = "decode",
                              .declares = kDecode});

}  // namespace
}  // namespace attest::faulty
