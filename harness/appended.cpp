// SPDX-License-Identifier: Apache-2.0
#include "harness/appended.hpp"

#include <cmath>
#include <vector>

#include "harness/cache.hpp"
#include "reference/definition.hpp"
#include "reference/head.hpp"

namespace attest {
namespace {

/// A new key as the cache must hold it, and by how much each channel may differ.
struct StoredKey {
  std::vector<double> value, allowed;
};

/// x cos - y sin and x sin + y cos of every pair, rounded to the storage type: off by half an ulp
/// of it and by 3/2 u_rope (|x cos| + |y sin|), as docs/tolerance.md has it for a rotated channel.
StoredKey rotated_key(const AttentionProblem& problem, const Arithmetic& arithmetic,
                      std::vector<double> row, std::int64_t position) {
  StoredKey key{std::move(row), {}};
  key.allowed.assign(key.value.size(), 0);
  const std::vector<RopeAngle> angles = rope_angles(problem, position);
  const DTypeLimits type = limits(problem.dtype);
  for (std::size_t t = 0; t < angles.size(); ++t) {
    const std::size_t first = first_of_pair(problem.rope, t);
    const std::size_t second = second_of_pair(problem.rope, angles.size(), t);
    const long double cosine = static_cast<long double>(angles[t].cos_high) + angles[t].cos_low;
    const long double sine = static_cast<long double>(angles[t].sin_high) + angles[t].sin_low;
    const long double x = key.value[first], y = key.value[second];
    const auto put = [&](std::size_t c, long double a, long double b) {
      const auto size = static_cast<double>(std::fabs(a) + std::fabs(b));
      key.value[c] = static_cast<double>(a + b);
      key.allowed[c] = 1.5 * arithmetic.u_rope * size + type.half_min_subnormal;
    };
    put(first, x * cosine, -y * sine);
    put(second, x * sine, y * cosine);
  }
  return key;
}

bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace

std::optional<WrongAppended> wrong_appended(const AttentionProblem& problem,
                                            const AttentionInputs& inputs,
                                            const PrecisionProfile& profile,
                                            const Observation& seen, std::int64_t& compared) {
  const Arithmetic arithmetic = arithmetic_of(problem, profile);
  const double most = limits(problem.dtype).max_finite / 2;
  for (std::int64_t b = 0; b < problem.batch; ++b)
    for (std::int64_t i = 0; i < new_rows(problem, b); ++i)
      for (std::int64_t g = 0; g < problem.num_kv_heads; ++g) {
        const std::int64_t position = cached_rows(problem, b) + i;
        const auto row =
            static_cast<std::size_t>((b * problem.num_kv_heads + g) * problem.q_len + i);
        std::vector<double> k;
        for (std::int64_t c = 0; c < problem.head_dim; ++c)
          k.push_back(inputs.k.at(b, g, position, c));
        StoredKey key{k, std::vector<double>(k.size(), 0)};
        if (problem.cache_rotated) key = rotated_key(problem, arithmetic, k, position);
        for (std::size_t c = 0; c < k.size(); ++c) {
          const std::size_t flat = row * k.size() + c;
          const double actual = seen.appended_k.values[flat], expected = key.value[c];
          ++compared;
          if (!std::isfinite(expected) || std::fabs(expected) > most) continue;
          const bool right = key.allowed[c] > 0 ? std::fabs(actual - expected) <= key.allowed[c]
                                                : same_bits(actual, expected);
          if (!right) return WrongAppended{Output::appended_k, flat, expected, actual};
        }
        for (std::int64_t c = 0; c < problem.v_head_dim; ++c) {
          const std::size_t flat =
              row * static_cast<std::size_t>(problem.v_head_dim) + static_cast<std::size_t>(c);
          const double actual = seen.appended_v.values[flat];
          const double expected = inputs.v.at(b, g, position, c);
          ++compared;
          if (!same_bits(actual, expected))
            return WrongAppended{Output::appended_v, flat, expected, actual};
        }
      }
  return std::nullopt;
}

}  // namespace attest
