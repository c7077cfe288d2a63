// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: tensors with any strides, and kernels loaded from their modules.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "attest/dtype.hpp"
#include "attest/plugin.h"
#include "attest/tensor.hpp"

namespace attest::testing {

using Shape = std::vector<std::int64_t>;

/// A tensor that owns its memory. All bytes start as 0xff: NaN in every floating-point type, -1, or
/// a boolean that is neither 0 nor 1.
class Tensor {
 public:
  /// `outermost_first` is the memory order of the axes (empty: as they stand); each row of the
  /// innermost one is followed by `gap` unused elements.
  Tensor(DLDataType type, Shape shape, const std::vector<int>& outermost_first = {},
         std::int64_t gap = 0)
      : shape_(std::move(shape)), strides_(shape_.size()) {
    std::vector<int> order = outermost_first;
    if (order.empty()) {
      order.resize(shape_.size());
      std::iota(order.begin(), order.end(), 0);
    }
    std::int64_t step = 1;
    for (std::size_t a = order.size(); a-- > 0;) {
      strides_[static_cast<std::size_t>(order[a])] = step;
      step = step * shape_[static_cast<std::size_t>(order[a])] + gap;
    }
    bytes_.assign(static_cast<std::size_t>((step + 1) * (type.bits / 8)), 0xff);
    dl_ = {bytes_.data(),
           {kDLCPU, 0},
           static_cast<std::int32_t>(shape_.size()),
           type,
           shape_.data(),
           strides_.data(),
           0};
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  DLTensor* dl() { return &dl_; }
  const std::vector<unsigned char>& bytes() const { return bytes_; }
  std::int64_t extent(int axis) const { return shape_[static_cast<std::size_t>(axis)]; }

  void* address(std::initializer_list<std::int64_t> index) { return at(index.begin()); }
  void* address(const Shape& index) { return at(index.data()); }
  double get(std::initializer_list<std::int64_t> index) { return read(at(index.begin())); }
  double get(const Shape& index) { return read(at(index.data())); }
  void set(std::initializer_list<std::int64_t> index, double value) {
    write(at(index.begin()), value);
  }
  void set(const Shape& index, double value) { write(at(index.data()), value); }
  /// value(index) for every element.
  template <class Value>
  void fill(Value&& value) {
    Shape index(shape_.size(), 0);
    for (const std::int64_t extent : shape_)
      if (extent == 0) return;
    for (;;) {
      set(index, value(std::as_const(index)));
      std::size_t a = index.size();
      for (; a > 0; --a) {
        if (++index[a - 1] < shape_[a - 1]) break;
        index[a - 1] = 0;
      }
      if (a == 0) return;
    }
  }
  /// Makes all entries of an axis the same memory.
  void broadcast_axis(int axis) { strides_[static_cast<std::size_t>(axis)] = 0; }

 private:
  void* at(const std::int64_t* index) {
    std::int64_t offset = 0;
    for (std::size_t a = 0; a < strides_.size(); ++a) offset += index[a] * strides_[a];
    return bytes_.data() + offset * (dl_.dtype.bits / 8);
  }
  double read(const void* element) const {
    if (const auto dtype = dtype_of(dl_.dtype)) return load(element, *dtype);
    std::int32_t integer = 0;
    std::memcpy(&integer, element, static_cast<std::size_t>(dl_.dtype.bits / 8));
    return integer;
  }
  void write(void* element, double value) const {
    if (const auto dtype = dtype_of(dl_.dtype)) return store(element, *dtype, value);
    const auto integer = static_cast<std::int32_t>(value);
    std::memcpy(element, &integer, static_cast<std::size_t>(dl_.dtype.bits / 8));
  }

  Shape shape_, strides_;
  std::vector<unsigned char> bytes_;
  DLTensor dl_{};
};

/// Every element is written, and nothing between the elements. All bytes were 0xff before.
inline void expect_written_exactly(Tensor& tensor, const std::string& what) {
  std::vector<unsigned char> between = tensor.bytes();
  tensor.fill([&](const Shape& at) {
    const auto* address = static_cast<const unsigned char*>(tensor.address(at));
    const std::ptrdiff_t offset = address - tensor.bytes().data();
    std::fill_n(between.begin() + offset, tensor.dl()->dtype.bits / 8, std::uint8_t{0xff});
    EXPECT_FALSE(std::isnan(tensor.get(at))) << what;
    return tensor.get(at);
  });
  EXPECT_EQ(between, std::vector<unsigned char>(between.size(), 0xff)) << what;
}

/// One kernel of a module, open until the end of its life.
class Loaded {
 public:
  explicit Loaded(const std::string& path, const std::string& kernel = "")
      : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!library_) {
      ADD_FAILURE() << dlerror();
      return;
    }
    const auto entry =
        reinterpret_cast<attest_plugin_entry_function>(dlsym(library_, "attest_plugin_entry"));
    if (!entry) {
      ADD_FAILURE() << path << " has no entry";
      return;
    }
    plugin_ = entry(ATTEST_ABI_VERSION);
    while (plugin_ && !kernel.empty() && plugin_->name != kernel) plugin_ = plugin_->next;
    if (!plugin_) {
      ADD_FAILURE() << path << " has no kernel " << kernel;
      return;
    }
    attest_context context = make_context(1);
    if (!plugin_->open) return;
    EXPECT_EQ(plugin_->open(0, &context, &state_), ATTEST_OK);
  }
  ~Loaded() {
    if (plugin_ && plugin_->close) plugin_->close(state_);
    if (library_) dlclose(library_);
  }
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;

  const attest_plugin& plugin() const { return *plugin_; }
  void* state() const { return state_; }
  attest_status forward(const attest_attention& problem, int num_threads = 1) {
    attest_context context = make_context(num_threads);
    message_[0] = '\0';
    return plugin_->forward(state_, nullptr, &problem, &context);
  }
  attest_status backward(const attest_attention& problem, int num_threads = 1) {
    attest_context context = make_context(num_threads);
    message_[0] = '\0';
    return plugin_->backward(state_, nullptr, &problem, &context);
  }
  attest_status decode(const attest_attention& problem, int num_threads = 1) {
    attest_context context = make_context(num_threads);
    message_[0] = '\0';
    return plugin_->decode(state_, nullptr, &problem, &context);
  }
  std::string message() const { return message_; }

 private:
  attest_context make_context(int num_threads) {
    attest_context context{};
    context.struct_size = sizeof context;
    context.num_threads = num_threads;
    context.message = message_;
    context.message_capacity = sizeof message_;
    return context;
  }

  void* library_ = nullptr;
  const attest_plugin* plugin_ = nullptr;
  void* state_ = nullptr;
  char message_[256] = "";
};

/// A call with nothing set but what every call has.
inline attest_attention plain_call() {
  attest_attention p{};
  p.struct_size = sizeof p;
  p.scale = 1;
  p.window_left = p.window_right = -1;
  return p;
}

/// Reproducible numbers: the next one of a sequence that starts from the seed.
class Numbers {
 public:
  explicit Numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  std::uint64_t bits() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::int64_t n) { return between(1, n) == 1; }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
  }

 private:
  std::uint64_t state_;
};

}  // namespace attest::testing
