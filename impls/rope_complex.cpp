// SPDX-License-Identifier: Apache-2.0
// rope_complex: the rotary embedding as its authors wrote it, pairs of channels as complex numbers.
//
// Contract: impls/rope_complex.hpp. Computes in double whatever the type, and rounds once. Angles
// are its own, in double: good to 2^-30 of a turn at position 10^6, which f32 does not see. For f64
// the factors are those of the caller's tables. A work item is one sequence and head.
#include "impls/rope_complex.hpp"

#include "attest/plugin.hpp"
#include "impls/rope_call.hpp"

namespace attest {
namespace {

class RopeComplexKernel : public Kernel {
  void rope(const RopeCall& call, const Context& context) override {
    const int direction = call.inverse ? -1 : 1;
    const std::vector<double> frequencies =
        rope_frequencies(call.rope_dim, call.base, call.scale, call.ntk);
    const TensorView<const double> cosines(call.cos), sines(call.sin);
    with_storage(check_rope_call(call), [&](auto storage) {
      using Storage = decltype(storage);
      for_each_turned_row<Storage>(call, context, [&](auto* row, std::int64_t position) {
        if constexpr (std::is_same_v<Storage, double>)
          rope_complex_by(row, call.pairing, call.rope_dim, direction, [&](std::int64_t t) {
            const std::int64_t r = position - call.rope_position;
            return std::complex<double>(cosines(r, t), sines(r, t));
          });
        else
          rope_complex(row, call.pairing, frequencies, position, direction);
      });
    });
  }
};
ATTEST_PLUGIN(RopeComplexKernel, "rope_complex", "1.0",
              "dtype=f64,f32,f16,bf16 forward=none component=rope,rope_inverse "
              "rope=interleaved,half rope_partial rope_scaling=linear,ntk layout=any empty_dims "
              "deterministic batch_invariant thread_invariant");

}  // namespace
}  // namespace attest
