// SPDX-License-Identifier: Apache-2.0
#include "harness/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/host/plugin_call.hpp"

namespace attest {

namespace {

std::string before(std::uint64_t bytes, Slot slot) {
  return fmt::format("write, {} bytes before {}", bytes, name(slot));
}
std::string past(std::uint64_t bytes, Slot slot) {
  return fmt::format("write, {} bytes past the end of {}", bytes, name(slot));
}

/// Index of the first byte that differs, or `size`.
std::size_t first_difference(const std::byte* a, const std::byte* b, std::size_t size) {
  if (size == 0 || std::memcmp(a, b, size) == 0) return size;
  std::size_t i = 0;
  while (a[i] == b[i]) ++i;
  return i;
}

/// 1 where an element of the tensor lies, in elements from the start of its block.
void cover(const TensorForm& form, std::uint8_t mark, std::vector<std::uint8_t>& cells) {
  for (std::int64_t a = 0; a < form.shape[0]; ++a)
    for (std::int64_t b = 0; b < form.shape[1]; ++b)
      for (std::int64_t c = 0; c < form.shape[2]; ++c)
        for (std::int64_t d = 0; d < form.shape[3]; ++d)
          cells[static_cast<std::size_t>(form.first + a * form.strides[0] + b * form.strides[1] +
                                         c * form.strides[2] + d * form.strides[3])] = mark;
}

struct Inside {
  bool gap = false, own = false, guest = false;
};

/// What differs between the elements of a block: the gaps, the tensor itself, v beside k.
Inside differences_inside(const CallForm& form, const Region& region, const std::byte* was,
                          const std::byte* is) {
  const TensorForm& own = form[static_cast<std::size_t>(region.slot)];
  const TensorForm& v = form[static_cast<std::size_t>(Slot::v)];
  const bool shared = region.slot == Slot::k && v.present && v.home == Slot::k;
  const auto size = static_cast<std::size_t>(size_of(region.element));
  std::vector<std::uint8_t> cells((region.end - region.begin) / size);
  cover(own, 1, cells);
  if (shared) cover(v, 2, cells);
  Inside inside;
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    if (std::memcmp(was + cell * size, is + cell * size, size) == 0) continue;
    bool& kind = cells[cell] == 0 ? inside.gap : cells[cell] == 1 ? inside.own : inside.guest;
    kind = true;
  }
  return inside;
}

/// One row among far ones: what hit the row, and what hit the poison beside it.
void compare_far_row(const Region& region, const std::byte* was, const std::byte* is, bool output,
                     Snapshot::Changes& changes) {
  const auto add_once = [](std::vector<std::string>& list, std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
  };
  const std::size_t size = region.window_end - region.window_begin;
  const std::size_t front = region.begin - region.window_begin;
  const std::size_t row = region.end - region.begin;
  if (!output && std::memcmp(was + front, is + front, row) != 0)
    add_once(changes.inputs_modified, name(region.slot));
  if (std::memcmp(was, is, front) != 0 ||
      std::memcmp(was + front + row, is + front + row, size - front - row) != 0)
    add_once(changes.writes_outside, fmt::format("write, beside a row of {}", name(region.slot)));
}

/// What the call writes: gradients, or o and lse, or y.
bool is_output(const CallForm& form, Slot slot) {
  if (form[static_cast<std::size_t>(Slot::d_o)].present) return is_gradient(slot);
  return slot == Slot::o || slot == Slot::lse || slot == Slot::y;
}

}  // namespace

void Snapshot::take(const std::vector<Region>& regions, const std::byte* base) {
  std::size_t total = 0;
  for (const Region& region : regions) total += region.window_end - region.window_begin;
  bytes_.resize(total);
  std::byte* to = bytes_.data();
  for (const Region& region : regions) {
    const std::size_t size = region.window_end - region.window_begin;
    std::memcpy(to, base + region.window_begin, size);
    to += size;
  }
}

void Snapshot::take_again(const std::vector<Region>& regions, Slot slot, std::uint64_t begin,
                          std::uint64_t end, const std::byte* base) {
  std::byte* to = bytes_.data();
  for (const Region& region : regions) {
    if (region.slot == slot && begin >= region.window_begin && end <= region.window_end)
      std::memcpy(to + (begin - region.window_begin), base + begin, end - begin);
    to += region.window_end - region.window_begin;
  }
}

Snapshot::Changes Snapshot::compare(const CallForm& form, const std::vector<Region>& regions,
                                    const std::byte* base) const {
  Changes changes;
  const std::byte* was = bytes_.data();
  for (const Region& region : regions) {
    const std::byte* is = base + region.window_begin;
    const std::size_t size = region.window_end - region.window_begin;
    const std::size_t front = region.begin - region.window_begin;
    const std::size_t span = region.end - region.begin;
    const std::size_t back = size - front - span;
    const auto element = static_cast<std::size_t>(size_of(region.element));
    const TensorForm& tensor = form[static_cast<std::size_t>(region.slot)];
    if (region.far) {
      compare_far_row(region, was, is, is_output(form, region.slot), changes);
      was += size;
      continue;
    }
    const bool dense = tensor.count() * size_of(region.element) == static_cast<std::int64_t>(span);
    if (!is_output(form, region.slot) && std::memcmp(was, is, size) == 0) {
      was += size;
      continue;
    }
    if (const std::size_t at = first_difference(was, is, front); at != front)
      // To the start of the element that was hit: a write of one float before o is 4 bytes before.
      changes.writes_outside.push_back(
          before((front - at + element - 1) / element * element, region.slot));
    if (!is_output(form, region.slot) || !dense) {
      const Inside inside = differences_inside(form, region, was + front, is + front);
      if (inside.gap)
        changes.writes_outside.push_back(
            fmt::format("write, between the elements of {}", name(region.slot)));
      if (inside.own && !is_output(form, region.slot))
        changes.inputs_modified.emplace_back(name(region.slot));
      if (inside.guest) changes.inputs_modified.emplace_back(name(Slot::v));
    }
    if (const std::size_t at = first_difference(was + front + span, is + front + span, back);
        at != back) {
      const bool shared = region.slot == Slot::k &&
                          form[static_cast<std::size_t>(Slot::v)].home == Slot::k &&
                          form[static_cast<std::size_t>(Slot::v)].present;
      changes.writes_outside.push_back(
          past(at / element * element, shared ? Slot::v : region.slot));
    }
    was += size;
  }
  return changes;
}

std::vector<std::string> workspace_writes(const Arena& arena, std::uint64_t workspace_bytes,
                                          const PlacedCall& call) {
  std::vector<std::string> writes;
  const SlotRange& slot = arena.slot(Slot::workspace);
  if (workspace_bytes == 0 || workspace_bytes > slot.bytes) return writes;
  const std::uint64_t begin = workspace_offset(slot, workspace_bytes, call.workspace_at_end != 0);
  const std::uint64_t end = begin + workspace_bytes;
  const WorkspaceMargin margin = workspace_margin(slot, workspace_bytes, begin);
  const auto differs = [&](std::uint64_t offset) {
    const auto* pattern = reinterpret_cast<const std::byte*>(&call.workspace_fill);
    return arena.base()[offset] != pattern[offset % sizeof call.workspace_fill];
  };
  for (std::uint64_t offset = margin.begin; offset < begin; ++offset)
    if (differs(offset)) {
      writes.push_back(before(begin - offset, Slot::workspace));
      break;
    }
  for (std::uint64_t offset = end; offset < margin.end; ++offset)
    if (differs(offset)) {
      writes.push_back(past(offset - end, Slot::workspace));
      break;
    }
  return writes;
}

}  // namespace attest
