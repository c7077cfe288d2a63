// SPDX-License-Identifier: Apache-2.0
// For faults of caches: rows that hold no position, attended as if they did.
#pragma once

#include <algorithm>

#include "impls/faulty/stepwise_decode.hpp"

namespace attest::faulty {

/// Attends to extra() rows behind the last key of a sequence. Nothing masks them.
template <class S>
class DecodeLonger : public StepwiseDecode<S> {
 public:
  using typename Stepwise<S>::C;
  virtual std::int64_t extra(const Sequence& at) const = 0;

  Sequence sequence(std::int64_t n) const override {
    Sequence at = StepwiseDecode<S>::sequence(n);
    at.k1 += std::max<std::int64_t>(0, extra(at));
    return at;
  }
  Span tile_keys(const Query& first, const Query& last) const override {
    const Span span = StepwiseDecode<S>::tile_keys(first, last);
    return {std::min(span.begin, this->end(*first.sequence)), first.sequence->k1};
  }
  bool visible(const Query& q, const Key& k) const override {
    return is_extra(*q.sequence, k) || StepwiseDecode<S>::visible(q, k);
  }
  C bias(const Query& q, const Key& k) const override {
    return is_extra(*q.sequence, k) ? C{0} : StepwiseDecode<S>::bias(q, k);
  }
  bool from_cache(const Sequence& at, const Key& k) const override {
    return is_extra(at, k) || StepwiseDecode<S>::from_cache(at, k);
  }

 private:
  bool is_extra(const Sequence& at, const Key& k) const { return k.position >= this->end(at); }
};

}  // namespace attest::faulty
