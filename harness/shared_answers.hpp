// SPDX-License-Identifier: Apache-2.0
// What many kernels are asked with one seed: the values and the oracle's answers of problems, made
// once for all of them.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

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
  struct Answer {
    PrecisionProfile profile;
    std::shared_ptr<const Expected> expected;
    bool audited = false;
  };
  struct Entry {
    explicit Entry(std::string name) : key(std::move(name)) {}
    const std::string key;  ///< the case line, and a hash of values that are not its own
    std::mutex mutex;       ///< of what is computed
    std::shared_ptr<const AttentionInputs> inputs;
    std::list<Answer> answers;
    std::size_t bytes = 0;  ///< under the mutex of all
  };
  using Order = std::list<std::shared_ptr<Entry>>;

  std::shared_ptr<Entry> find(std::string key);
  void grow(const std::shared_ptr<Entry>& entry, std::size_t bytes);
  const std::shared_ptr<const AttentionInputs>& inputs_of(const std::shared_ptr<Entry>& entry,
                                                          const AttentionProblem& problem);
  std::shared_ptr<const Expected> answer(const std::shared_ptr<Entry>& entry,
                                         const AttentionProblem& problem,
                                         const AttentionInputs& inputs,
                                         const PrecisionProfile& profile);

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::size_t held_ = 0;
  Order order_;  ///< last asked for first
  std::unordered_map<std::string, Order::iterator> places_;
};

}  // namespace attest
