// SPDX-License-Identifier: Apache-2.0
// The angles of RoPE to a hundred bits: made by blocks of positions, kept for all threads.
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "reference/definition.hpp"
#include "reference/multiprecision.hpp"
#include "reference/rope.hpp"

namespace attest {

namespace {

using RopeBlock = std::shared_ptr<const std::vector<RopeAngle>>;

/// A number as the sum of two doubles, and what the product of two such loses: below 2^-104 of it.
struct TwoDoubles {
  double high = 0, low = 0;
};

TwoDoubles fast_sum(double high, double low) {
  const double sum = high + low;
  return {sum, low - (sum - high)};
}

TwoDoubles operator*(const TwoDoubles& a, const TwoDoubles& b) {
  const double high = a.high * b.high;
  return fast_sum(high, std::fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high));
}

TwoDoubles operator+(const TwoDoubles& a, const TwoDoubles& b) {
  const double high = a.high + b.high, part = high - a.high;
  return fast_sum(high, (a.high - (high - part)) + (b.high - part) + (a.low + b.low));
}

TwoDoubles operator-(const TwoDoubles& a) { return {-a.high, -a.low}; }

template <Number T>
Rotation<T> product(const Rotation<T>& a, const Rotation<T>& b) {
  return {a.cos * b.cos - a.sin * b.sin, a.sin * b.cos + a.cos * b.sin};
}

/// A rotation twice: for what cancels, and for the rest.
struct KnownRotation {
  Rotation<Mpfr50> exact;
  TwoDoubles cos, sin;

  explicit KnownRotation(Rotation<Mpfr50> rotation) : exact(std::move(rotation)) {
    std::tie(cos.high, cos.low) = split(exact.cos);
    std::tie(sin.high, sin.low) = split(exact.sin);
  }
};

/// The sum of two products with a relative error of 2^-102; by multiprecision where half of the
/// terms or more cancels.
template <class Exact>
TwoDoubles sum_of_products(const TwoDoubles& one, const TwoDoubles& other, const Exact& exact) {
  const TwoDoubles sum = one + other;
  if (std::fabs(sum.high) >= (std::fabs(one.high) + std::fabs(other.high)) / 2) return sum;
  const auto [high, low] = split(Mpfr50(exact()));
  return {high, low};
}

RopeAngle product(const KnownRotation& a, const KnownRotation& b) {
  const TwoDoubles cos = sum_of_products(a.cos * b.cos, -(a.sin * b.sin), [&] {
    return a.exact.cos * b.exact.cos - a.exact.sin * b.exact.sin;
  });
  const TwoDoubles sin = sum_of_products(a.sin * b.cos, a.cos * b.sin, [&] {
    return a.exact.sin * b.exact.cos + a.exact.cos * b.exact.sin;
  });
  return {cos.high, cos.low, sin.high, sin.low};
}

/// Angles of one set of parameters. The formula takes 10 us an angle, so it is used for one
/// position alone, and rotations are multiplied: those by powers of two positions, in
/// multiprecision, to where a block starts, which loses 40 of 166 bits at position 2^40; that with
/// those inside a block, mostly as two doubles.
struct RopeTable {
  static constexpr std::int64_t kBlock = 32;
  std::vector<std::vector<Rotation<Mpfr50>>> powers;  ///< [k][R/2], by 2^k positions
  std::vector<KnownRotation> within;                  ///< [kBlock][R/2], by 0, 1, ... positions
  std::map<std::int64_t, RopeBlock> angles_of_block;  ///< [kBlock][R/2]
};

void extend_powers(RopeTable& table, std::size_t count) {
  while (table.powers.size() < count) {
    std::vector<Rotation<Mpfr50>> twice;
    for (const Rotation<Mpfr50>& last : table.powers.back()) twice.push_back(product(last, last));
    table.powers.push_back(std::move(twice));
  }
}

Rotation<Mpfr50> rotation_of(const RopeTable& table, std::uint64_t positions, std::size_t t) {
  Rotation<Mpfr50> rotation{1, 0};
  for (std::size_t k = 0; positions >> k != 0; ++k)
    if ((positions >> k & 1) != 0) rotation = product(rotation, table.powers[k][t]);
  return rotation;
}

RopeTable rope_table(const RopeParameters& rope) {
  RopeTable table;
  table.powers.push_back(rotations(rope_frequencies<Mpfr50>(rope), 1));
  extend_powers(table, std::bit_width(static_cast<std::uint64_t>(RopeTable::kBlock)));
  for (std::uint64_t n = 0; n < RopeTable::kBlock; ++n)
    for (std::size_t t = 0; t < table.powers[0].size(); ++t)
      table.within.emplace_back(rotation_of(table, n, t));
  return table;
}

std::vector<RopeAngle> rope_block(RopeTable& table, std::int64_t block) {
  const std::int64_t first = block * RopeTable::kBlock;
  const auto distance = static_cast<std::uint64_t>(first < 0 ? -first : first);
  extend_powers(table, static_cast<std::size_t>(std::bit_width(distance)));
  std::vector<KnownRotation> starts;
  for (std::size_t t = 0; t < table.powers[0].size(); ++t) {
    Rotation<Mpfr50> start = rotation_of(table, distance, t);
    if (first < 0) start.sin = -start.sin;
    starts.emplace_back(std::move(start));
  }
  std::vector<RopeAngle> angles;
  angles.reserve(table.within.size());
  for (std::size_t n = 0; n < table.within.size(); ++n)
    angles.push_back(product(starts[n % starts.size()], table.within[n]));
  return angles;
}

std::int64_t block_of(std::int64_t position) {
  return (position >= 0 ? position : position - (RopeTable::kBlock - 1)) / RopeTable::kBlock;
}

/// Kept for all threads, since a run's threads are new ones: making the angles took a fifth of a
/// short run. Up to 2^26 angles (2 GB), then from scratch. One run of quick asks for 6 million; the
/// kernels of a selftest, which differ in what they serve, ask for some 40 million together, and
/// with 2^23 all were dropped every 15 seconds: a quarter of the time.
RopeBlock shared_rope_block(const RopeParameters& rope, std::int64_t block) {
  constexpr std::size_t kMaxAngles = std::size_t{1} << 26;
  constexpr std::size_t kBlocksOfTable = 5;  // as large as so many: its numbers in multiprecision
  static std::mutex mutex;
  static std::map<RopeParameters, RopeTable> tables;
  static std::size_t held = 0;

  const std::lock_guard lock(mutex);
  const std::size_t size = RopeTable::kBlock * static_cast<std::size_t>(rope.rope_dim / 2);
  const auto known = tables.find(rope);
  if (known != tables.end()) {
    const auto found = known->second.angles_of_block.find(block);
    if (found != known->second.angles_of_block.end()) return found->second;
  }
  if (held + size > kMaxAngles) {
    tables.clear();
    held = 0;
  }
  RopeTable& table = tables[rope];
  if (table.powers.empty()) {
    table = rope_table(rope);
    held += kBlocksOfTable * size;
  }
  held += size;
  return table.angles_of_block[block] =
             std::make_shared<const std::vector<RopeAngle>>(rope_block(table, block));
}

/// The R/2 angles of one position: they stay until the thread asks for another block.
const RopeAngle* rope_angles_at(const RopeParameters& rope, std::int64_t position) {
  free_caches_with_thread();
  struct Last {
    RopeParameters rope;
    std::int64_t block = 0;
    RopeBlock angles;
  };
  thread_local Last last;
  const std::int64_t block = block_of(position);
  if (!last.angles || last.block != block || last.rope != rope)
    last = {rope, block, shared_rope_block(rope, block)};
  return last.angles->data() + (position - block * RopeTable::kBlock) * (rope.rope_dim / 2);
}

}  // namespace

RopeAngle rope_angle(const AttentionProblem& problem, std::int64_t position, std::int64_t t) {
  return rope_angles_at(rope_parameters(problem), position)[t];
}

std::vector<RopeAngle> rope_angles(const AttentionProblem& problem, std::int64_t position) {
  const RopeParameters rope = rope_parameters(problem);
  const RopeAngle* first = rope_angles_at(rope, position);
  return {first, first + rope.rope_dim / 2};
}

}  // namespace attest
