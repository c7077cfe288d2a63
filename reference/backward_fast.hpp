// SPDX-License-Identifier: Apache-2.0
// The fast oracle of the backward pass: gradients, certified radius and tolerance, row by row from
// what the forward oracle knows of the row. Formulas: docs/semantics.md section 5,
// docs/tolerance.md section 4.
#pragma once

#include <memory>

#include "reference/attention_fast.hpp"

namespace attest {

/// What the forward pass found out about one ordinary row. `sums` is null where no tolerance is
/// asked for.
struct ForwardFindings {
  const RowScores& row;
  const RowTerms& terms;
  const RowSums* sums;
  const ChannelSums& channels;
  const Groups& groups;
  const Head& head;
};

class BackwardOracle {
 public:
  virtual ~BackwardOracle() = default;
  /// Rows come between these two, of all query heads that share key/value head kv.
  virtual void begin_head(const Rows& rows, std::int64_t b, std::int64_t kv) = 0;
  virtual void end_head(const Rows& rows, std::int64_t b, std::int64_t kv, Expected& expected) = 0;
  virtual void add_row(const Rows& rows, const RowPlace& place, const ForwardFindings& forward,
                       Expected& expected) = 0;
  /// A row without a key, but with a sink: dLSE goes to dSink.
  virtual void add_empty_sink(const RowPlace& place) = 0;
  /// A row that is not judged by value: neither is anything that it has a part in.
  virtual void spoil(const Rows& rows, const RowPlace& place, Expected& expected) = 0;
  /// The gradients that sum over all rows: bias, slopes, sink.
  virtual void finish(Expected& expected) = 0;
};

/// All gradients 0 and exact: what no row has a part in.
void allocate_gradients(const AttentionInputs& inputs, Expected& expected);

/// In double, and in long double for f64 problems. `call` must outlive it.
std::unique_ptr<BackwardOracle> make_backward_oracle(const OracleCall& call);

}  // namespace attest
