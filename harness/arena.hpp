// SPDX-License-Identifier: Apache-2.0
// The memory that calls are laid out in: one memfd, a header and fixed slots between guards, mapped
// by the runner and by the kernel host. It grows by mapping again, and never shrinks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "harness/host/protocol.hpp"

namespace attest {

using SlotBytes = std::array<std::uint64_t, kNumSlots>;

class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Why there is no memory at all (memfd_create failed); empty where there is.
  const std::string& error() const { return error_; }

  /// Makes every slot at least this large; returns why that is not possible. Slots may move, their
  /// contents are lost; the host follows at the next call.
  std::optional<std::string> reserve(const SlotBytes& bytes);
  /// Slots of exactly these sizes, of which only what is touched takes memory: for tensors with
  /// gaps of gigabytes. The next reserve() goes back to the slots of before.
  std::optional<std::string> reserve_far(const SlotBytes& bytes);
  /// The same for the workspace alone, which is the last slot: the others keep their contents and
  /// offsets, though base() changes.
  std::optional<std::string> reserve_workspace(std::uint64_t bytes);

  /// Writes into the header what a host must find there when it starts.
  void publish();

  /// Whether the slots are those of reserve_far().
  bool is_far() const { return mapped_ != bytes_; }
  std::byte* base() const { return base_; }
  const SlotRange& slot(Slot slot) const { return slots_[static_cast<int>(slot)]; }
  HostHeader& header() const { return *header_; }
  /// The header still says where the slots lie: no kernel wrote over that.
  bool header_is_intact() const;
  int fd() const { return fd_; }

 private:
  /// Maps slots of these sizes, in a file that is long enough already.
  std::optional<std::string> map(const SlotBytes& bytes);
  std::optional<std::string> map_dense(const SlotBytes& bytes);
  std::optional<std::string> lengthen(std::uint64_t bytes);
  void drop_far_pages();
  std::string error_;
  int fd_ = -1;
  HostHeader* header_ = nullptr;
  std::byte* base_ = nullptr;
  // Of our own: a kernel that writes wild may hit what the header says.
  SlotRange slots_[kNumSlots] = {};
  std::uint64_t arena_bytes_ = 0;
  std::uint32_t generation_ = 0;
  SlotBytes bytes_{};                               ///< of the dense slots
  SlotBytes mapped_{};                              ///< as mapped now: these, or far ones
  std::uint64_t file_bytes_ = 0, dense_bytes_ = 0;  ///< of the file; that dense slots ever took
};

/// Memory that slots of these sizes take, rounded up to pages; saturates.
std::int64_t slot_memory(const SlotBytes& bytes);
/// "1.5 GiB"
std::string human_bytes(std::uint64_t bytes);

}  // namespace attest
