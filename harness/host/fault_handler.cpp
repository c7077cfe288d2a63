// SPDX-License-Identifier: Apache-2.0
#include "harness/host/fault_handler.hpp"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

namespace attest {

namespace {

HostHeader* report_to = nullptr;
std::uintptr_t arena_begin = 0, arena_end = 0;
alignas(16) unsigned char handler_stack[64 * 1024];

constexpr std::uintptr_t kNearStack = 64 * 1024;
constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};

/// Resident or not: the 6th field of statm, data and stack in pages. Only async-signal-safe calls.
std::uint64_t private_bytes() {
  const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128];
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  std::uint64_t field = 0;
  int index = 0;
  for (ssize_t i = 0; i < got && index < 6; ++i) {
    if (text[i] >= '0' && text[i] <= '9') {
      field = field * 10 + static_cast<std::uint64_t>(text[i] - '0');
    } else if (++index < 6) {
      field = 0;
    }
  }
  return field * kPageBytes;
}

Access access_of(int signal, const ucontext_t& context) {
#if defined(__x86_64__)
  // Bit 1 of the page-fault error code: 1 = write.
  if (signal == SIGSEGV || signal == SIGBUS)
    return (context.uc_mcontext.gregs[REG_ERR] & 2) ? Access::write : Access::read;
#else
  (void)signal, (void)context;
#endif
  return Access::unknown;
}

std::uintptr_t stack_pointer([[maybe_unused]] const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(context.uc_mcontext.sp);
#else
  return 0;
#endif
}

void on_fault(int signal, siginfo_t* info, void* context_pointer) {
  FaultReport& fault = report_to->fault;
  std::uint32_t first = 0;
  // Several threads may fault at once: the first one speaks, the others end the process with it.
  if (__atomic_compare_exchange_n(&fault.valid, &first, 1u, false, __ATOMIC_SEQ_CST,
                                  __ATOMIC_SEQ_CST)) {
    const auto& context = *static_cast<const ucontext_t*>(context_pointer);
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const bool has_address = signal == SIGSEGV || signal == SIGBUS;
    fault.signal = signal;
    fault.code = info->si_code;
    fault.access = access_of(signal, context);
    fault.in_arena = has_address && address >= arena_begin && address < arena_end;
    fault.address = !has_address ? 0 : fault.in_arena ? address - arena_begin : address;
    const std::uintptr_t stack = stack_pointer(context);
    fault.near_stack = has_address && address + kNearStack > stack && address < stack + kNearStack;
    fault.data_bytes = private_bytes();
    _exit(128 + signal);
  }
  for (;;) pause();
}

}  // namespace

void report_faults(HostHeader& header) {
  report_to = &header;
  stack_t stack;
  memset(&stack, 0, sizeof stack);
  stack.ss_sp = handler_stack;
  stack.ss_size = sizeof handler_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigfillset(&action.sa_mask);
  for (int signal : kFatal) sigaction(signal, &action, nullptr);
}

void leave_faults() {
  for (int signal : kFatal) ::signal(signal, SIG_DFL);
}

void faults_in_arena(const std::byte* base, std::uint64_t bytes) {
  arena_begin = reinterpret_cast<std::uintptr_t>(base);
  arena_end = arena_begin + bytes;
}

}  // namespace attest
