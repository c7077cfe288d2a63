// SPDX-License-Identifier: Apache-2.0
// Kernels for what a run must tell apart: a mistake that shows once and never again, a process that
// the kernel ends by itself, and one that was killed from outside.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "impls/broken/simple.hpp"

namespace attest::broken {
namespace {

/// Wrong in one call of its life: whoever makes the file that ATTEST_BROKEN_ONCE names.
class WrongOnce : public Simple {
  void serve(const attest_attention& p) const override {
    attend(p);
    const char* path = std::getenv("ATTEST_BROKEN_ONCE");
    if (!path || !has_elements(p.o)) return;
    const int file = ::open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return;
    ::close(file);
    *static_cast<float*>(p.o->data) += 1;
  }
};
ATTEST_PLUGIN(WrongOnce, "wrong_once", "1.0",
              "dtype=f32 v_head_dim=any gqa base=full,causal align=top_left,bottom_right seqlens_k "
              "scale scale_nonpositive lse layout=any empty_dims");

/// As if somebody had killed it.
class KillItself : public Simple {
  void serve(const attest_attention& p) const override {
    if (unlucky(p)) ::raise(SIGKILL);
    attend(p);
  }
};
ATTEST_PLUGIN(KillItself, "kill_itself", "1.0", kSimple);

/// The same in every call: nothing tells it from a machine on which nothing lives.
class KillAlways : public Simple {
  void serve(const attest_attention&) const override { ::raise(SIGKILL); }
};
ATTEST_PLUGIN(KillAlways, "kill_always", "1.0", kSimple);

/// Right, and takes a while, so that whoever wants to kill it finds it in a call.
class Slow : public Simple {
  void serve(const attest_attention& p) const override {
    const timespec while_asleep{0, 300'000'000};
    ::nanosleep(&while_asleep, nullptr);
    attend(p);
  }
};
ATTEST_PLUGIN(Slow, "slow", "1.0", kSimple);

}  // namespace
}  // namespace attest::broken
