// SPDX-License-Identifier: Apache-2.0
// A decode call whose caches stay where they are from call to call, as a server has them; the other
// calls of a subject are laid out anew each time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attest/inputs.hpp"
#include "harness/subject.hpp"

namespace attest {

class StandingCaches {
 public:
  /// `shape`: a decode call with kv_len = the rows that the caches end with, and all sequences of
  /// one length; no mask, bias, blocks, sink, ALiBi or RoPE.
  StandingCaches(Subject& subject, const AttentionProblem& shape, int num_threads);
  ~StandingCaches();

  /// Why there is no memory for it; nullopt where there is. Caches hold poison after it.
  std::optional<std::string> lay_out();
  /// Appends k and v behind `cached` rows, and asks for q. No other call of the subject may have
  /// come between.
  CallStatus call(const Dense<double>& q, const Dense<double>& k, const Dense<double>& v,
                  std::int64_t cached, const CallLimits& limits);
  /// What the last call wrote, [B, Hq, Lq, Dv].
  std::vector<double> o() const;
  /// Of both caches that no longer hold what they held after lay_out().
  std::int64_t bytes_written() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attest
