// SPDX-License-Identifier: Apache-2.0
#include "reference/groups.hpp"

#include <hwy/contrib/sort/vqsort.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace attest {
namespace {

/// exp(z - m) is 0 in double below this.
constexpr double kUnderflow = -745.2;

/// Numbers of the keys that have a weight, by ascending z. The key's number stands in the low bits
/// of the order-preserving integer of z, as many bits as n needs, so that one sort of 64-bit
/// integers does: scores closer than 2^-(53 - bits) relative come in the order of their numbers.
std::size_t sort_keys(const RowScores& row, Buffer<std::int32_t>& order) {
  thread_local Buffer<std::uint64_t> packed;
  thread_local const hwy::Sorter sorter;
  std::uint64_t* keys = packed.reserve(row.n);
  const int bits = std::bit_width(row.n);
  const std::uint64_t number_mask = (std::uint64_t{1} << bits) - 1;
  std::size_t count = 0;
  for (std::size_t x = 0; x < row.n; ++x) {
    const auto z = std::bit_cast<std::int64_t>(row.z[x]);
    const auto ordered = static_cast<std::uint64_t>(z) ^
                         (static_cast<std::uint64_t>(z >> 63) | 0x8000'0000'0000'0000u);
    keys[count] = (ordered & ~number_mask) | x;
    count += row.z[x] - row.m > kUnderflow;
  }
  if (count < 64)
    std::sort(keys, keys + count);
  else
    sorter(keys, count, hwy::SortAscending());
  order.reserve(count);
  for (std::size_t x = 0; x < count; ++x)
    order[x] = static_cast<std::int32_t>(keys[x] & number_mask);
  return count;
}

/// sum of k_g^2 over groups of keys within `width` of their first, divided by n.
double coherence(const double* z, std::size_t n, double width) {
  double squares = 0, members = 0, first = -INFINITY;
  for (std::size_t x = 0; x < n; ++x) {
    if (z[x] - first > width) {
      squares += members * members;
      members = 0;
      first = z[x];
    }
    ++members;
  }
  return n == 0 ? 1 : (squares + members * members) / static_cast<double>(n);
}

/// Splits the sorted keys where `apart(first, next)` says so, gives a lone key its sqrt 2, and
/// returns the sum over groups of the squared group sum of `weight(key)`.
template <class Apart, class Weight>
double split(const double* z, const Buffer<std::int32_t>& order, std::size_t n, double* lone,
             GroupList& groups, Apart apart, Weight weight) {
  groups.count = groups.num_members = 0;
  groups.member.reserve(n);
  groups.end.reserve(n);
  double grouped = 0;
  for (std::size_t begin = 0; begin < n;) {
    std::size_t end = begin + 1;
    while (end < n && !apart(z[begin], z[end])) ++end;
    double sum = 0;
    for (std::size_t x = begin; x < end; ++x) sum += weight(static_cast<std::size_t>(order[x]));
    grouped += sum * sum;
    if (end - begin == 1) {
      lone[order[begin]] *= std::numbers::sqrt2;
    } else {
      for (std::size_t x = begin; x < end; ++x) groups.member[groups.num_members++] = order[x];
      groups.end[groups.count++] = static_cast<std::int32_t>(groups.num_members);
    }
    begin = end;
  }
  return grouped;
}

}  // namespace

void find_groups(const Arithmetic& arithmetic, const RowScores& row, RowTerms& terms, RowSums& sums,
                 Groups& groups) {
  thread_local Buffer<std::int32_t> order;
  thread_local Buffer<double> sorted;
  const std::size_t n = sort_keys(row, order);
  double* z = sorted.reserve(n);
  for (std::size_t x = 0; x < n; ++x) z[x] = row.z[static_cast<std::size_t>(order[x])];

  sums.kappa = coherence(z, n, 8 * arithmetic.u);

  std::copy_n(terms.noise.data(), row.n, terms.lone_noise.data());
  sums.noise_grouped =
      sums.noise_square - sums.sink_noise * sums.sink_noise +
      split(
          z, order, n, terms.lone_noise.data(), groups.equal,
          [](double first, double next) { return next - first > 1e-13 * (1 + std::fabs(next)); },
          [&](std::size_t key) { return terms.noise[key]; });

  std::copy_n(terms.eps.data(), row.n, terms.lone_eps.data());
  groups.rounded.count = groups.rounded.num_members = 0;
  sums.eps_grouped = 0;
  // The dropout factor is rounded on the way to P.V alone: l does not see it.
  const double u_factor = arithmetic.has_dropout ? arithmetic.u : 0;
  const double width = (arithmetic.profile.u_p + u_factor) / 2;
  if (width > 0)
    sums.eps_grouped = sums.eps_square +
                       split(
                           z, order, n, terms.lone_eps.data(), groups.rounded,
                           [width](double first, double next) { return next - first > width; },
                           [&](std::size_t key) { return terms.eps[key] - u_factor * row.p[key]; });
}

}  // namespace attest
