// SPDX-License-Identifier: Apache-2.0
// One call, from a problem and its values to everything that can be seen of it: encode, lay out
// with poison and canaries, call, verify, read back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attest/inputs.hpp"
#include "harness/subject.hpp"

namespace attest {

/// Tensors lie against one end of their slot: `high` sees accesses past the end, `low` those before
/// the start.
enum class Flush : std::uint8_t { high, low };

/// What lies in bytes that must not matter: gaps, rows outside their range, slack, output junk.
/// `nan`: quiet NaN with a payload; `finite`: large finite values of alternating sign. Integers get
/// values out of their range.
enum class Poison : std::uint8_t { nan, finite };

struct CallOptions {
  Flush flush = Flush::high;
  Poison poison = Poison::nan;
  int num_threads = 1;
  std::uint32_t repeats = 1;  ///< of the operation, on the same tensors: to time it
  CallLimits limits;
  /// Called once the tensors are laid out, just before the kernel: to take them out of the caches.
  void (*before_call)() = nullptr;
};

/// One output read back, in logical row-major order.
struct SeenTensor {
  std::vector<double> values;
  std::vector<std::uint64_t> bits;
  std::vector<std::uint8_t> junk;
};

struct Observation {
  CallStatus call;
  /// Of a decode call: its new rows as they then lie in the caches, [B, Hkv, Lq, D] and the same
  /// with Dv; 0 where a sequence has no row.
  SeenTensor appended_k, appended_v;
  /// By Gradient; of a backward call, those that it asks for.
  std::array<SeenTensor, kNumGradients> gradients;
  /// Read back where the call returned ATTEST_OK, logical row-major. lse in natural logarithm
  /// whatever the encoding. Of a call of rope, o is y.
  std::vector<double> o, lse;
  /// The stored bits, widened to 64, same order: for laws that speak of bits.
  std::vector<std::uint64_t> o_bits, lse_bits;
  /// Elements that still hold the junk they were given. One call alone can be a coincidence: see
  /// unwritten().
  std::vector<std::uint8_t> o_junk, lse_junk;
  std::vector<std::string> writes_outside;   ///< "write, 4 bytes before o"
  std::vector<std::string> inputs_modified;  ///< "q"
  bool ok() const { return !call.accident && call.status == 0; }
};

/// A backward call whose inputs hold no o and lse makes the forward call that gives them first, and
/// ends with it where it does not return ATTEST_OK.
Observation observe(Subject& subject, const AttentionProblem& problem,
                    const AttentionInputs& inputs, const CallOptions& options = {});
/// The values that the kernel's forward stored, as its backward is given them: lse in the kernel's
/// own base.
void take_forward(const AttentionProblem& problem, const Observation& forward,
                  AttentionInputs& inputs);

/// Bytes the arena needs for this problem.
std::int64_t arena_bytes(const AttentionProblem& problem);

/// Elements that hold the junk of both of two calls with different poisons, i.e. that the kernel
/// did not write.
std::vector<std::size_t> unwritten(const std::vector<std::uint8_t>& first,
                                   const std::vector<std::uint8_t>& second);

}  // namespace attest
