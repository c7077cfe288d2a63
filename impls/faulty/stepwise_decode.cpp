// SPDX-License-Identifier: Apache-2.0
#include "impls/faulty/stepwise_decode.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace attest::faulty {
namespace {

void check_cache(const attest_attention& p, const Sizes& s) {
  const DLDataType data = dl_dtype(s.dtype);
  if (p.k_cache->ndim != 4) throw Invalid("k_cache has four axes");
  const std::int64_t entries = p.k_cache->shape[0], rows = p.k_cache->shape[2];
  if (p.cache != ATTEST_CACHE_PAGED && entries != s.batch)
    throw Invalid("k_cache has another batch than q");
  if (p.cache != ATTEST_CACHE_CONTIGUOUS && rows < 1) throw Invalid("a page or ring without a row");
  check_tensor(p.k_cache, "k_cache", data, {entries, s.kv_heads, rows, s.dim});
  check_tensor(p.v_cache, "v_cache", data, {entries, s.kv_heads, rows, s.v_dim});
  check_tensor(p.cache_len, "cache_len", kDlInt32, {s.batch});
  if (!p.block_table) return;
  if (p.block_table->ndim != 2) throw Invalid("block_table has two axes");
  check_tensor(p.block_table, "block_table", kDlInt32, {s.batch, p.block_table->shape[1]});
}

/// Positions of the longest sequence after the call.
std::int64_t longest(const attest_attention& p, const Sizes& s) {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const std::int64_t cached = TensorView<const std::int32_t>(p.cache_len)(b);
    const std::int64_t rows =
        p.seqlens_q ? TensorView<const std::int32_t>(p.seqlens_q)(b) : s.q_len;
    if (cached < 0) throw Invalid("cache_len of sequence " + std::to_string(b) + " is negative");
    if (rows < 0 || rows > s.q_len)
      throw Invalid("new rows of sequence " + std::to_string(b) + " lie outside q");
    longest = std::max(longest, cached + rows);
  }
  return longest;
}

/// Tensors over pairs have an entry for every position, or one for all.
void check_pairs(const attest_attention& p, const Sizes& s) {
  const auto check = [&](const DLTensor* t, const char* name, DLDataType type, std::int64_t rows,
                         std::int64_t keys) {
    if (!t) return;
    if (t->ndim != 4) throw Invalid(std::string(name) + " has the wrong rank");
    check_tensor(t, name, type, {s.batch, s.heads, rows, t->shape[3]}, true);
    if (t->shape[3] != 1 && t->shape[3] < keys)
      throw Invalid(std::string(name) + " ends before the last position");
  };
  check(p.bias, "bias", dl_dtype(s.dtype), s.q_len, s.kv_len);
  check(p.mask, "mask", kDlUint8, s.q_len, s.kv_len);
  if (!p.blocks) return;
  if (p.block_q < 1 || p.block_k < 1) throw Invalid("blocks without block_q, block_k");
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); };
  check(p.blocks, "blocks", kDlUint8, ceil_div(s.q_len, p.block_q), ceil_div(s.kv_len, p.block_k));
}

/// Faults may name pages and rows that do not exist. Which one they name is the mistake that is
/// planted, so they stay within the tensors.
std::int64_t within(std::int64_t index, std::int64_t extent) {
  return std::max<std::int64_t>(0, std::min(index, extent - 1));
}

/// The bits as they are: NaN has more than one pattern.
template <class S>
std::vector<S> copied(const DLTensor* t, std::int64_t b, std::int64_t g, std::int64_t row) {
  std::vector<S> copy(static_cast<std::size_t>(t->shape[3]));
  const S* const from = row_of<S>(t, b, g, row);
  for (std::size_t c = 0; c < copy.size(); ++c)
    copy[c] = from[static_cast<std::int64_t>(c) * t->strides[3]];
  return copy;
}

}  // namespace

Sizes read_decode_sizes(const attest_attention& p) {
  // As a forward call on the new rows alone, but for the tensors that have an axis of positions.
  attest_attention rows = p;
  rows.bias = rows.mask = rows.blocks = nullptr;
  Sizes s = read_sizes(rows);
  if (s.kv_len != s.q_len) throw Invalid("k has another number of new rows than q");
  check_cache(p, s);
  s.kv_len = longest(p, s);
  check_pairs(p, s);
  return s;
}

template <class S>
void StepwiseDecode<S>::serve_decode(const attest_attention& asked, const Sizes& of_call,
                                     const Context& given) {
  problem = asked;
  sizes = of_call;
  this->context = given;
  refuse();
  run_decode();
}

template <class S>
void StepwiseDecode<S>::refuse() const {
  for (const auto& [asked, name] :
       {std::pair{problem.cu_seqlens_q, "cu_seqlens_q"},
        std::pair{problem.left_pad_q, "left_pad_q"}, std::pair{problem.left_pad_k, "left_pad_k"},
        std::pair{problem.seqlens_k, "seqlens_k"}, std::pair{problem.q_offset, "q_offset"},
        std::pair{problem.keep, "keep"}})
    if (asked) throw Unsupported(std::string(name) + " is not served with a cache");
  if (problem.dropout_p != 0) throw Unsupported("dropout is not served with a cache");
}

template <class S>
void StepwiseDecode<S>::run_decode() {
  check_fits();
  append_all();
  this->run();
}

template <class S>
std::int64_t StepwiseDecode<S>::cache_len(std::int64_t b) const {
  return cached(b);
}

template <class S>
std::int64_t StepwiseDecode<S>::new_rows(std::int64_t b) const {
  return this->entry(problem.seqlens_q, b, sizes.q_len);
}

template <class S>
Sequence StepwiseDecode<S>::sequence(std::int64_t n) const {
  Sequence at{};
  at.index = at.b = n;
  at.offset = cache_len(n);
  at.q1 = new_rows(n);
  at.k1 = end(at);
  at.prefix = this->entry(problem.prefix_len, n, 0);
  return at;
}

template <class S>
void StepwiseDecode<S>::check_fits() const {
  for (std::int64_t b = 0; b < sizes.batch; ++b)
    if (!fits(sequence(b)))
      throw Invalid("the new rows of sequence " + std::to_string(b) + " do not fit its cache");
}

template <class S>
bool StepwiseDecode<S>::fits(const Sequence& at) const {
  return end(at) <= capacity() || (ring() && fits_ring(at));
}

template <class S>
bool StepwiseDecode<S>::fits_ring(const Sequence& at) const {
  // What the new rows overwrite must be out of the sight of them all.
  return problem.window_left >= 0 && problem.global_tokens == 0 &&
         problem.window_left <= capacity() - at.queries();
}

template <class S>
std::int64_t StepwiseDecode<S>::capacity() const {
  return paged() ? problem.block_table->shape[1] * entry_rows() : entry_rows();
}

// --- where a position lies
// ------------------------------------------------------------------------

template <class S>
Slot StepwiseDecode<S>::slot(const Sequence& at, std::int64_t position) const {
  if (ring()) return ring_slot(at, position);
  if (paged()) return page_slot(at, position);
  return {at.b, position};
}

template <class S>
Slot StepwiseDecode<S>::ring_slot(const Sequence& at, std::int64_t position) const {
  return {at.b, position % entry_rows()};
}

template <class S>
Slot StepwiseDecode<S>::page_slot(const Sequence& at, std::int64_t position) const {
  return {page(at.b, position / entry_rows()), position % entry_rows()};
}

template <class S>
std::int64_t StepwiseDecode<S>::page(std::int64_t b, std::int64_t index) const {
  return TensorView<const std::int32_t>(problem.block_table)(
      b, within(index, problem.block_table->shape[1]));
}

template <class S>
S* StepwiseDecode<S>::cache_row(const DLTensor* cache, const Slot& at, std::int64_t g) const {
  return output_row<S>(cache, within(at.entry, cache->shape[0]), g,
                       within(at.row, cache->shape[2]));
}

// --- append
// ---------------------------------------------------------------------------------------

template <class S>
void StepwiseDecode<S>::append_all() const {
  for (std::int64_t b = 0; b < sizes.batch; ++b) append(sequence(b));
}

template <class S>
void StepwiseDecode<S>::append(const Sequence& at) const {
  for (std::int64_t i = 0; i < at.queries(); ++i) append_row(at, i);
}

template <class S>
void StepwiseDecode<S>::append_row(const Sequence& at, std::int64_t i) const {
  for (std::int64_t g = 0; g < sizes.kv_heads; ++g) append_head(at, g, i);
}

template <class S>
void StepwiseDecode<S>::append_head(const Sequence& at, std::int64_t g, std::int64_t i) const {
  const Slot to = append_slot(at, i);
  put(problem.k_cache, to, g, stored_key(at, g, i));
  put(problem.v_cache, to, g, stored_value(at, g, i));
}

template <class S>
Slot StepwiseDecode<S>::append_slot(const Sequence& at, std::int64_t i) const {
  return slot(at, at.offset + i);
}

template <class S>
std::vector<S> StepwiseDecode<S>::stored_key(const Sequence& at, std::int64_t g,
                                             std::int64_t i) const {
  std::vector<S> row = copied<S>(problem.k, at.b, g, i);
  if (!stores_rotated()) return row;
  std::vector<C> key(row.size());
  load_row(row.data(), 1, sizes.dim, key.data());
  turn_stored_key(at, i, key.data());
  store_row(key.data(), C{1}, sizes.dim, row.data(), 1);
  return row;
}

template <class S>
std::vector<S> StepwiseDecode<S>::stored_value(const Sequence& at, std::int64_t g,
                                               std::int64_t i) const {
  return copied<S>(problem.v, at.b, g, i);
}

template <class S>
void StepwiseDecode<S>::turn_stored_key(const Sequence& at, std::int64_t i, C* key) const {
  this->rotate(key, at.offset + i);
}

template <class S>
void StepwiseDecode<S>::put(const DLTensor* cache, const Slot& to, std::int64_t g,
                            const std::vector<S>& row) const {
  S* const at = cache_row(cache, to, g);
  for (std::size_t c = 0; c < row.size(); ++c)
    at[static_cast<std::int64_t>(c) * cache->strides[3]] = row[c];
}

// --- from memory
// ----------------------------------------------------------------------------------

template <class S>
void StepwiseDecode<S>::load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const {
  if (from_cache(at, k))
    load_cached_key(at, g, k, to);
  else
    load_new_key(at, g, k, to);
}

template <class S>
void StepwiseDecode<S>::load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const {
  if (from_cache(at, k))
    load_cached_value(at, g, k, to);
  else
    load_new_value(at, g, k, to);
}

template <class S>
bool StepwiseDecode<S>::from_cache(const Sequence& at, const Key& k) const {
  return k.position < at.offset;
}

template <class S>
Slot StepwiseDecode<S>::load_slot(const Sequence& at, const Key& k) const {
  return slot(at, k.position);
}

template <class S>
void StepwiseDecode<S>::load_cached_key(const Sequence& at, std::int64_t g, const Key& k,
                                        C* to) const {
  load_row<S>(cache_row(problem.k_cache, load_slot(at, k), g), problem.k_cache->strides[3],
              sizes.dim, to);
  if (problem.rope && !problem.cache_rotated) turn_cached_key(at, k, to);
}

template <class S>
void StepwiseDecode<S>::load_cached_value(const Sequence& at, std::int64_t g, const Key& k,
                                          C* to) const {
  load_row<S>(cache_row(problem.v_cache, load_slot(at, k), g), problem.v_cache->strides[3],
              sizes.v_dim, to);
}

template <class S>
void StepwiseDecode<S>::load_new_key(const Sequence& at, std::int64_t g, const Key& k,
                                     C* to) const {
  load_row(row_of<S>(problem.k, at.b, g, within(k.position - at.offset, sizes.q_len)),
           problem.k->strides[3], sizes.dim, to);
  if (problem.rope) turn_new_key(at, k, to);
}

template <class S>
void StepwiseDecode<S>::load_new_value(const Sequence& at, std::int64_t g, const Key& k,
                                       C* to) const {
  load_row(row_of<S>(problem.v, at.b, g, within(k.position - at.offset, sizes.q_len)),
           problem.v->strides[3], sizes.v_dim, to);
}

template <class S>
void StepwiseDecode<S>::turn_cached_key(const Sequence&, const Key& k, C* key) const {
  this->rotate(key, k.position);
}

template <class S>
void StepwiseDecode<S>::turn_new_key(const Sequence&, const Key& k, C* key) const {
  this->rotate(key, k.position);
}

// --- splits
// ---------------------------------------------------------------------------------------

template <class S>
int StepwiseDecode<S>::num_splits(const Sequence& at) const {
  if (problem.num_splits < 1) return splits_by_default(at);
  return static_cast<int>(std::min(problem.num_splits, std::max<std::int64_t>(1, at.keys())));
}

template <class S>
int StepwiseDecode<S>::splits_by_default(const Sequence&) const {
  return 1;
}

template class StepwiseDecode<double>;
template class StepwiseDecode<float>;
template class StepwiseDecode<F16>;
template class StepwiseDecode<Bf16>;

}  // namespace attest::faulty
