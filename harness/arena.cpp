// SPDX-License-Identifier: Apache-2.0
#include "harness/arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

#include "harness/host/map_slots.hpp"

namespace attest {

namespace {

constexpr std::uint64_t kFirstBytes = 32 * 1024;  // of every slot: most cases never grow it
constexpr std::uint64_t kMost = std::uint64_t{1} << 46;
// Growth beyond this asks the machine first: the pages are touched at once.
constexpr std::uint64_t kAskBeyond = std::uint64_t{256} << 20;

std::uint64_t round_to_pages(std::uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// MemAvailable of /proc/meminfo; 2^63 where it cannot be read.
std::uint64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::uint64_t kibibytes = 0;
    if (word == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
  }
  return std::uint64_t{1} << 63;
}

std::uint64_t sum_of(const SlotBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

std::string failed(const char* what) { return fmt::format("{}: {}", what, std::strerror(errno)); }

}  // namespace

std::string human_bytes(std::uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int unit = 0;
  while (unit < 6 && bytes >> (10 * (unit + 1)) != 0) ++unit;
  return unit == 0 ? fmt::format("{} bytes", bytes)
                   : fmt::format("{:.1f} {}", std::ldexp(static_cast<double>(bytes), -10 * unit),
                                 kUnits[unit]);
}

std::int64_t slot_memory(const SlotBytes& bytes) {
  std::uint64_t total = 0;
  for (std::uint64_t slot : bytes) {
    if (slot > kMost) return std::numeric_limits<std::int64_t>::max();
    total += round_to_pages(slot);
  }
  return static_cast<std::int64_t>(total);
}

Arena::Arena() {
  // 10 and up: the host gets its own numbers by dup2, and the process may have closed 0, 1 or 2.
  const int made = memfd_create("attest-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made < 0) {
    error_ = failed("memfd_create");
    return;
  }
  fd_ = fcntl(made, F_DUPFD_CLOEXEC, 10);
  close(made);
  // A kernel that shortened the file would take the memory from under the runner (SIGBUS).
  if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(kHeaderBytes)) != 0 ||
      fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    error_ = failed("shared memory");
    return;
  }
  void* header = mmap(nullptr, kHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (header == MAP_FAILED) {
    error_ = failed("mmap of the header");
    return;
  }
  header_ = static_cast<HostHeader*>(header);
  SlotBytes first;
  first.fill(kFirstBytes);
  file_bytes_ = dense_bytes_ = kHeaderBytes;
  if (auto why = map_dense(first)) error_ = *why;
}

Arena::~Arena() {
  if (header_) {
    unmap_slots(base_, arena_bytes_);
    munmap(header_, kHeaderBytes);
  }
  if (fd_ >= 0) close(fd_);
}

std::optional<std::string> Arena::lengthen(std::uint64_t bytes) {
  if (bytes <= file_bytes_) return std::nullopt;
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return failed("growing the shared memory");
  file_bytes_ = bytes;
  return std::nullopt;
}

/// The pages that calls on far slots touched: a kernel that runs wild there may touch many.
void Arena::drop_far_pages() {
  if (file_bytes_ <= dense_bytes_) return;
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(dense_bytes_),
            static_cast<off_t>(file_bytes_ - dense_bytes_));
}

std::optional<std::string> Arena::map_dense(const SlotBytes& bytes) {
  const std::uint64_t need = kHeaderBytes + sum_of(bytes);
  const std::uint64_t more = need - std::min(need, dense_bytes_);
  if (more > kAskBeyond && more > available_memory())
    return fmt::format("the tensors need {} of memory, {} are available", human_bytes(need),
                       human_bytes(available_memory()));
  drop_far_pages();
  if (auto why = lengthen(need)) return why;
  if (auto why = map(bytes)) return why;
  dense_bytes_ = std::max(dense_bytes_, need);
  bytes_ = bytes;
  return std::nullopt;
}

std::optional<std::string> Arena::map(const SlotBytes& bytes) {
  SlotRange slots[kNumSlots];
  std::uint64_t offset = kGuardBytes, file_offset = kHeaderBytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    slots[i] = {offset, bytes[i], file_offset};
    offset += bytes[i] + kGuardBytes;
    file_offset += bytes[i];
  }
  std::byte* base = map_slots(fd_, slots, offset);
  if (!base)
    return fmt::format("mapping {} of tensors: {}", human_bytes(file_offset), std::strerror(errno));
  unmap_slots(base_, arena_bytes_);
  base_ = base;
  arena_bytes_ = offset;
  mapped_ = bytes;
  std::memcpy(slots_, slots, sizeof slots);
  ++generation_;
  publish();
  return std::nullopt;
}

void Arena::publish() {
  header_->protocol = kHostProtocol;
  header_->generation = generation_;
  header_->arena_bytes = arena_bytes_;
  std::memcpy(header_->slots, slots_, sizeof slots_);
}

bool Arena::header_is_intact() const {
  return header_->generation == generation_ && header_->arena_bytes == arena_bytes_ &&
         std::memcmp(header_->slots, slots_, sizeof slots_) == 0;
}

std::optional<std::string> Arena::reserve(const SlotBytes& bytes) {
  SlotBytes grown = bytes_;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > kMost)
      return fmt::format("{} needs {} of memory", name(static_cast<Slot>(i)),
                         human_bytes(bytes[i]));
    // Half as much again, so that a run of growing cases maps a few times, not each time.
    if (bytes[i] > bytes_[i]) grown[i] = round_to_pages(bytes[i] + bytes[i] / 2);
  }
  return grown == mapped_ ? std::nullopt : map_dense(grown);
}

std::optional<std::string> Arena::reserve_far(const SlotBytes& bytes) {
  SlotBytes far = bytes_;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > kMost)
      return fmt::format("{} needs {} of address space", name(static_cast<Slot>(i)),
                         human_bytes(bytes[i]));
    far[i] = std::max(bytes_[i], round_to_pages(bytes[i]));
  }
  if (far == mapped_) return std::nullopt;
  if (auto why = lengthen(kHeaderBytes + sum_of(far))) return why;
  drop_far_pages();
  return map(far);
}

std::optional<std::string> Arena::reserve_workspace(std::uint64_t bytes) {
  constexpr auto kWorkspace = static_cast<std::size_t>(Slot::workspace);
  static_assert(kWorkspace + 1 == kNumSlots);
  if (bytes <= mapped_[kWorkspace]) return std::nullopt;
  if (bytes > kMost) return fmt::format("a workspace of {}", human_bytes(bytes));
  SlotBytes grown = mapped_;
  grown[kWorkspace] = round_to_pages(bytes + bytes / 2);
  if (mapped_ == bytes_) return map_dense(grown);
  if (auto why = lengthen(kHeaderBytes + sum_of(grown))) return why;
  return map(grown);
}

}  // namespace attest
