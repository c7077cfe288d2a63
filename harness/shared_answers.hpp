// SPDX-License-Identifier: Apache-2.0
// What many kernels are asked with one seed: the values and the oracle's answers of problems, made
// once for all of them.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "attest/declaration.hpp"
#include "attest/inputs.hpp"
#include "reference/expected.hpp"

namespace attest {

/// Kernels of one selftest meet the same problems, and half of the time of a run on an honest one
/// goes into values, oracle and audit. Keeps what was asked for last, up to `most_bytes`.
/// Threads may ask at the same time; who asks for what another is computing waits for it.
class SharedAnswers {
 public:
  explicit SharedAnswers(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  std::shared_ptr<const AttentionInputs> inputs(const AttentionProblem& problem);
  /// Tolerances follow the declared precision.
  std::shared_ptr<const Expected> expected(const AttentionProblem& problem,
                                           const PrecisionProfile& profile);
  /// On values other than the problem's own.
  std::shared_ptr<const Expected> expected(const AttentionProblem& problem,
                                           const AttentionInputs& inputs,
                                           const PrecisionProfile& profile);
  /// True for the first who asks while the answer is kept: one audit of it is enough.
  bool claim_audit(const AttentionProblem& problem, const PrecisionProfile& profile);

  std::size_t held_bytes() const;

 private:
  /// A case line, and a hash of values that are not its own; with the precision, the answer. Apart,
  /// so that what a kernel of a rare precision asked for is forgotten before what most share.
  struct Key {
    std::string line;
    std::optional<PrecisionProfile> profile;
    bool operator==(const Key&) const = default;
  };
  struct HashLine {
    std::size_t operator()(const Key& key) const { return std::hash<std::string>{}(key.line); }
  };
  struct Entry {
    explicit Entry(Key its_key) : key(std::move(its_key)) {}
    const Key key;
    std::mutex mutex;  ///< of what is computed: one of the two
    std::shared_ptr<const AttentionInputs> inputs;
    std::shared_ptr<const Expected> expected;
    bool audited = false;
    std::size_t bytes = 0;  ///< under the mutex of all
  };
  using Order = std::list<std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> find(Key key);
  template <class Compute>
  std::shared_ptr<const Expected> answer(Key key, const Compute& compute);
  void keep(const std::shared_ptr<Entry>& entry, std::size_t bytes);

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::size_t held_ = 0;
  Order order_;  ///< last asked for first
  std::unordered_map<Key, Order::iterator, HashLine> places_;
};

}  // namespace attest
