// SPDX-License-Identifier: Apache-2.0
// concat: decoding as a framework's first version does it. The cached keys and values of a sequence
// and the new ones become one array, [keys, D] and [keys, Dv], and attention over it is the
// textbook's: all scores of a row, their softmax, the weighted sum. The new rows are then written
// into the cache.
//
// Contract: computes in f32 (f64 for f64), weights stay unrounded. A new key is rounded to the
// storage type before it is used, also where the cache holds rotated ones, so that a later call
// sees the same key. RoPE multiplies complex numbers; angles are computed in double, and an f64
// call takes the caller's factors. Splitting the keys is not served. A work item is one sequence
// and key/value head.
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/cache.hpp"
#include "impls/parallel.hpp"
#include "impls/rope_complex.hpp"
#include "impls/storage.hpp"

namespace attest {
namespace {

template <class Storage>
class Concatenation {
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

 public:
  Concatenation(const attest_attention& problem, const Sizes& sizes) : p_(problem), s_(sizes) {
    if (p_.rope)
      frequencies_ = rope_frequencies(p_.rope_dim, p_.rope_base, p_.rope_scale, p_.rope_ntk);
  }

  void run(int num_threads) const {
    parallel_for(s_.batch * s_.kv_heads, num_threads, [&](std::int64_t item) {
      const std::int64_t b = item / s_.kv_heads, g = item % s_.kv_heads;
      const CachedSequence at = cached_sequence(p_, b);
      const Keys keys = gather(at, b, g);
      store_new(keys, at, b, g);
      for (std::int64_t h = g * s_.group; h < (g + 1) * s_.group; ++h)
        for (std::int64_t i = 0; i < s_.q_len; ++i) {
          if (i < at.added)
            attend(keys, at, b, h, i);
          else
            write(b, h, i, nullptr, 1, kNone);
        }
    });
  }

 private:
  /// Positions [first, total) of one sequence and head: those that the cache still holds, and the
  /// new ones. `stored` are keys as the cache has them, `turned` as scores need them.
  struct Keys {
    std::int64_t first, total;
    std::vector<C> stored, turned, values;
  };

  Storage* cache_row(const DLTensor* cache, std::int64_t b, std::int64_t g,
                     std::int64_t position) const {
    const std::int64_t rows = cache->shape[2];
    switch (p_.cache) {
      case ATTEST_CACHE_RING: return output_row<Storage>(cache, b, g, position % rows);
      case ATTEST_CACHE_PAGED: {
        const TensorView<const std::int32_t> table(p_.block_table);
        return output_row<Storage>(cache, table(b, position / rows), g, position % rows);
      }
      default: return output_row<Storage>(cache, b, g, position);
    }
  }

  void rotate(C* row, std::int64_t position) const {
    if constexpr (std::is_same_v<C, double>) {
      const TensorView<const double> cosines(p_.rope_cos), sines(p_.rope_sin);
      rope_complex_by(row, p_.rope, p_.rope_dim, 1, [&](std::int64_t t) {
        return std::complex<double>(cosines(position - p_.rope_position, t),
                                    sines(position - p_.rope_position, t));
      });
    } else {
      rope_complex(row, p_.rope, frequencies_, position);
    }
  }

  Keys gather(const CachedSequence& at, std::int64_t b, std::int64_t g) const {
    Keys keys{0, at.total, {}, {}, {}};
    if (p_.cache == ATTEST_CACHE_RING)
      keys.first = std::max<std::int64_t>(0, at.cached - p_.k_cache->shape[2]);
    const auto count = static_cast<std::size_t>(keys.total - keys.first);
    keys.stored.resize(count * static_cast<std::size_t>(s_.dim));
    keys.values.resize(count * static_cast<std::size_t>(s_.v_dim));
    C* key = keys.stored.data();
    C* value = keys.values.data();
    for (std::int64_t j = keys.first; j < keys.total; ++j, key += s_.dim, value += s_.v_dim) {
      if (j < at.cached) {
        load_row<Storage>(cache_row(p_.k_cache, b, g, j), p_.k_cache->strides[3], s_.dim, key);
        load_row<Storage>(cache_row(p_.v_cache, b, g, j), p_.v_cache->strides[3], s_.v_dim, value);
        continue;
      }
      const std::int64_t row = j - at.cached;
      load_row(row_of<Storage>(p_.k, b, g, row), p_.k->strides[3], s_.dim, key);
      load_row(row_of<Storage>(p_.v, b, g, row), p_.v->strides[3], s_.v_dim, value);
      if (!p_.rope || !p_.cache_rotated) continue;
      rotate(key, j);
      for (std::int64_t c = 0; c < s_.dim; ++c) key[c] = rounded<Storage>(key[c]);
    }
    keys.turned = keys.stored;
    if (p_.rope && !p_.cache_rotated)
      for (std::int64_t j = keys.first; j < keys.total; ++j)
        rotate(keys.turned.data() + (j - keys.first) * s_.dim, j);
    return keys;
  }

  void store_new(const Keys& keys, const CachedSequence& at, std::int64_t b, std::int64_t g) const {
    for (std::int64_t i = 0; i < at.added; ++i) {
      const std::int64_t position = at.cached + i;
      Storage* const key = cache_row(p_.k_cache, b, g, position);
      if (p_.rope && p_.cache_rotated)
        store_row<Storage>(keys.stored.data() + (position - keys.first) * s_.dim, 1, s_.dim, key,
                           p_.k_cache->strides[3]);
      else
        copy_row(row_of<Storage>(p_.k, b, g, i), p_.k->strides[3], s_.dim, key,
                 p_.k_cache->strides[3]);
      copy_row(row_of<Storage>(p_.v, b, g, i), p_.v->strides[3], s_.v_dim,
               cache_row(p_.v_cache, b, g, position), p_.v_cache->strides[3]);
    }
  }

  /// Whether the query at position i + cached sees position j.
  bool sees(const CachedSequence& at, std::int64_t b, std::int64_t h, std::int64_t i,
            std::int64_t j) const {
    const std::int64_t ahead = j - (at.cached + i);
    if (ahead > 0 && p_.base == ATTEST_BASE_CAUSAL) return false;
    if (ahead > 0 && p_.base == ATTEST_BASE_PREFIX &&
        j >= TensorView<const std::int32_t>(p_.prefix_len)(b))
      return false;
    const bool too_old = p_.window_left >= 0 && -ahead > p_.window_left;
    const bool too_new = p_.window_right >= 0 && ahead > p_.window_right;
    if ((too_old || too_new) && j >= p_.global_tokens && at.cached + i >= p_.global_tokens)
      return false;
    if (p_.mask && TensorView<const std::uint8_t>(p_.mask).broadcast(b, h, i, j) == 0) return false;
    return !p_.blocks || TensorView<const std::uint8_t>(p_.blocks).broadcast(b, h, i / p_.block_q,
                                                                             j / p_.block_k) != 0;
  }

  C score(const CachedSequence& at, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
          C product) const {
    C alibi = 0;
    if (p_.alibi) {
      const TensorView<const C> slopes(p_.alibi_slopes);
      const std::int64_t ahead = j - (at.cached + i);
      const std::int64_t distance = p_.alibi == ATTEST_ALIBI_ABSOLUTE ? -std::abs(ahead)
                                    : p_.alibi == ATTEST_ALIBI_SIGNED ? ahead
                                                                      : j;
      alibi = (slopes.rank() == 2 ? slopes(b, h) : slopes(h)) * static_cast<C>(distance);
    }
    C z = static_cast<C>(p_.scale) * product;
    if (p_.alibi_inside_softcap) z += alibi;
    if (p_.softcap > 0) z = static_cast<C>(p_.softcap) * std::tanh(z / static_cast<C>(p_.softcap));
    if (!p_.alibi_inside_softcap) z += alibi;
    if (p_.bias) z += widen(TensorView<const Storage>(p_.bias).broadcast(b, h, i, j));
    return z;
  }

  void attend(const Keys& keys, const CachedSequence& at, std::int64_t b, std::int64_t h,
              std::int64_t i) const {
    std::vector<C> query(static_cast<std::size_t>(s_.dim));
    load_row(row_of<Storage>(p_.q, b, h, i), p_.q->strides[3], s_.dim, query.data());
    if (p_.rope) rotate(query.data(), at.cached + i);

    std::vector<C> scores;  // -inf for a key that the row does not see
    const C sink = p_.sink ? TensorView<const C>(p_.sink)(h) : kNone;
    C max = sink;
    bool empty = true;
    for (std::int64_t j = keys.first; j < keys.total; ++j) {
      scores.push_back(kNone);
      if (!sees(at, b, h, i, j)) continue;
      const C* const key = keys.turned.data() + (j - keys.first) * s_.dim;
      C product = 0;
      for (std::int64_t c = 0; c < s_.dim; ++c)
        product += query[static_cast<std::size_t>(c)] * key[c];
      const C z = scores.back() = score(at, b, h, i, j, product);
      if (z > max) max = z;
      if (z != kNone) empty = false;  // also where it is NaN, which then comes out below
    }
    if (empty) return write(b, h, i, nullptr, 1, sink);

    C sum = std::exp(sink - max);
    std::vector<C> output(static_cast<std::size_t>(s_.v_dim), C{0});
    for (std::size_t n = 0; n < scores.size(); ++n) {
      if (scores[n] == kNone) continue;  // 0 * NaN would let an unseen value through
      const C weight = std::exp(scores[n] - max);
      sum += weight;
      for (std::size_t c = 0; c < output.size(); ++c)
        output[c] += weight * keys.values[n * output.size() + c];
    }
    write(b, h, i, output.data(), sum, max + std::log(sum));
  }

  /// o = output / sum, or 0 where output is null.
  void write(std::int64_t b, std::int64_t h, std::int64_t i, const C* output, C sum, C lse) const {
    Storage* const to = output_row<Storage>(p_.o, b, h, i);
    for (std::int64_t c = 0; c < s_.v_dim; ++c)
      to[c * p_.o->strides[3]] = narrow<Storage>(output ? output[c] / sum : C{0});
    if (p_.lse) TensorView<C>(p_.lse)(b, h, i) = lse;
  }

  const attest_attention& p_;
  const Sizes s_;
  std::vector<double> frequencies_;
};

class ConcatKernel : public Kernel {
  void decode(const attest_attention& problem, const Context& context) override {
    if (problem.num_splits > 0) throw Unsupported("splits are not served");
    const Sizes sizes =
        read_cache_sizes(problem, {ATTEST_CACHE_CONTIGUOUS, ATTEST_CACHE_RING, ATTEST_CACHE_PAGED});
    with_storage(sizes.dtype, [&](auto storage) {
      Concatenation<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
};
ATTEST_PLUGIN(ConcatKernel, "concat", "1.0",
              "dtype=f64,f32,f16,bf16 features=all forward=none "
              "cache=contiguous,ring,paged cache_keys=raw,rotated "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest
