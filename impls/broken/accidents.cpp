// SPDX-License-Identifier: Apache-2.0
// Kernels that do not return: each ends or blocks its process in a way of its own.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "impls/broken/simple.hpp"

namespace attest::broken {
namespace {

/// An address that the compiler cannot see through.
int* volatile nowhere = nullptr;

class Segfault : public Simple {
  void serve(const attest_attention& p) const override {
    if (unlucky(p)) *nowhere = 1;
    attend(p);
  }
};
ATTEST_PLUGIN(Segfault, "segfault", "1.0", kSimple);

class Abort : public Simple {
  void serve(const attest_attention& p) const override {
    if (unlucky(p)) std::abort();
    attend(p);
  }
};
ATTEST_PLUGIN(Abort, "abort", "1.0", kSimple);

class Exit : public Simple {
  void serve(const attest_attention& p) const override {
    if (unlucky(p)) _exit(0);
    attend(p);
  }
};
ATTEST_PLUGIN(Exit, "exit", "1.0", kSimple);

class Hang : public Simple {
  void serve(const attest_attention& p) const override {
    volatile std::int64_t left = very_unlucky(p) ? 1 : 0, step = 0;
    while (left > 0) left = left - step;
    attend(p);
  }
};
ATTEST_PLUGIN(Hang, "hang", "1.0", kSimple);

constexpr std::size_t kPiece = std::size_t{16} << 20;

/// Takes memory for ever; when there is no more, asks again.
class Allocate : public Simple {
  void serve(const attest_attention& p) const override {
    while (very_unlucky(p)) {
      void* volatile piece = std::malloc(kPiece);
      if (piece) std::memset(piece, 1, kPiece);
    }
    attend(p);
  }
};
ATTEST_PLUGIN(Allocate, "allocate", "1.0", kSimple);

/// Takes memory for ever and does not look whether it got some.
class NullDerefAfterMalloc : public Simple {
  void serve(const attest_attention& p) const override {
    while (very_unlucky(p)) {
      auto* volatile piece = static_cast<volatile char*>(std::malloc(kPiece));
      piece[0] = 1;
    }
    attend(p);
  }
};
ATTEST_PLUGIN(NullDerefAfterMalloc, "null_deref_after_malloc", "1.0", kSimple);

class StackOverflow : public Simple {
  void serve(const attest_attention& p) const override {
    if (unlucky(p)) descend(1);
    attend(p);
  }
  static int descend(int depth) {
    volatile char frame[4096];
    frame[0] = static_cast<char>(depth);
    return depth == 0 ? 0 : descend(depth + 1) + frame[0];
  }
};
ATTEST_PLUGIN(StackOverflow, "stack_overflow", "1.0", kSimple);

}  // namespace
}  // namespace attest::broken
