// SPDX-License-Identifier: Apache-2.0
// T5 relative buckets (Raffel et al. 2020), decided in integers: docs/semantics.md section 4. The
// logarithm's floor is often on an exact boundary (|r| = 64 of the default table), where floating
// point of any precision may fall on either side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attest {

/// n^(N-E) E^t >= max_distance^t E^(N-E): bucket E + t or a later one holds distance n >= E.
/// Integer does not overflow.
template <class Integer>
bool t5_reaches(std::int64_t n, std::int64_t t, std::int64_t N, std::int64_t E,
                std::int64_t max_distance) {
  const auto power = [](std::int64_t base, std::int64_t exponent) -> Integer {
    return pow(Integer(base), static_cast<unsigned>(exponent));
  };
  return power(n, N - E) * power(E, t) >= power(max_distance, t) * power(E, N - E);
}

/// first_distance[t], t in [0, N-E): the smallest distance n in bucket E + t. The last bucket has
/// no end: N-1 = E + t also holds every larger n.
template <class Integer>
std::vector<std::int64_t> t5_first_distances(std::int64_t N, std::int64_t E,
                                             std::int64_t max_distance) {
  std::vector<std::int64_t> first_distance;
  for (std::int64_t t = 0; t < N - E; ++t) {
    // max_distance always reaches: E^t md^(N-E) >= md^t E^(N-E) for t <= N-E and md > E.
    std::int64_t low = E, high = max_distance;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (t5_reaches<Integer>(middle, t, N, E, max_distance))
        high = middle;
      else
        low = middle + 1;
    }
    first_distance.push_back(low);
  }
  return first_distance;
}

/// The bucket of r = kpos - qpos. Bidirectional: N = floor(buckets/2), start = N for r > 0, n =
/// |r|; causal: N = buckets, n = max(-r, 0). E = floor(N/2) >= 1 distances have a bucket of their
/// own. `first_distance` is t5_first_distances(N, E, max_distance).
inline std::int64_t t5_bucket_of(std::int64_t r, std::int64_t buckets, bool bidirectional,
                                 const std::vector<std::int64_t>& first_distance) {
  const std::int64_t N = bidirectional ? buckets / 2 : buckets;
  const std::int64_t start = bidirectional && r > 0 ? N : 0;
  const std::int64_t n = bidirectional ? std::max(r, -r) : std::max(-r, std::int64_t{0});
  const std::int64_t E = N / 2;
  if (n < E) return start + n;
  const auto past = std::upper_bound(first_distance.begin(), first_distance.end(), n);
  return start + E + (past - first_distance.begin()) - 1;
}

}  // namespace attest
