// SPDX-License-Identifier: Apache-2.0
// A long decode: call after call into caches that stay where they are in memory, as a server does
// it, with the bytes that they take counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attest/problem.hpp"
#include "harness/judge.hpp"
#include "harness/subject.hpp"

namespace attest {

struct DecodeLoop {
  /// kv_len: the rows that the caches end with, a multiple of q_len: the rows of a call. All
  /// sequences are of one length; there is no mask, bias, sink, ALiBi and RoPE.
  AttentionProblem shape;
  /// Each so many calls, and the last one, are judged: o of its rows against the oracle on
  /// the whole sequences. 0: none is.
  std::int64_t judge_every = 97;
  int num_threads = 1;
  CallLimits limits;
};

struct DecodeLoopResult {
  /// The first failure, or what the last judged call came to. `not_judged` where none is.
  CaseResult judgement;
  std::int64_t calls = 0, judged = 0;
  /// Of k_cache and v_cache that hold something else than before the first call.
  std::int64_t bytes_written = 0;
  /// B T Hkv (D + Dv) s: 2 B T Hkv D s where D = Dv. T: the rows that a cache has.
  std::int64_t bytes_expected = 0;
};

/// Ends with the first call that fails or is wrong. Verdict::error: there is no memory for it.
DecodeLoopResult run_decode_loop(Subject& subject, const DecodeLoop& loop);

}  // namespace attest
