// SPDX-License-Identifier: Apache-2.0
// Decoding with a cache, taken apart as the forward pass is: the stepwise kernel on keys that lie
// in two places. It is right as it stands; a planted fault overrides one step here, or one of those
// that it shares with forward.
//
// A sequence's keys are numbered by their positions: the cached ones first, then those of the call.
// The call is refused as a whole, or its rows are written behind the cached ones and every query
// attends. Cached rows are read from the cache, new ones from k and v, so it does not matter which
// comes first. Of the cache only rows that hold a position are read: what lies in the others is
// junk.
#pragma once

#include <cstdint>
#include <vector>

#include "impls/faulty/stepwise.hpp"

namespace attest::faulty {

/// A row of a cache: of a batch entry, or of a page.
struct Slot {
  std::int64_t entry, row;
};

/// The sizes of a decode call, checked against every tensor it carries. kv_len is the length of the
/// longest sequence after the call.
Sizes read_decode_sizes(const attest_attention& problem);

template <class Storage>
class StepwiseDecode : public Stepwise<Storage> {
 public:
  using C = Compute<Storage>;

  void serve_decode(const attest_attention& asked, const Sizes& of_call, const Context& given);

  // --- the call and its sequences ---------------------------------------------------------------
  void refuse() const override;
  virtual void run_decode();
  /// Rows of sequence b in its cache, and those that come with the call.
  virtual std::int64_t cache_len(std::int64_t b) const;
  virtual std::int64_t new_rows(std::int64_t b) const;
  /// Key rows are positions; the first query stands behind the cached ones.
  Sequence sequence(std::int64_t n) const override;
  /// Throws Invalid before anything is written.
  virtual void check_fits() const;
  virtual bool fits(const Sequence& at) const;
  virtual bool fits_ring(const Sequence& at) const;
  /// Rows that the cache of a sequence has.
  virtual std::int64_t capacity() const;

  // --- where a position lies --------------------------------------------------------------------
  virtual Slot slot(const Sequence& at, std::int64_t position) const;
  virtual Slot ring_slot(const Sequence& at, std::int64_t position) const;
  virtual Slot page_slot(const Sequence& at, std::int64_t position) const;
  /// The page that holds the rows of number `index` of a sequence.
  virtual std::int64_t page(std::int64_t b, std::int64_t index) const;
  virtual Storage* cache_row(const DLTensor* cache, const Slot& at, std::int64_t g) const;

  // --- append -----------------------------------------------------------------------------------
  virtual void append_all() const;
  virtual void append(const Sequence& at) const;
  /// New row i of a sequence.
  virtual void append_row(const Sequence& at, std::int64_t i) const;
  virtual void append_head(const Sequence& at, std::int64_t g, std::int64_t i) const;
  virtual Slot append_slot(const Sequence& at, std::int64_t i) const;
  virtual std::vector<Storage> stored_key(const Sequence& at, std::int64_t g, std::int64_t i) const;
  virtual std::vector<Storage> stored_value(const Sequence& at, std::int64_t g,
                                            std::int64_t i) const;
  virtual void turn_stored_key(const Sequence& at, std::int64_t i, C* key) const;
  virtual void put(const DLTensor* cache, const Slot& to, std::int64_t g,
                   const std::vector<Storage>& row) const;

  // --- from memory ------------------------------------------------------------------------------
  void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const override;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override;
  virtual bool from_cache(const Sequence& at, const Key& k) const;
  virtual Slot load_slot(const Sequence& at, const Key& k) const;
  virtual void load_cached_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  virtual void load_cached_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  virtual void load_new_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  virtual void load_new_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  /// To their positions: a key that the cache holds as it was given, and a new one.
  virtual void turn_cached_key(const Sequence& at, const Key& k, C* key) const;
  virtual void turn_new_key(const Sequence& at, const Key& k, C* key) const;

  // --- splits -----------------------------------------------------------------------------------
  int num_splits(const Sequence& at) const override;
  /// Where the caller leaves it to the kernel.
  virtual int splits_by_default(const Sequence& at) const;

 protected:
  using Stepwise<Storage>::problem;
  using Stepwise<Storage>::sizes;

  bool ring() const { return problem.cache == ATTEST_CACHE_RING; }
  bool paged() const { return problem.cache == ATTEST_CACHE_PAGED; }
  /// Whether a new key is turned before it is stored.
  bool stores_rotated() const { return problem.rope && problem.cache_rotated; }
  /// Rows of an entry or page.
  std::int64_t entry_rows() const { return problem.k_cache->shape[2]; }
  /// Positions after the call.
  static std::int64_t end(const Sequence& at) { return at.offset + at.queries(); }
  /// What the list of cached lengths says.
  std::int64_t cached(std::int64_t b) const { return this->entry(problem.cache_len, b, 0); }
};

extern template class StepwiseDecode<double>;
extern template class StepwiseDecode<float>;
extern template class StepwiseDecode<F16>;
extern template class StepwiseDecode<Bf16>;

}  // namespace attest::faulty
