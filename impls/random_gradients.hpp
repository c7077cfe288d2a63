// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: what turns a RandomCall into a backward call.
#pragma once

#include <cmath>
#include <set>
#include <string>

#include "impls/plain_answer.hpp"

namespace attest::testing {

/// The inputs that have gradients; that of "q" is the tensor "d_q".
inline constexpr const char* kDifferentiable[] = {"q", "k", "v", "bias", "alibi_slopes", "sink"};

/// What serves backward: modules, and honest kernels of the library of faults.
inline constexpr const char* kDifferentiating[] = {"naive", "chunked", "backward",
                                                   "backward_delta_from_p"};
inline Loaded open_differentiating(const std::string& name) {
  const std::string libraries = ATTEST_BINARY_DIR "/lib/";
  return name.rfind("backward", 0) == 0 ? Loaded(libraries + "attest-faulty/faulty.so", name)
                                        : Loaded(libraries + "attest/" + name + ".so");
}

/// The field of a gradient.
inline DLTensor*& gradient_field(attest_attention& p, const std::string& input) {
  if (input == "q") return p.d_q;
  if (input == "k") return p.d_k;
  if (input == "v") return p.d_v;
  if (input == "bias") return p.d_bias;
  return input == "sink" ? p.d_sink : p.d_alibi_slopes;
}

/// Query rows that are no padding, as (b, h, i): those with a visible key, or those without.
inline std::set<Shape> rows_with_keys(RandomCall& call, bool with) {
  std::set<Shape> rows;
  for_each_plain_row(call, [&](const PlainRow& row) {
    if (row.pairs.empty() != with) rows.insert({row.b, row.h, row.i});
  });
  return rows;
}

inline Shape shape_of(Tensor& t) {
  Shape shape;
  for (int a = 0; a < t.dl()->ndim; ++a) shape.push_back(t.extent(a));
  return shape;
}

/// dO, often dLSE, and room for every gradient, with strides of their own. A row in six has a dO of
/// 0. Rows that must not count hold NaN: padding; dO of rows without a key, and without a sink
/// their dLSE.
inline void add_gradients(RandomCall& call, std::uint64_t seed) {
  Numbers numbers(seed + 7777);
  const auto like = [&](const std::string& name) -> Tensor& {
    Tensor& input = call[name];
    const std::vector<int> order = input.dl()->ndim == 4 && numbers.one_in(2)
                                       ? std::vector<int>{2, 0, 3, 1}
                                       : std::vector<int>{};
    return call.add("d_" + name, input.dl()->dtype, shape_of(input), order,
                    numbers.one_in(2) ? 0 : numbers.between(1, 5));
  };
  const std::set<Shape> rows = rows_with_keys(call, true), empty = rows_with_keys(call, false);
  std::set<Shape> silent;
  for (const Shape& row : rows)
    if (numbers.one_in(6)) silent.insert(row);
  Tensor& d_o = like("o");
  d_o.fill([&](const Shape& at) {
    const double value = numbers.real(-2, 2);
    const Shape row{at[0], at[1], at[2]};
    return rows.count(row) == 0 ? std::nan("") : silent.count(row) ? 0 : value;
  });
  call.p.d_o = d_o.dl();
  if (!numbers.one_in(4)) {
    Tensor& d_lse = call.add("d_lse", dl_dtype(call.dtype == DType::f64 ? DType::f64 : DType::f32),
                             {call.p.q->shape[0], call.p.q->shape[1], call.p.q->shape[2]});
    d_lse.fill([&](const Shape& row) {
      const double value = numbers.one_in(4) ? 0 : numbers.real(-2, 2);
      const bool counts = rows.count(row) || (empty.count(row) && call.has("sink") &&
                                              call["sink"].get({row[1]}) > -HUGE_VAL);
      return counts ? value : std::nan("");
    });
    call.p.d_lse = d_lse.dl();
  }
  for (const char* input : kDifferentiable)
    if (call.has(input)) gradient_field(call.p, input) = like(input).dl();
}

/// After forward: what an empty row's o may hold by another convention.
inline void spoil_empty_rows(RandomCall& call) {
  for (const Shape& row : rows_with_keys(call, false))
    for (std::int64_t c = 0; c < call["o"].extent(3); ++c)
      call["o"].set({row[0], row[1], row[2], c}, std::nan(""));
}

}  // namespace attest::testing
