// SPDX-License-Identifier: Apache-2.0
// What a call changed that it must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/layout.hpp"

namespace attest {

/// The bytes of all regions, as they stand before a call.
class Snapshot {
 public:
  void take(const std::vector<Region>& regions, const std::byte* base);
  /// Takes the bytes [begin, end) of a region, arena offsets, as they are now: the call may write
  /// them.
  void take_again(const std::vector<Region>& regions, Slot slot, std::uint64_t begin,
                  std::uint64_t end, const std::byte* base);

  struct Changes {
    std::vector<std::string> writes_outside;   ///< "write, 4 bytes before o"
    std::vector<std::string> inputs_modified;  ///< "q"
  };
  Changes compare(const CallForm& form, const std::vector<Region>& regions,
                  const std::byte* base) const;

 private:
  std::vector<std::byte> bytes_;
};

/// Writes outside a workspace that was filled with `pattern`.
std::vector<std::string> workspace_writes(const Arena& arena, std::uint64_t workspace_bytes,
                                          const PlacedCall& call);

}  // namespace attest
