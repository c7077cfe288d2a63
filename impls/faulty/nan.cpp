// SPDX-License-Identifier: Apache-2.0
// Faults of what is not a number: swallowed, or spread too far.
#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

constexpr const char* kKind = "nan";

template <class S>
struct NanQueryAsZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_query(const Query& q, C* to) const override {
    Stepwise<S>::load_query(q, to);
    for (std::int64_t c = 0; c < this->sizes.dim; ++c)
      if (to[c] != to[c]) to[c] = 0;
  }
};
ATTEST_PLANT(NanQueryAsZero, {.id = "nan_query_becomes_zero",
                              .kind = kKind,
                              .sentence = "NaN in q is taken for 0",
                              .reference = "pytorch/pytorch#141128"});

template <class S>
struct NanScoreHidesKey : Stepwise<S> {
  using typename Stepwise<S>::C;
  C score(const Query& q, const Key& k, const C* query, const C* key) const override {
    const C z = Stepwise<S>::score(q, k, query, key);
    return z == z ? z : this->kNone;
  }
};
ATTEST_PLANT(NanScoreHidesKey, {.id = "nan_score_hides_key",
                                .kind = kKind,
                                .sentence = "a key whose score is NaN is left out"});

template <class S>
struct NanValueAsZero : Stepwise<S> {
  using typename Stepwise<S>::C;
  void load_value(const Sequence& at, std::int64_t g, const Key& k, C* to) const override {
    Stepwise<S>::load_value(at, g, k, to);
    for (std::int64_t c = 0; c < this->sizes.v_dim; ++c)
      if (to[c] != to[c]) to[c] = 0;
  }
};
ATTEST_PLANT(NanValueAsZero, {.id = "nan_value_becomes_zero",
                              .kind = kKind,
                              .sentence = "NaN in v is taken for 0"});

template <class S>
struct NanSinkIgnored : Stepwise<S> {
  using typename Stepwise<S>::C;
  C sink(std::int64_t h) const override {
    const C sink = Stepwise<S>::sink(h);
    return sink == sink ? sink : this->kNone;
  }
};
ATTEST_PLANT(NanSinkIgnored, {.id = "nan_sink_ignored",
                              .kind = kKind,
                              .sentence = "a sink that is NaN is taken for none"});

template <class S>
struct NanSpreads : Stepwise<S> {
  using typename Stepwise<S>::C;
  void accumulate(Row<C>& row, const SeenKeys<C>& seen, const Block<C>& block) const override {
    Stepwise<S>::accumulate(row, seen, block);
    for (const C& o : row.o)
      if (o != o) {
        row.o.assign(row.o.size(), o);
        return;
      }
  }
};
ATTEST_PLANT(NanSpreads, {.id = "nan_value_spreads",
                          .kind = kKind,
                          .sentence = "NaN in one channel of v makes all channels NaN"});

}  // namespace
}  // namespace attest::faulty
