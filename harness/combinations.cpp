// SPDX-License-Identifier: Apache-2.0
#include "harness/combinations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "harness/draw_features.hpp"
#include "harness/feature_cases.hpp"
#include "harness/generate.hpp"

namespace attest {
namespace {

// Larger than any list below, so that steps of it walk each list whole.
constexpr std::uint64_t kStep = 104729;
constexpr std::size_t kMostMissing = 20;

/// A feature, or kNumFeatures + a dtype.
using Factor = int;
constexpr int kNumFactors = kNumFeatures + 4;
static_assert(kNumFactors <= 64);
constexpr FeatureSet bit(Factor factor) { return FeatureSet{1} << factor; }
constexpr bool is_dtype(Factor factor) { return factor >= kNumFeatures; }
constexpr Factor factor_of(DType dtype) { return kNumFeatures + static_cast<int>(dtype); }

std::string name_of(Factor factor) {
  return std::string(is_dtype(factor) ? name(static_cast<DType>(factor - kNumFeatures))
                                      : name(static_cast<Feature>(factor)));
}

std::vector<Factor> declared_factors(const Declaration& declaration) {
  std::vector<Factor> factors;
  for (int f = 0; f < kNumFeatures; ++f)
    if (declaration.features[static_cast<std::size_t>(f)]) factors.push_back(f);
  for (const DType dtype : declaration.dtypes) factors.push_back(factor_of(dtype));
  return factors;
}

bool is_core(Factor factor) {
  if (is_dtype(factor)) return true;
  switch (static_cast<Feature>(factor)) {
    case Feature::gqa:
    case Feature::causal:
    case Feature::window_left:
    case Feature::window_right:
    case Feature::seqlens_q:
    case Feature::seqlens_k:
    case Feature::packed:
    case Feature::mask:
    case Feature::blocks:
    case Feature::bias:
    case Feature::alibi_absolute:
    case Feature::alibi_signed:
    case Feature::alibi_key_anchored:
    case Feature::rope_interleaved:
    case Feature::rope_half:
    case Feature::softcap:
    case Feature::sink:
    case Feature::dropout: return true;
    default: return false;
  }
}

/// All sets of `size` of the factors with at most one dtype; without one where there is no choice.
std::vector<FeatureSet> sets_of(const std::vector<Factor>& factors, int size) {
  std::vector<FeatureSet> sets;
  const auto extend = [&](auto& self, std::size_t from, FeatureSet set, int left,
                          bool has_dtype) -> void {
    if (left == 0) {
      sets.push_back(set);
      return;
    }
    for (std::size_t i = from; i < factors.size(); ++i)
      if (!has_dtype || !is_dtype(factors[i]))
        self(self, i + 1, set | bit(factors[i]), left - 1, is_dtype(factors[i]));
  };
  extend(extend, 0, 0, size, false);
  return sets;
}

struct Lists {
  std::vector<FeatureSet> pairs, triples;
};

Lists lists_of(const Declaration& declaration) {
  const std::vector<Factor> factors = declared_factors(declaration);
  std::vector<Factor> core;
  std::copy_if(factors.begin(), factors.end(), std::back_inserter(core), is_core);
  return {sets_of(factors, 2), sets_of(core, 3)};
}

/// The lists of the declaration last asked for: draw() asks for one after the other.
const Lists& cached_lists(const Declaration& declaration) {
  thread_local Lists lists;
  thread_local std::optional<std::pair<std::array<bool, kNumFeatures>, std::vector<DType>>> of;
  const auto key = std::pair(declaration.features, declaration.dtypes);
  if (of != key) {
    lists = lists_of(declaration);
    of = key;
  }
  return lists;
}

Combination combination_of(FeatureSet set) {
  Combination combination;
  for (Factor factor = 0; factor < kNumFactors; ++factor) {
    if ((set & bit(factor)) == 0) continue;
    if (is_dtype(factor))
      combination.dtype = static_cast<DType>(factor - kNumFeatures);
    else
      combination.features.push_back(static_cast<Feature>(factor));
  }
  return combination;
}

FeatureSet set_of(const AttentionProblem& problem) {
  std::uint64_t features = 0;
  for (const Feature feature : features_of(problem)) features |= bit(static_cast<int>(feature));
  return feature_set(features, problem.dtype);
}

FeatureSet set_of(const Combination& combination) {
  FeatureSet set = combination.dtype ? bit(factor_of(*combination.dtype)) : 0;
  for (const Feature feature : combination.features) set |= bit(static_cast<int>(feature));
  return set;
}

/// Sizes, dtype and values alone.
AttentionProblem stripped(const AttentionProblem& problem) {
  AttentionProblem plain = sizes_alone(problem);
  plain.data = problem.data;
  plain.v_data = problem.v_data;
  plain.seed = problem.seed;
  plain.want_lse = problem.want_lse;
  return plain;
}

/// Small problems from which every feature can be turned on.
std::vector<AttentionProblem> starts() {
  AttentionProblem plain;
  plain.batch = plain.num_heads = plain.num_kv_heads = 2;
  plain.q_len = 3;
  plain.kv_len = 5;
  plain.head_dim = plain.v_head_dim = 4;
  plain.want_lse = false;
  std::vector<AttentionProblem> all(4, plain);
  all[1].kv_len = 3;
  all[2].window_right = 1;
  all[3].base = Base::causal;
  return all;
}

/// Whether some declared problem has all of `on` and nothing of `off`.
bool is_possible(const Declaration& declaration, FeatureSet on, FeatureSet off) {
  Declaration without = declaration;
  for (Factor factor = 0; factor < kNumFeatures; ++factor)
    if (off & bit(factor)) without.features[static_cast<std::size_t>(factor)] = false;
  std::erase_if(without.dtypes, [off](DType dtype) { return (off & bit(factor_of(dtype))) != 0; });
  if (without.dtypes.empty()) return false;
  Combination wanted = combination_of(on);
  for (int turn = 0; turn < 2; ++turn) {
    for (AttentionProblem problem : starts()) {
      problem.dtype = wanted.dtype.value_or(without.dtypes.front());
      for (const Feature feature : wanted.features) add_feature(problem, feature);
      problem = make_legal(problem, without);
      const FeatureSet has = set_of(problem);
      if ((has & on) == on && (has & off) == 0 && !not_declared(without, problem)) return true;
    }
    std::reverse(wanted.features.begin(), wanted.features.end());
  }
  return false;
}

std::string value_name(Factor factor, bool on) {
  return on ? name_of(factor) : "no " + name_of(factor);
}

}  // namespace

Combination combination_at(const Declaration& declaration, std::uint64_t number) {
  const Lists& lists = cached_lists(declaration);
  const std::vector<FeatureSet>& list = number % 2 == 0 ? lists.pairs : lists.triples;
  if (list.empty()) return {};
  return combination_of(list[number / 2 * kStep % list.size()]);
}

std::optional<AttentionProblem> with_combination(Dice& dice, const Declaration& declaration,
                                                 const AttentionProblem& problem,
                                                 const Combination& wanted) {
  const FeatureSet needed = set_of(wanted);
  std::vector<Feature> features = wanted.features;
  // Richly drawn first, then what is known to work; what is turned on last wins where two collide.
  for (const bool plainly : {false, true})
    for (int turn = 0; turn < 2; ++turn) {
      AttentionProblem changed = plainly ? stripped(problem) : problem;
      if (wanted.dtype) changed.dtype = *wanted.dtype;
      for (const Feature feature : features) {
        if (plainly)
          add_feature(changed, feature);
        else
          turn_on(dice, declaration, feature, changed);
      }
      changed = make_legal(std::move(changed), declaration);
      if ((set_of(changed) & needed) == needed) return changed;
      std::reverse(features.begin(), features.end());
    }
  return std::nullopt;
}

FeatureSet feature_set(std::uint64_t features, DType dtype) {
  return features | bit(factor_of(dtype));
}

PairCoverage pair_coverage(const Declaration& declaration, const std::vector<FeatureSet>& tested) {
  PairCoverage coverage;
  const std::vector<Factor> factors = declared_factors(declaration);
  // A vector, since it is walked for each pair: a set took 2 % of a run.
  std::vector<FeatureSet> distinct = tested;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const auto seen = [&distinct](FeatureSet on, FeatureSet off) {
    return std::any_of(distinct.begin(), distinct.end(),
                       [&](FeatureSet set) { return (set & on) == on && (set & off) == 0; });
  };
  for (std::size_t a = 0; a < factors.size(); ++a)
    for (std::size_t b = a + 1; b < factors.size(); ++b)
      for (int values = 0; values < 4; ++values) {
        const bool a_on = values / 2 == 0, b_on = values % 2 == 0;
        // A dtype is the value of one factor: it is not "off", and two exclude each other.
        if (is_dtype(factors[a]) || (is_dtype(factors[b]) && !b_on)) continue;
        const FeatureSet on = (a_on ? bit(factors[a]) : 0) | (b_on ? bit(factors[b]) : 0);
        const FeatureSet off = (a_on ? 0 : bit(factors[a])) | (b_on ? 0 : bit(factors[b]));
        const bool covered = seen(on, off);
        if (!covered && !is_possible(declaration, on, off)) continue;
        ++coverage.possible;
        coverage.covered += covered;
        if (!covered && coverage.missing.size() < kMostMissing)
          coverage.missing.push_back(
              fmt::format("{} + {}", value_name(factors[a], a_on), value_name(factors[b], b_on)));
      }
  for (const FeatureSet triple : lists_of(declaration).triples) {
    const bool covered = seen(triple, 0);
    if (!covered && !is_possible(declaration, triple, 0)) continue;
    ++coverage.triples_possible;
    coverage.triples_covered += covered;
  }
  for (Factor factor = 0; factor < kNumFactors; ++factor)
    if (std::find(factors.begin(), factors.end(), factor) == factors.end())
      coverage.excluded.push_back(name_of(factor));
  return coverage;
}

}  // namespace attest
