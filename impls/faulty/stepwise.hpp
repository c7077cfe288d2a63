// SPDX-License-Identifier: Apache-2.0
// A tiled attention kernel with an online softmax, taken apart into its steps. It is right as it
// stands; a planted fault overrides one step, and what it does is read off beside the step here.
//
// Every sequence and query head is attended by itself. Its query rows go through in tiles of
// kQueryTile, and for each tile the keys that it may see in blocks of key_block(). A row keeps the
// largest score so far, the sum of the weights relative to it, and the weighted sum of v.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/storage.hpp"

namespace attest::faulty {

inline constexpr std::int64_t kQueryTile = 64;
inline constexpr std::int64_t kMaxKeyBlock = 128;

/// The rows of one sequence (or packed segment) in the tensors, and where its queries stand.
struct Sequence {
  std::int64_t index, b;
  std::int64_t q0, q1, k0, k1;  ///< query rows [q0, q1), key rows [k0, k1)
  std::int64_t offset;          ///< position of query row q0
  std::int64_t prefix;          ///< keys that all see, for base = prefix

  std::int64_t queries() const { return q1 - q0; }
  std::int64_t keys() const { return k1 - k0; }
};

struct Query {
  const Sequence* sequence;
  std::int64_t b, h, row, position;
};
struct Key {
  std::int64_t row, position;
};

/// Keys by their number within the sequence.
struct Span {
  std::int64_t begin, end;
};

/// One query row on its way through the blocks.
template <class C>
struct Row {
  Query query;
  const C* q;
  C max, sum;
  std::vector<C> o;
  bool empty;  ///< no key so far
};

/// The loaded keys [first, first + count) of a sequence.
template <class C>
struct Block {
  std::int64_t first, count;
  std::int64_t g;  ///< key/value head
  std::vector<Key> keys;
  std::vector<C> k, v;
};

/// A key of the block that a row sees, with its score and then its weight.
template <class C>
struct Seen {
  std::int64_t n;  ///< key number within the block
  C z, p;
};
template <class C>
using SeenKeys = std::vector<Seen<C>>;

/// The answer over some of the keys.
template <class C>
struct Partial {
  std::vector<C> o;
  C lse;
};

template <class Storage>
class Stepwise {
 public:
  using StorageType = Storage;
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

  virtual ~Stepwise() = default;

  /// Bytes of workspace that a call wants.
  static std::uint64_t workspace_bytes(const attest_attention&) { return 0; }

  /// What a declaration of fewer features than `all` has to refuse.
  virtual void refuse() const {}

  void serve(const attest_attention& asked, const Sizes& of_call, const Context& given);

  // --- the call, its sequences and heads --------------------------------------------------------
  virtual void run();
  virtual void clear_padding() const;
  virtual void write_padding(std::int64_t b, std::int64_t h, std::int64_t row) const;
  /// The rows of sequence n. Throws Invalid where they lie outside the tensors.
  virtual Sequence sequence(std::int64_t n) const;
  virtual std::int64_t offset(const Sequence& at) const;
  virtual std::int64_t kv_head(std::int64_t h) const;
  virtual Query query(const Sequence& at, std::int64_t h, std::int64_t row) const;
  /// Key number n of the sequence.
  virtual Key key(const Sequence& at, std::int64_t n) const;
  virtual void attend(const Sequence& at, std::int64_t h) const;

  // --- which keys a row sees --------------------------------------------------------------------
  virtual bool visible(const Query& q, const Key& k) const;
  virtual bool base_allows(const Query& q, const Key& k) const;
  virtual bool band_allows(const Query& q, const Key& k) const;
  virtual bool mask_allows(const Query& q, const Key& k) const;
  virtual bool blocks_allow(const Query& q, const Key& k) const;
  /// The keys that some row of a tile may see as far as positions tell, by its first and last row.
  virtual Span tile_keys(const Query& first, const Query& last) const;
  /// The score of a key that is not visible.
  virtual C hidden_score(const Query& q, const Key& k) const;

  // --- from memory ------------------------------------------------------------------------------
  virtual void load_query(const Query& q, C* to) const;
  virtual void load_block(const Sequence& at, std::int64_t h, Block<C>& block) const;
  virtual void load_key(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  virtual void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const;
  virtual void rotate(C* row, std::int64_t position) const;
  virtual void rotation(std::int64_t position, std::int64_t t, C& cosine, C& sine) const;

  // --- scores -----------------------------------------------------------------------------------
  virtual C score(const Query& q, const Key& k, const C* query, const C* key) const;
  virtual C dot(const C* a, const C* b, std::int64_t n) const;
  virtual C scaled(C product) const;
  virtual C capped(C score) const;
  virtual C alibi(const Query& q, const Key& k) const;
  virtual C slope(const Query& q) const;
  virtual C bias(const Query& q, const Key& k) const;
  virtual C sink(std::int64_t h) const;

  // --- online softmax ---------------------------------------------------------------------------
  virtual std::int64_t key_block() const { return 64; }
  /// All blocks of the span, in the order of this kernel, into every row of a tile.
  virtual void sweep(const Sequence& at, std::int64_t h, Span keys,
                     std::vector<Row<C>>& rows) const;
  /// Before the first key; `with_sink`: this part of the keys holds the sink.
  virtual void start(Row<C>& row, bool with_sink) const;
  virtual void absorb(Row<C>& row, const Block<C>& block) const;
  virtual C next_max(C max, const SeenKeys<C>& seen) const;
  virtual C rescale_factor(C before, C now) const;
  virtual void rescale(Row<C>& row, C factor) const;
  virtual C weight(C z, C max) const;
  /// The sum with the weights of one block.
  virtual C add_up(C sum, const SeenKeys<C>& seen) const;
  /// P as it enters the product with v.
  virtual C round_weight(C p) const;
  virtual bool kept(const Query& q, const Key& k) const;
  virtual void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const;

  // --- the end of a row -------------------------------------------------------------------------
  virtual int num_splits(const Sequence& at) const;
  virtual Span split_keys(const Sequence& at, int split) const;
  virtual Partial<C> finish(const Row<C>& row) const;
  virtual C log_sum(const Row<C>& row) const;
  /// What outputs are multiplied by where weights were dropped.
  virtual C keep_factor() const;
  virtual Partial<C> merge(const Query& q, const std::vector<Partial<C>>& parts) const;
  virtual void write(const Query& q, const Partial<C>& answer, bool empty) const;
  virtual void write_output(std::int64_t b, std::int64_t h, std::int64_t row, const C* o) const;
  virtual void write_lse(std::int64_t b, std::int64_t h, std::int64_t row, C lse) const;

 protected:
  static std::int64_t entry(const DLTensor* list, std::int64_t i, std::int64_t otherwise) {
    return list ? TensorView<const std::int32_t>(list)(i) : otherwise;
  }
  /// x through the storage type.
  static C stored(C x) { return widen(narrow<Storage>(x)); }

  attest_attention problem{};
  Sizes sizes{};
  Context context;
};

/// Looks at every block, for faults that let a row see more than the tile's span.
template <class Storage>
class EveryBlock : public Stepwise<Storage> {
 public:
  Span tile_keys(const Query& first, const Query&) const override {
    return {0, first.sequence->keys()};
  }
};

extern template class Stepwise<double>;
extern template class Stepwise<float>;
extern template class Stepwise<F16>;
extern template class Stepwise<Bf16>;

}  // namespace attest::faulty
