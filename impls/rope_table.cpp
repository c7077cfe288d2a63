// SPDX-License-Identifier: Apache-2.0
// rope_table: the rotary embedding from the caller's tables of cos and sin, a vector of pairs at a
// time.
//
// Contract: impls/rope_table.hpp. Computes in f32 (f64 for f64) and rounds once. A work item is one
// sequence and head.
#include "impls/rope_table.hpp"

#include "attest/plugin.hpp"
#include "impls/rope_call.hpp"

namespace attest {
namespace {

class RopeTableKernel : public Kernel {
  void rope(const RopeCall& call, const Context& context) override {
    with_storage(check_rope_call(call), [&](auto storage) {
      using Storage = decltype(storage);
      using C = Compute<Storage>;
      const RopeTable<C> table{TensorView<const C>(call.cos), TensorView<const C>(call.sin),
                               call.rope_position};
      for_each_turned_row<Storage>(call, context, [&](C* row, std::int64_t position) {
        rope_by_table(row, call.pairing, call.rope_dim, table, position, call.inverse ? -1 : 1);
      });
    });
  }
};
ATTEST_PLUGIN(RopeTableKernel, "rope_table", "1.0",
              "dtype=f64,f32,f16,bf16 forward=none component=rope,rope_inverse "
              "rope=interleaved,half rope_partial rope_scaling=linear,ntk layout=any empty_dims "
              "deterministic batch_invariant thread_invariant");

}  // namespace
}  // namespace attest
