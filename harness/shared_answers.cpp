// SPDX-License-Identifier: Apache-2.0
#include "harness/shared_answers.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

#include "attest/case_line.hpp"
#include "harness/data.hpp"

namespace attest {

namespace {

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

template <class Visit>
void for_each_tensor(const AttentionInputs& inputs, const Visit& visit) {
  for (const auto* tensor : {&inputs.q, &inputs.k, &inputs.v, &inputs.bias, &inputs.slopes,
                             &inputs.sink, &inputs.d_o, &inputs.d_lse, &inputs.o, &inputs.lse})
    visit(*tensor);
  for (const auto* tensor : {&inputs.mask, &inputs.blocks, &inputs.keep}) visit(*tensor);
}

std::size_t bytes_of(const AttentionInputs& inputs) {
  std::size_t bytes = sizeof inputs;
  for_each_tensor(inputs, [&](const auto& tensor) { bytes += bytes_of(tensor.values); });
  return bytes;
}

/// Only told apart from other values of the same case line: 64 bits do.
std::uint64_t hash_of(const AttentionInputs& inputs) {
  std::uint64_t hash = 0;
  const auto add = [&hash](const void* data, std::size_t bytes) {
    const std::string_view text(static_cast<const char*>(data), bytes);
    hash = mix(hash, std::hash<std::string_view>{}(text), 0, 0, 0, 0);
  };
  for_each_tensor(inputs, [&](const auto& tensor) {
    add(&tensor.present, sizeof tensor.present);
    add(tensor.shape.data(), sizeof tensor.shape);
    add(tensor.values.data(), bytes_of(tensor.values));
  });
  return hash;
}

/// print_case(), which takes 3 us: a thread asks three times for one problem before the next.
const std::string& line_of(const AttentionProblem& problem) {
  struct Last {
    AttentionProblem problem;
    std::string line = print_case(problem);
  };
  thread_local Last last;
  if (last.problem != problem) last = {problem, print_case(problem)};
  return last.line;
}

std::size_t bytes_of(const ExpectedTensor& tensor) {
  return bytes_of(tensor.value) + bytes_of(tensor.low) + bytes_of(tensor.radius) +
         bytes_of(tensor.t_mixed) + bytes_of(tensor.t_stat);
}

std::size_t bytes_of(const Expected& expected) {
  std::size_t bytes = sizeof expected + bytes_of(expected.o) + bytes_of(expected.lse) +
                      bytes_of(expected.rows) + bytes_of(expected.o_low) +
                      bytes_of(expected.o_high) + bytes_of(expected.temperature) +
                      bytes_of(expected.vagueness);
  for (const ExpectedTensor& gradient : expected.gradients) bytes += bytes_of(gradient);
  return bytes;
}

}  // namespace

std::shared_ptr<SharedAnswers::Entry> SharedAnswers::find(Key key) {
  const std::lock_guard lock(mutex_);
  const auto known = places_.find(key);
  if (known != places_.end()) {
    order_.splice(order_.begin(), order_, known->second);
    return order_.front();
  }
  order_.push_front(std::make_shared<Entry>(key));
  places_.emplace(std::move(key), order_.begin());
  return order_.front();
}

void SharedAnswers::keep(const std::shared_ptr<Entry>& entry, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto known = places_.find(entry->key);
  if (known == places_.end() || *known->second != entry) return;  // pushed out meanwhile
  entry->bytes = bytes;
  held_ += bytes;
  while (held_ > most_bytes_) {
    held_ -= order_.back()->bytes;
    places_.erase(order_.back()->key);
    order_.pop_back();
  }
}

std::shared_ptr<const AttentionInputs> SharedAnswers::inputs(const AttentionProblem& problem) {
  const std::shared_ptr<Entry> entry = find({line_of(problem), std::nullopt});
  const std::lock_guard lock(entry->mutex);
  if (!entry->inputs) {
    entry->inputs = std::make_shared<const AttentionInputs>(make_inputs(problem));
    keep(entry, bytes_of(*entry->inputs));
  }
  return entry->inputs;
}

template <class Compute>
std::shared_ptr<const Expected> SharedAnswers::answer(Key key, const Compute& compute) {
  const std::shared_ptr<Entry> entry = find(std::move(key));
  const std::lock_guard lock(entry->mutex);
  if (!entry->expected) {
    entry->expected = std::make_shared<const Expected>(compute());
    keep(entry, bytes_of(*entry->expected));
  }
  return entry->expected;
}

std::shared_ptr<const Expected> SharedAnswers::expected(const AttentionProblem& problem,
                                                        const PrecisionProfile& profile) {
  return answer({line_of(problem), profile},
                [&] { return expect(problem, *inputs(problem), profile); });
}

std::shared_ptr<const Expected> SharedAnswers::expected(const AttentionProblem& problem,
                                                        const AttentionInputs& inputs,
                                                        const PrecisionProfile& profile) {
  return answer({fmt::format("{} {:016x}", line_of(problem), hash_of(inputs)), profile},
                [&] { return expect(problem, inputs, profile); });
}

bool SharedAnswers::claim_audit(const AttentionProblem& problem, const PrecisionProfile& profile) {
  const std::shared_ptr<Entry> entry = find({line_of(problem), profile});
  const std::lock_guard lock(entry->mutex);
  return !entry->expected || !std::exchange(entry->audited, true);
}

std::size_t SharedAnswers::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

}  // namespace attest
