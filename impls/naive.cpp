// SPDX-License-Identifier: Apache-2.0
// naive: the textbook. Forward: impls/naive_forward.hpp. Backward: impls/naive_backward.hpp.
#include "attest/plugin.hpp"
#include "impls/naive_backward.hpp"
#include "impls/naive_forward.hpp"
#include "impls/storage.hpp"

namespace attest::naive {
namespace {

class NaiveKernel : public Kernel {
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
ATTEST_PLUGIN(NaiveKernel, "naive", "1.0",
              "dtype=f64,f32,f16,bf16 features=all backward=all "
              "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p "
              "deterministic batch_invariant thread_invariant masked_nan_safe");

}  // namespace
}  // namespace attest::naive
