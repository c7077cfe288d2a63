// SPDX-License-Identifier: Apache-2.0
// attest-host: the process that a broken kernel may kill. It maps the runner's memory, loads one
// kernel, and answers calls one at a time. It links libc alone, so that it brings no OpenMP and no
// C++ library of its own into the kernel's process.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness/host/allocation.hpp"
#include "harness/host/fault_handler.hpp"
#include "harness/host/map_slots.hpp"
#include "harness/host/plugin_call.hpp"
#include "harness/tune_malloc.hpp"

#if defined(ATTEST_SANITIZED)
// The handler below names the tensor where the sanitizer would print an address; reports of their
// own end the process with a status that nothing else uses.
extern "C" const char* __asan_default_options() {
  return "exitcode=86:detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:"
         "handle_abort=0:use_sigaltstack=0:allocator_may_return_null=1";
}
extern "C" const char* __tsan_default_options() {
  return "exitcode=86:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
         "use_sigaltstack=0";
}
extern "C" const char* __ubsan_default_options() { return "exitcode=86:print_stacktrace=0"; }
#endif

namespace attest {

namespace {

volatile sig_atomic_t is_copy = 0;

/// In a child that the kernel forks: it must not answer calls beside its parent, nor report its own
/// faults as those of the parent, nor outlive it.
void become_copy() {
  is_copy = 1;
  leave_faults();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

[[noreturn]] void give_up(const char* why) {
  (void)!write(STDERR_FILENO, why, strlen(why));
  _exit(2);
}

void bound_process(const HostHeader& header) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  // Killed with the runner. The parent is the thread that watches this process, so it outlives us
  // unless the whole runner goes.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != header.runner_pid) give_up("attest-host: its runner is gone\n");
}

int serve(HostHeader& header) {
  LoadedPlugin loaded{};
  std::byte* base = nullptr;
  std::uint64_t mapped_bytes = 0;
  std::uint32_t generation = 0;
  SlotRange slots[kNumSlots];
  for (;;) {
    while (turn_of(header) != Turn::host) wait_for_turn(header, Turn::host, 0);
    if (header.command == Command::quit) {
      if (loaded.plugin.close) loaded.plugin.close(loaded.state);
      return 0;
    }
    if (!base || generation != header.generation) {
      if (header.stage != Stage::starting) header.stage = Stage::mapping;
      unmap_slots(base, mapped_bytes);
      generation = header.generation;
      mapped_bytes = header.arena_bytes;
      memcpy(slots, header.slots, sizeof slots);
      base = map_slots(kHostMemoryFd, slots, mapped_bytes);
      if (!base) give_up("attest-host: cannot map the shared memory\n");
      faults_in_arena(base, mapped_bytes);
      if (header.stage == Stage::mapping) header.stage = Stage::idle;
    }
    if (header.command == Command::load) {
      load_plugin(header.path, header.kernel, loaded, header.load, header.stage);
    } else {
      fill_allocations(header.call.workspace_fill);
      watch_peak();
      call_kernel(loaded, base, slots[static_cast<int>(Slot::workspace)], header.call, header.reply,
                  header.stage, header.cpu_before_ns);
      header.reply.peak_bytes = peak_since_watched();
      fill_allocations(0);
    }
    if (is_copy) _exit(0);
    give_turn(header, Turn::runner);
  }
}

int run() {
  void* memory = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, kHostMemoryFd, 0);
  if (memory == MAP_FAILED) give_up("attest-host is started by attest, not by hand\n");
  auto& header = *static_cast<HostHeader*>(memory);
  if (header.protocol != kHostProtocol)
    give_up("attest-host: another version of attest started it\n");
  bound_process(header);
  pthread_atfork(nullptr, nullptr, become_copy);
  tune_malloc();
  count_failed_allocations(header);
  report_faults(header);
  return serve(header);
}

}  // namespace

}  // namespace attest

int main() { return attest::run(); }
