// SPDX-License-Identifier: Apache-2.0
// How much memory backward takes beyond the tensors of the call. operator new of this binary counts
// bytes, for the modules that it loads too.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "impls/testing.hpp"

namespace {

std::atomic<std::size_t> bytes_now{0}, bytes_peak{0};

void* counted(std::size_t size) {
  void* const memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  const std::size_t now = bytes_now += malloc_usable_size(memory);
  std::size_t peak = bytes_peak;
  while (now > peak && !bytes_peak.compare_exchange_weak(peak, now)) {
  }
  return memory;
}

void uncounted(void* memory) {
  if (memory) bytes_now -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { uncounted(memory); }
void operator delete[](void* memory) noexcept { uncounted(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncounted(memory); }

namespace attest::testing {
namespace {

/// Bytes that backward holds at its worst: one head, `length` queries and keys, 64 channels, a
/// window of 1024 keys, a bias per key, no lse.
std::size_t extra_bytes(const std::string& name, std::int64_t length) {
  Loaded kernel(std::string(ATTEST_BINARY_DIR) + "/lib/attest/" + name + ".so");
  const DLDataType type = dl_dtype(DType::f32);
  const auto rows = [&] { return std::make_unique<Tensor>(type, Shape{1, 1, length, 64}); };
  const auto q = rows(), k = rows(), v = rows(), o = rows(), d_o = rows();
  const auto d_q = rows(), d_k = rows(), d_v = rows();
  Tensor bias(type, {1, 1, 1, length}), d_bias(type, {1, 1, 1, length});
  Numbers numbers(3);
  for (Tensor* t : {q.get(), k.get(), v.get(), d_o.get(), &bias})
    t->fill([&](const Shape&) { return numbers.real(-1, 1); });
  attest_attention p = plain_call();
  p.base = ATTEST_BASE_CAUSAL;
  p.window_left = 1023;
  p.q = q->dl(), p.k = k->dl(), p.v = v->dl(), p.o = o->dl(), p.d_o = d_o->dl();
  p.d_q = d_q->dl(), p.d_k = d_k->dl(), p.d_v = d_v->dl();
  p.bias = bias.dl(), p.d_bias = d_bias.dl();
  EXPECT_EQ(kernel.forward(p), ATTEST_OK);
  const std::size_t before = bytes_now;
  bytes_peak = before;
  // A thread of its own has no memory left from calls before.
  std::thread([&] { EXPECT_EQ(kernel.backward(p), ATTEST_OK); }).join();
  return bytes_peak - before;
}

// At 8192 rows of 64 floats a tensor has 2 MiB and a matrix of scores 256 MiB. Backward holds five
// such tensors (q, dQ, dO, dK, dV), and less than 3 MiB for its rows and one block of keys.
TEST(BackwardMemory, ChunkedHoldsNoMatrixOfScores) {
  const std::size_t extra = extra_bytes("chunked", 8192);
  RecordProperty("bytes", std::to_string(extra));
  EXPECT_LT(extra, std::size_t{13} << 20);
  EXPECT_GT(extra, std::size_t{10} << 20);  // else something was not counted
}

TEST(BackwardMemory, ChunkedGrowsWithTheLengthAlone) {
  EXPECT_LT(extra_bytes("chunked", 4096), 5 * extra_bytes("chunked", 1024));
}

TEST(BackwardMemory, NaiveHoldsMatricesOfScores) {
  EXPECT_GT(extra_bytes("naive", 1024), std::size_t{8} << 20);
}

}  // namespace
}  // namespace attest::testing
