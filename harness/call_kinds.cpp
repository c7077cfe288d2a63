// SPDX-License-Identifier: Apache-2.0
#include "harness/call_kinds.hpp"

#include <array>

namespace attest {

std::string_view name(CallKind kind) {
  constexpr std::array<std::string_view, kNumCallKinds> kNames{
      "backward",   "decode",         "cache_contiguous",
      "cache_ring", "cache_paged",    "cache_rotated",
      "splits",     "component_rope", "component_rope_inverse"};
  const auto index = static_cast<std::size_t>(kind);
  return index < kNames.size() ? kNames[index] : "?";
}

bool is_of(CallKind kind, const AttentionProblem& p) {
  const bool decode = p.operation == Operation::decode;
  switch (kind) {
    case CallKind::backward: return p.operation == Operation::backward;
    case CallKind::decode: return decode;
    case CallKind::cache_contiguous: return decode && p.cache == CacheKind::contiguous;
    case CallKind::cache_ring: return decode && p.cache == CacheKind::ring;
    case CallKind::cache_paged: return decode && p.cache == CacheKind::paged;
    case CallKind::cache_rotated: return p.cache_rotated;
    case CallKind::splits: return p.num_splits > 0;
    case CallKind::rope: return p.operation == Operation::rope;
    case CallKind::rope_inverse: return p.rope_inverse;
  }
  return false;
}

bool declares(const Declaration& declaration, CallKind kind) {
  const CacheScope& cache = declaration.cache;
  switch (kind) {
    case CallKind::backward: return declaration.backward.served;
    case CallKind::decode: return cache.served();
    case CallKind::cache_contiguous: return cache.contiguous;
    case CallKind::cache_ring: return cache.ring;
    case CallKind::cache_paged: return cache.paged;
    case CallKind::cache_rotated: return cache.served() && cache.rotated;
    case CallKind::splits: return cache.splits;
    case CallKind::rope: return declaration.rope.served;
    case CallKind::rope_inverse: return declaration.rope.inverse;
  }
  return false;
}

std::uint32_t call_kind_bits(const AttentionProblem& problem) {
  std::uint32_t bits = 0;
  for (int n = 0; n < kNumCallKinds; ++n)
    if (is_of(static_cast<CallKind>(n), problem)) bits |= 1u << n;
  return bits;
}

}  // namespace attest
