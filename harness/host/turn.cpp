// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "harness/host/protocol.hpp"

namespace attest {

namespace {

constexpr int kSpins = 200;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The flag that says that this side is about to sleep. Flag and turn are written and read in
/// opposite orders by the two sides, sequentially consistent: one of them sees the other.
std::uint32_t& sleeps(HostHeader& header, Turn side) {
  return side == Turn::host ? header.host_sleeps : header.runner_sleeps;
}

void wake(HostHeader& header) {
  syscall(SYS_futex, &header.turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace

void wait_for_turn(HostHeader& header, Turn mine, std::uint64_t timeout_ns) {
  const Turn others = mine == Turn::host ? Turn::runner : Turn::host;
  for (int i = 0; i < kSpins; ++i) {
    if (turn_of(header) != others) return;
    pause_core();
  }
  timespec timeout{static_cast<time_t>(timeout_ns / 1000000000),
                   static_cast<long>(timeout_ns % 1000000000)};
  __atomic_store_n(&sleeps(header, mine), 1u, __ATOMIC_SEQ_CST);
  if (turn_of(header) == others)
    syscall(SYS_futex, &header.turn, FUTEX_WAIT, static_cast<std::uint32_t>(others),
            timeout_ns ? &timeout : nullptr, nullptr, 0);
  __atomic_store_n(&sleeps(header, mine), 0u, __ATOMIC_SEQ_CST);
}

void give_turn(HostHeader& header, Turn next) {
  // Not over a death: the watcher may have seen the host die while it had the turn.
  std::uint32_t mine = static_cast<std::uint32_t>(next == Turn::host ? Turn::runner : Turn::host);
  if (!__atomic_compare_exchange_n(&header.turn, &mine, static_cast<std::uint32_t>(next), false,
                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    return;
  if (__atomic_load_n(&sleeps(header, next), __ATOMIC_SEQ_CST)) wake(header);
}

void declare_dead(HostHeader& header) {
  __atomic_store_n(&header.turn, static_cast<std::uint32_t>(Turn::dead), __ATOMIC_SEQ_CST);
  wake(header);
}

}  // namespace attest
