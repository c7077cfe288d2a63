// SPDX-License-Identifier: Apache-2.0
// chunked: FlashAttention's algorithm without its hardware. Forward: impls/chunked_forward.hpp.
// Backward: impls/chunked_backward.hpp.
#include "attest/plugin.hpp"
#include "impls/chunked_backward.hpp"
#include "impls/chunked_forward.hpp"
#include "impls/storage.hpp"

namespace attest::chunked {
namespace {

class ChunkedKernel : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    const Sizes sizes = read_sizes(problem);
    with_storage(sizes.dtype, [&](auto storage) {
      Forward<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
  void backward(const attest_attention& problem, const Context& context) override {
    const Sizes sizes = read_sizes(problem);
    check_gradients(problem, sizes);
    with_storage(sizes.dtype, [&](auto storage) {
      Backward<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
  }
};
ATTEST_PLUGIN(ChunkedKernel, "chunked", "1.0",
              "dtype=f64,f32,f16,bf16 features=all backward=all "
              "precision=f32 precision.f16=mma_f32acc precision.bf16=mma_f32acc "
              "deterministic batch_invariant thread_invariant masked_nan_safe memory=linear");

}  // namespace
}  // namespace attest::chunked
