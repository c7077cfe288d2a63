// SPDX-License-Identifier: Apache-2.0
// blas: what a user would write who has a BLAS: scores by one GEMM, softmax row by row, a second
// GEMM with V. A peer for times, and checked like any other kernel.
//
// Contract: full and causal masks, a boolean mask, a bias, lengths of keys, GQA; computes in f32
// (f64 for f64), f16 and bf16 are widened first. Weights stay unrounded and unnormalised. One query
// head after the other: BLAS has the threads.
#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attest/plugin.hpp"
#include "impls/storage.hpp"

// OpenBLAS's own, which cblas.h of another BLAS does not declare.
extern "C" void openblas_set_num_threads(int num_threads);  // NOLINT(*-redundant-declaration)

namespace attest {
namespace {

// OpenBLAS maps 128 MiB for each thread (0.3.21, AVX-512), and a kernel may have 1 GiB.
constexpr int kMostThreads = 4;

/// c[m, n] = a[m, k] b[k, n], or with b given as [n, k] and transposed. The scale is applied after
/// it and not by alpha: where alpha is 0 a BLAS reads neither a nor b, and a NaN in them is lost.
void multiply(bool transposed, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
              const float* b, float* c) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a,
              static_cast<int>(k), b, static_cast<int>(transposed ? k : n), 0, c,
              static_cast<int>(n));
}
void multiply(bool transposed, std::int64_t m, std::int64_t n, std::int64_t k, const double* a,
              const double* b, double* c) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans,
              static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a,
              static_cast<int>(k), b, static_cast<int>(transposed ? k : n), 0, c,
              static_cast<int>(n));
}

template <class Storage>
class Blas {
  using C = Compute<Storage>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

 public:
  Blas(const attest_attention& problem, const Sizes& sizes) : p(problem), s(sizes) {}

  void run() {
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const auto entry = [b](const DLTensor* list, std::int64_t otherwise) {
        return list ? TensorView<const std::int32_t>(list)(b) : otherwise;
      };
      first_ = entry(p.left_pad_k, 0);
      keys_ = entry(p.seqlens_k, s.kv_len) - first_;
      if (first_ < 0 || keys_ < 0 || first_ + keys_ > s.kv_len)
        throw Invalid("key rows of sequence " + std::to_string(b) + " lie outside k");
      for (std::int64_t g = 0; g < s.kv_heads; ++g) {
        load(p.k, b, g, first_, keys_, s.dim, k_);
        load(p.v, b, g, first_, keys_, s.v_dim, v_);
        for (std::int64_t h = g * s.group; h < (g + 1) * s.group; ++h) head(b, h);
      }
    }
  }

 private:
  /// Rows [first, first + rows) of a head, dense.
  static void load(const DLTensor* tensor, std::int64_t b, std::int64_t h, std::int64_t first,
                   std::int64_t rows, std::int64_t width, std::vector<C>& to) {
    to.resize(static_cast<std::size_t>(rows * width));
    for (std::int64_t i = 0; i < rows; ++i)
      load_row(row_of<Storage>(tensor, b, h, first + i), tensor->strides[3], width,
               to.data() + i * width);
  }

  /// Keys [0, end) that a causal mask leaves to query i.
  std::int64_t causal_end(std::int64_t i) const {
    if (p.base == ATTEST_BASE_FULL) return keys_;
    const std::int64_t offset = p.align == ATTEST_ALIGN_BOTTOM_RIGHT ? keys_ - s.q_len : 0;
    return std::clamp<std::int64_t>(i + offset + 1, 0, keys_);
  }

  void head(std::int64_t b, std::int64_t h) {
    load(p.q, b, h, 0, s.q_len, s.dim, q_);
    scores_.assign(static_cast<std::size_t>(s.q_len * keys_), C{0});
    if (keys_ > 0 && s.dim > 0)
      multiply(true, s.q_len, keys_, s.dim, q_.data(), k_.data(), scores_.data());
    sums_.resize(static_cast<std::size_t>(s.q_len));
    for (std::int64_t i = 0; i < s.q_len; ++i)
      sums_[static_cast<std::size_t>(i)] = softmax(b, h, i);
    out_.assign(static_cast<std::size_t>(s.q_len * s.v_dim), C{0});
    if (keys_ > 0 && s.v_dim > 0)
      multiply(false, s.q_len, s.v_dim, keys_, scores_.data(), v_.data(), out_.data());
    for (std::int64_t i = 0; i < s.q_len; ++i) {
      const C sum = sums_[static_cast<std::size_t>(i)];
      Storage* const to = output_row<Storage>(p.o, b, h, i);
      for (std::int64_t c = 0; c < s.v_dim; ++c) {
        const C x = out_[static_cast<std::size_t>(i * s.v_dim + c)];
        to[c * p.o->strides[3]] = narrow<Storage>(sum == 0 ? C{0} : x / sum);
      }
    }
  }

  /// Scores of row i to exp(score - max), 0 where the query does not see; returns their sum, 0 for
  /// a row without a key.
  C softmax(std::int64_t b, std::int64_t h, std::int64_t i) {
    const TensorView<const std::uint8_t> mask(p.mask);
    const TensorView<const Storage> bias(p.bias);
    C* const row = scores_.data() + i * keys_;
    const std::int64_t end = causal_end(i);
    std::fill(row + end, row + keys_, kNone);
    for (std::int64_t j = 0; j < end; ++j) row[j] *= static_cast<C>(p.scale);
    if (bias)
      for (std::int64_t j = 0; j < end; ++j) row[j] += widen(bias.broadcast(b, h, i, first_ + j));
    if (mask)
      for (std::int64_t j = 0; j < end; ++j)
        if (!mask.broadcast(b, h, i, first_ + j)) row[j] = kNone;
    C max = kNone;
    bool empty = true;
    for (std::int64_t j = 0; j < end; ++j) {
      if (row[j] > max) max = row[j];
      if (row[j] != kNone) empty = false;  // also where it is NaN, which then comes out below
    }
    C sum = 0;
    for (std::int64_t j = 0; j < keys_; ++j) {
      row[j] = row[j] == kNone ? C{0} : std::exp(row[j] - max);
      sum += row[j];
    }
    if (p.lse) TensorView<C>(p.lse)(b, h, i) = empty ? kNone : max + std::log(sum);
    return sum;
  }

  const attest_attention& p;
  const Sizes s;
  std::int64_t first_ = 0, keys_ = 0;  // key rows of the sequence
  std::vector<C> q_, k_, v_, scores_, sums_, out_;
};

class BlasKernel : public Kernel {
  void forward(const attest_attention& problem, const Context& context) override {
    accept_only(problem, {DType::f64, DType::f32, DType::f16, DType::bf16},
                {Use::gqa, Use::v_head_dim, Use::causal, Use::align_top_left,
                 Use::align_bottom_right, Use::lengths_k, Use::mask, Use::bias, Use::lse});
    const Sizes sizes = read_sizes(problem);
    openblas_set_num_threads(std::min(context.num_threads, kMostThreads));
    with_storage(sizes.dtype, [&](auto storage) { Blas<decltype(storage)>(problem, sizes).run(); });
  }
};
ATTEST_PLUGIN(
    BlasKernel, "blas", "1.0",
    "dtype=f64,f32,f16,bf16 base=full,causal align=bottom_right,top_left gqa v_head_dim=any "
    "seqlens_k left_pad_k mask bias bias_neg_inf scale scale_nonpositive lse empty_dims layout=any "
    "precision=f32 precision.f16=mma_f32acc_f32p precision.bf16=mma_f32acc_f32p");

}  // namespace
}  // namespace attest
