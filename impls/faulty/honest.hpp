// SPDX-License-Identifier: Apache-2.0
// Honest kernels of other styles that faults start from too.
#pragma once

#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {

/// The keys of a sequence in four parts, merged through their lse.
template <class S>
class Split4 : public Stepwise<S> {
 public:
  int num_splits(const Sequence&) const override { return 4; }
};

/// Blocks of eight keys: the running maximum moves often.
template <class S>
class Block8 : public Stepwise<S> {
 public:
  std::int64_t key_block() const override { return 8; }
};

}  // namespace attest::faulty
