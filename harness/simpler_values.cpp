// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>

#include "attest/names.hpp"
#include "harness/literal.hpp"
#include "harness/simpler_steps.hpp"

namespace attest {
namespace {

/// Every value of the list; those that are no simpler are dropped by Steps.
template <class E>
void every_value(Steps& steps, E AttentionProblem::*field) {
  for (std::size_t n = 0; n < kNamesOf<E>.size(); ++n)
    steps.edit([&](AttentionProblem& p) { p.*field = static_cast<E>(n); });
}

void axes_full(Steps& steps, Axes AttentionProblem::*axes) {
  steps.edit([&](AttentionProblem& p) { p.*axes = {}; });
  for (auto axis : {&Axes::b, &Axes::h, &Axes::q, &Axes::k})
    steps.edit([&](AttentionProblem& p) { (p.*axes).*axis = true; });
}

double with_significant_bits(double value, int bits) {
  const auto cut = std::bit_cast<std::uint64_t>(value) & (~std::uint64_t{0} << (53 - bits));
  return std::bit_cast<double>(cut);
}

/// Simpler numbers in place of this one, the boldest first.
std::vector<double> simpler_numbers(double value) {
  std::vector<double> numbers{0, 1, -1};
  if (!std::isfinite(value)) return numbers;
  for (const double candidate : {2.0, -2.0, std::trunc(value), std::trunc(value / 2),
                                 with_significant_bits(value, 2), with_significant_bits(value, 8)})
    numbers.push_back(candidate);
  return numbers;
}

void number_down(Steps& steps, double AttentionProblem::*number) {
  for (const double simple : {1.0, 2.0, 0.5, 4.0, std::trunc(steps.from().*number)})
    steps.edit([&](AttentionProblem& p) { p.*number = simple; });
}

void values_down(Steps& steps, std::vector<double> Literal::*tensor) {
  const std::vector<double>& values = steps.from().literal.*tensor;
  if (values.empty()) return;
  const auto every = [&](auto change) {
    steps.edit([&](AttentionProblem& p) {
      for (double& value : p.literal.*tensor) value = change(value);
    });
  };
  every([](double) { return 0; });
  every([](double) { return 1; });
  every([](double value) { return std::isfinite(value) ? std::trunc(value) : value; });
  every(
      [](double value) { return std::isfinite(value) ? with_significant_bits(value, 2) : value; });
  for (std::size_t n = 0; n < values.size(); ++n)
    for (const double simple : simpler_numbers(values[n]))
      steps.edit([&](AttentionProblem& p) { (p.literal.*tensor)[n] = simple; });
}

void flags_down(Steps& steps, std::vector<double> Literal::*tensor) {
  const std::vector<double>& values = steps.from().literal.*tensor;
  steps.edit([&](AttentionProblem& p) {
    for (double& value : p.literal.*tensor) value = 1;
  });
  for (std::size_t n = 0; n < values.size(); ++n)
    if (values[n] == 0) steps.edit([&](AttentionProblem& p) { (p.literal.*tensor)[n] = 1; });
}

}  // namespace

void choices_down(Steps& steps) {
  every_value(steps, &AttentionProblem::dtype);
  every_value(steps, &AttentionProblem::base);
  every_value(steps, &AttentionProblem::align);
  every_value(steps, &AttentionProblem::mask);
  every_value(steps, &AttentionProblem::bias);
  every_value(steps, &AttentionProblem::alibi);
  every_value(steps, &AttentionProblem::slopes);
  every_value(steps, &AttentionProblem::sink);
  every_value(steps, &AttentionProblem::rope);
  every_value(steps, &AttentionProblem::layout);
  every_value(steps, &AttentionProblem::pages);
  axes_full(steps, &AttentionProblem::mask_axes);
  axes_full(steps, &AttentionProblem::bias_axes);
  axes_full(steps, &AttentionProblem::block_axes);
  const AttentionProblem defaults;
  steps.edit([&](AttentionProblem& p) { p.t5_buckets = defaults.t5_buckets; });
  steps.edit([&](AttentionProblem& p) { p.t5_max_distance = defaults.t5_max_distance; });
  steps.edit([](AttentionProblem& p) { p.t5_bidirectional = true; });
  steps.edit([&](AttentionProblem& p) { p.block_q = defaults.block_q; });
  steps.edit([&](AttentionProblem& p) { p.block_k = defaults.block_k; });
  if (steps.from().softcap > 0) number_down(steps, &AttentionProblem::softcap);
  if (steps.from().dropout_p > 0) number_down(steps, &AttentionProblem::dropout_p);
  for (const double simple : {1.0, 2.0, 0.5, 0.0, -1.0})
    if (steps.from().scale) steps.edit([&](AttentionProblem& p) { p.scale = simple; });
  if (steps.from().rope != RopePairing::none) {
    steps.edit([&](AttentionProblem& p) { p.rope_base = defaults.rope_base; });
    number_down(steps, &AttentionProblem::rope_scale);
    number_down(steps, &AttentionProblem::rope_ntk);
  }
}

void data_down(Steps& steps) {
  for (const Family family : {Family::zeros, Family::integers, Family::gaussian}) {
    steps.edit([&](AttentionProblem& p) { p.data = family; });
    if (steps.from().v_data) steps.edit([&](AttentionProblem& p) { p.v_data = family; });
  }
  if (steps.from().operation == Operation::backward) {
    for (const Family family : {Family::zeros, Family::integers, Family::gaussian})
      steps.edit([&](AttentionProblem& p) { p.d_o_data = family; });
    steps.edit([](AttentionProblem& p) { p.d_lse = false; });
    steps.edit([](AttentionProblem& p) { p.d_o_layout.reset(); });
    steps.edit([](AttentionProblem& p) { p.no_gradient = {}; });
  }
  const std::uint64_t seed = steps.from().seed;
  // With the values written out the seed can only pick one of a few ways; an early one is the same.
  const std::uint64_t first = steps.from().data == Family::list ? 64 : 8;
  for (std::uint64_t smaller = 0; smaller < std::min(seed, first); ++smaller)
    steps.edit([&](AttentionProblem& p) { p.seed = smaller; });
  steps.edit([&](AttentionProblem& p) { p.seed = seed / 2; });
}

void literals_down(Steps& steps) {
  for (const bool all : {true, false})
    if (auto written = listed(steps.from(), all)) steps.propose(std::move(*written));
  for (auto tensor : {&Literal::q, &Literal::k, &Literal::v, &Literal::bias, &Literal::sink,
                      &Literal::slopes, &Literal::d_o, &Literal::d_lse})
    values_down(steps, tensor);
  for (auto tensor : {&Literal::mask, &Literal::blocks, &Literal::keep}) flags_down(steps, tensor);
}

}  // namespace attest
