// SPDX-License-Identifier: Apache-2.0
// What the runner and the kernel host say to each other: one block at the start of the shared
// memory. Both sides are built together (kHostProtocol); the host has no C++ library, so this is
// plain data with plain functions.
//
// The runner treats everything here as hostile once a kernel has run: a kernel that writes wild may
// hit it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness/placed_call.hpp"

namespace attest {

inline constexpr std::uint32_t kHostProtocol = 3;
/// The file descriptor on which the host finds the shared memory.
inline constexpr int kHostMemoryFd = 3;
/// Unmapped address space on each side of every slot. It costs no memory; one page would let a
/// stride of 4 KiB and more (one row of [B, L, H, D]) jump over it into the next slot.
inline constexpr std::uint64_t kGuardBytes = 64 * 1024;
inline constexpr std::uint64_t kPageBytes = 4096;
inline constexpr std::size_t kMessageBytes = 1024;
inline constexpr std::size_t kDeclarationBytes = 16 * 1024;

/// One slot: `offset` from the arena's base, `file_offset` in the shared memory (guards take no
/// room there).
struct SlotRange {
  std::uint64_t offset, bytes, file_offset;
};

/// Whose move it is: a futex word.
enum class Turn : std::uint32_t { runner, host, dead };
enum class Command : std::uint32_t { load, call, quit };

/// Where the host is, for words such as "in plan()".
enum class Stage : std::uint32_t {
  starting,
  loading,
  opening,
  idle,
  mapping,  ///< the arena again, before a call
  planning,
  running,
  closing,
};

enum class LoadProblem : std::uint32_t {
  none,
  not_loadable,    ///< text: what dlopen says
  no_entry,        ///< no symbol attest_plugin_entry
  null_entry,      ///< the entry returned NULL
  wrong_abi,       ///< number: the version it has
  short_struct,    ///< number: its struct_size
  no_such_kernel,  ///< text: the names there are
  no_forward,
  bad_text,     ///< text: name, version or declaration is NULL or too long
  bad_align,    ///< number: the alignment
  open_failed,  ///< number: the status; text: its message
};

struct LoadReply {
  LoadProblem problem;
  std::int32_t alignment;
  std::int64_t number;
  char text[kMessageBytes];
  char name[256], version[256];
  char declaration[kDeclarationBytes];
};

inline constexpr std::uint64_t kNotMeasured = ~std::uint64_t{0};

struct CallReply {
  std::int32_t status;
  std::uint32_t needs_workspace;  ///< 1: nothing was run, the workspace slot is too small
  std::uint64_t workspace_bytes;  ///< that the plan asked for
  std::uint64_t cpu_ns;           ///< spent in plan and the call
  std::uint64_t elapsed_ns;       ///< from the start of the first repeat to the end of the last
  std::uint64_t peak_bytes;       ///< the most memory it had at once, or kNotMeasured
  char message[kMessageBytes];
};

enum class Access : std::uint32_t { unknown, read, write };

/// Written by the host's signal handler.
struct FaultReport {
  std::uint32_t valid;
  std::int32_t signal, code;
  Access access;
  std::uint64_t address;
  std::uint32_t in_arena;    ///< `address` is then an offset from the arena's base
  std::uint32_t near_stack;  ///< the address lies by the stack pointer
  std::uint64_t data_bytes;  ///< private memory of the process at that time
};

struct HostHeader {
  std::uint32_t protocol;
  std::int32_t runner_pid;
  std::uint32_t turn;  ///< Turn; accessed by the atomics below alone
  std::uint32_t runner_sleeps, host_sleeps;
  Command command;
  Stage stage;
  std::uint32_t generation;  ///< of the slot table; the host maps again when it changes
  std::uint64_t arena_bytes;
  SlotRange slots[kNumSlots];
  char path[4096];
  char kernel[256];  ///< "" = the first
  LoadReply load;
  PlacedCall call;
  CallReply reply;
  std::uint64_t cpu_before_ns;       ///< CPU time of the process when the call began
  std::uint64_t failed_allocations;  ///< since the host started
  FaultReport fault;
};
inline constexpr std::uint64_t kHeaderBytes =
    (sizeof(HostHeader) + kPageBytes - 1) / kPageBytes * kPageBytes;

inline Turn turn_of(const HostHeader& header) {
  return static_cast<Turn>(__atomic_load_n(&header.turn, __ATOMIC_SEQ_CST));
}

/// Sleeps while it is not `mine`, after 200 spins (1.9 us a round trip instead of 24; 50,000 spins
/// are no better). Returns after `timeout_ns` at the latest; 0 = no limit.
void wait_for_turn(HostHeader& header, Turn mine, std::uint64_t timeout_ns);
/// Hands over, and wakes the other side where it sleeps.
void give_turn(HostHeader& header, Turn next);
/// Turn::dead, whoever's turn it was.
void declare_dead(HostHeader& header);

}  // namespace attest
