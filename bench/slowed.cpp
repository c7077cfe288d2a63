// SPDX-License-Identifier: Apache-2.0
// `chunked`, and every call takes a tenth longer: what `attest compare` has to call slower
// (tools/compare_table).
#include <chrono>

#include "attest/plugin.hpp"
#include "impls/chunked_forward.hpp"
#include "impls/storage.hpp"

namespace attest::chunked {
namespace {

class Slowed : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    const Sizes sizes = read_sizes(problem);
    with_storage(sizes.dtype, [&](auto storage) {
      Forward<decltype(storage)>(problem, sizes).run(context.num_threads);
    });
    const Clock::duration took = Clock::now() - start;
    while (Clock::now() - start < took + took / 10) {
    }
  }
};
ATTEST_PLUGIN(Slowed, "chunked", "1.0",
              "dtype=f64,f32,f16,bf16 features=all "
              "precision=f32 precision.f16=mma_f32acc precision.bf16=mma_f32acc");

}  // namespace
}  // namespace attest::chunked
