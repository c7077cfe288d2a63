// SPDX-License-Identifier: Apache-2.0
// The softmax over blocks of keys, and over parts that are merged.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

/// The keys of a row as blocks of the sequence's keys, with the running maximum after each.
struct Blocks {
  std::vector<double> max_after;    ///< of the block that a key lies in
  std::vector<std::int64_t> block;  ///< number of that block
};
Blocks blocks_of(const RowAt& at, const WeighedRow& row, std::int64_t size) {
  Blocks blocks;
  double running = row.sink;
  std::size_t n = 0;
  while (n < row.keys.size()) {
    const std::int64_t block = (row.keys[n] - at.segment->k0) / size;
    std::size_t end = n;
    for (; end < row.keys.size() && (row.keys[end] - at.segment->k0) / size == block; ++end)
      running = std::max(running, row.z[end]);
    for (; n < end; ++n) {
      blocks.max_after.push_back(running);
      blocks.block.push_back(block);
    }
  }
  return blocks;
}

void o_not_rescaled(const RowAt& at, WeighedRow& row, std::int64_t size) {
  const Blocks blocks = blocks_of(at, row, size);
  for (std::size_t n = 0; n < row.keys.size(); ++n)
    row.weight[n] = std::exp(row.z[n] - blocks.max_after[n]);
}
void l_not_rescaled(const RowAt& at, WeighedRow& row, std::int64_t size) {
  const Blocks blocks = blocks_of(at, row, size);
  row.sum = row.sink == kMinusInf ? 0 : 1;
  for (std::size_t n = 0; n < row.keys.size(); ++n)
    row.sum += std::exp(row.z[n] - blocks.max_after[n]);
}
void l_before_rescale(const RowAt& at, WeighedRow& row, std::int64_t size) {
  const Blocks blocks = blocks_of(at, row, size);
  double sum = row.sink == kMinusInf ? 0 : 1, before = row.sink;
  for (std::size_t n = 0; n < row.keys.size();) {
    const double after = blocks.max_after[n];
    const std::int64_t block = blocks.block[n];
    for (; n < row.keys.size() && blocks.block[n] == block; ++n) sum += std::exp(row.z[n] - after);
    sum *= std::exp(before - after);
    before = after;
  }
  row.sum = sum;
}
void nothing_rescaled(const RowAt& at, WeighedRow& row, std::int64_t size) {
  o_not_rescaled(at, row, size);
  l_not_rescaled(at, row, size);
}

struct BlockMistake {
  const char* id;
  const char* sentence;
  void (*weigh)(const RowAt&, WeighedRow&, std::int64_t);
};
constexpr BlockMistake kBlockMistakes[] = {
    {"o_not_rescaled", "o is not rescaled when a later block of # keys raises the maximum",
     o_not_rescaled},
    {"l_not_rescaled", "the sum is not rescaled when a later block of # keys raises the maximum",
     l_not_rescaled},
    {"l_before_rescale", "the sum is rescaled after a block of # keys is added, not before",
     l_before_rescale},
    {"nothing_rescaled",
     "neither o nor the sum is rescaled when a block of # keys raises the maximum",
     nothing_rescaled},
};
bool block_mistakes() {
  for (const BlockMistake& m : kBlockMistakes)
    for (const std::int64_t size : {1, 8, 16, 32, 64, 128, 256})
      register_hypothesis({.id = std::string(m.id) + "/" + std::to_string(size),
                           .sentence = with_number(m.sentence, size),
                           .explains = {"nothing_rescaled", "o_not_rescaled", "l_not_rescaled"},
                           .rank = 1,
                           .applies = always,
                           .change = [m, size](Variant& v) {
                             v.weigh = [m, size](const RowAt& at, WeighedRow& row) {
                               if (!row.keys.empty()) m.weigh(at, row, size);
                             };
                           }});
  return true;
}
[[maybe_unused]] const bool block_mistakes_are_known = block_mistakes();

/// Keys [k0, k1) in `splits` runs of the same length, rounded up to `unit`.
std::int64_t split_of(const RowAt& at, std::int64_t key, std::int64_t splits, std::int64_t unit) {
  const std::int64_t n = num_keys(at);
  std::int64_t size = (n + splits - 1) / splits;
  size = std::max<std::int64_t>((size + unit - 1) / unit * unit, 1);
  return std::min((key - at.segment->k0) / size, splits - 1);
}
struct Split {
  double max = kMinusInf;
  std::vector<std::size_t> members;
};
std::vector<Split> splits_of(const RowAt& at, const WeighedRow& row, std::int64_t splits,
                             std::int64_t unit) {
  std::vector<Split> parts(static_cast<std::size_t>(splits));
  for (std::size_t n = 0; n < row.keys.size(); ++n) {
    Split& part = parts[static_cast<std::size_t>(split_of(at, row.keys[n], splits, unit))];
    part.max = std::max(part.max, row.z[n]);
    part.members.push_back(n);
  }
  return parts;
}
bool split_mistakes() {
  for (const std::int64_t splits : {2, 3, 4, 8})
    for (const std::int64_t unit : {1, 64}) {
      const std::string end = "/" + std::to_string(splits) + "x" + std::to_string(unit);
      register_hypothesis(
          {.id = "split_merge_ignores_max" + end,
           .sentence = with_number("# parts of the keys are merged by their sums alone, without "
                                   "their maxima",
                                   splits),
           .explains = {"split_merge_ignores_max"},
           .rank = 1,
           .applies = always,
           .change = [splits, unit](Variant& v) {
             v.weigh = [splits, unit](const RowAt& at, WeighedRow& row) {
               if (row.keys.empty()) return;
               row.sum = 0;
               for (const Split& part : splits_of(at, row, splits, unit))
                 for (const std::size_t n : part.members) {
                   row.weight[n] = std::exp(row.z[n] - part.max);
                   row.sum += row.weight[n];
                 }
             };
             v.finish = [](const RowAt&, RowOutput& out) {
               out.lse_unknown = out.outcome == RowOutcome::ordinary;
             };
           }});
      register_hypothesis({.id = "split_merge_averages" + end,
                           .sentence = with_number(
                               "# parts of the keys are averaged, whatever their weight", splits),
                           .explains = {"split_merge_ignores_max", "partial_lse_ignored"},
                           .rank = 1,
                           .applies = always,
                           .change = [splits, unit](Variant& v) {
                             v.weigh = [splits, unit](const RowAt& at, WeighedRow& row) {
                               double parts = 0;
                               for (const Split& part : splits_of(at, row, splits, unit)) {
                                 double sum = 0;
                                 for (const std::size_t n : part.members) sum += row.weight[n];
                                 for (const std::size_t n : part.members) row.weight[n] /= sum;
                                 parts += !part.members.empty();
                               }
                               row.sum = parts;
                             };
                             v.finish = [](const RowAt&, RowOutput& out) {
                               out.lse_unknown = out.outcome == RowOutcome::ordinary;
                             };
                           }});
      register_hypothesis(
          {.id = "merge_identity_nan" + end,
           .sentence =
               with_number("NaN where one of # parts of the keys holds none that is seen", splits),
           .explains = {"merge_identity_nan", "empty_split_merged"},
           .rank = 1,
           .applies = always,
           .change = [splits, unit](Variant& v) {
             v.weigh = [splits, unit](const RowAt& at, WeighedRow& row) {
               for (const Split& part : splits_of(at, row, splits, unit))
                 if (part.members.empty()) row.sum = kQuietNaN;
             };
           }});
      register_hypothesis(
          {.id = "empty_split_merged" + end,
           .sentence = with_number("one of # parts of the keys that holds none that is seen is "
                                   "merged with weight exp(0)",
                                   splits),
           .explains = {"empty_split_merged"},
           .rank = 1,
           .applies = always,
           .change = [splits, unit](Variant& v) {
             v.weigh = [splits, unit](const RowAt& at, WeighedRow& row) {
               if (row.keys.empty()) return;
               for (const Split& part : splits_of(at, row, splits, unit))
                 if (part.members.empty()) row.sum += std::exp(-row.max);
             };
           }});
      register_hypothesis(
          {.id = "sink_per_split" + end,
           .sentence = with_number("the sink is counted in each of # parts of the keys", splits),
           .explains = {"sink_per_split"},
           .rank = 1,
           .applies = has_sink,
           .change = [splits](Variant& v) {
             v.weigh = [splits](const RowAt&, WeighedRow& row) {
               if (row.sink > kMinusInf)
                 row.sum += static_cast<double>(splits - 1) * std::exp(row.sink - row.max);
             };
           }});
    }
  return true;
}
[[maybe_unused]] const bool split_mistakes_are_known = split_mistakes();

bool sink_per_block() {
  for (const std::int64_t size : {8, 16, 32, 64, 128})
    register_hypothesis(
        {.id = "sink_per_block/" + std::to_string(size),
         .sentence = with_number("the sink is counted in every block of # keys", size),
         .explains = {"sink_per_split"},
         .rank = 1,
         .applies = has_sink,
         .change = [size](Variant& v) {
           v.weigh = [size](const RowAt& at, WeighedRow& row) {
             const std::int64_t blocks = (num_keys(at) + size - 1) / size;
             if (row.sink > kMinusInf && blocks > 1)
               row.sum += static_cast<double>(blocks - 1) * std::exp(row.sink - row.max);
           };
         }});
  return true;
}
[[maybe_unused]] const bool sink_per_block_is_known = sink_per_block();

ATTEST_HYPOTHESIS(l_misses_last, {.id = "l_misses_last_key",
                                  .sentence = "the sum of the weights misses the last key",
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    v.weigh = [](const RowAt&, WeighedRow& row) {
                                      if (!row.keys.empty()) row.sum -= row.weight.back();
                                    };
                                  }});
ATTEST_HYPOTHESIS(l_misses_first, {.id = "l_misses_first_key",
                                   .sentence = "the sum of the weights misses the first key",
                                   .explains = {"l_misses_last_key"},
                                   .applies = always,
                                   .change = [](Variant& v) {
                                     v.weigh = [](const RowAt&, WeighedRow& row) {
                                       if (!row.keys.empty()) row.sum -= row.weight.front();
                                     };
                                   }});
bool l_misses_last_of_block() {
  for (const std::int64_t size : {8, 16, 32, 64, 128})
    register_hypothesis(
        {.id = "l_misses_last_key/" + std::to_string(size),
         .sentence = with_number("the sum misses the last seen key of every block of # keys", size),
         .explains = {"l_misses_last_key"},
         .rank = 1,
         .applies = always,
         .change = [size](Variant& v) {
           v.weigh = [size](const RowAt& at, WeighedRow& row) {
             for (std::size_t n = 0; n < row.keys.size(); ++n) {
               const auto block = [&](std::size_t m) {
                 return (row.keys[m] - at.segment->k0) / size;
               };
               // A key that is alone in its block stays: dividing by 0 would show as NaN.
               const bool last = n + 1 == row.keys.size() || block(n + 1) != block(n);
               if (last && n > 0 && block(n - 1) == block(n)) row.sum -= row.weight[n];
             }
           };
         }});
  return true;
}
[[maybe_unused]] const bool l_misses_last_of_block_is_known = l_misses_last_of_block();

/// The maximum starts at 0: a row of very low scores has weights that underflow.
void start_at_zero(Variant& v, bool as_empty) {
  v.weigh = [&v](const RowAt&, WeighedRow& row) {
    if (row.keys.empty()) return;
    const double max = std::max(row.max, 0.0);
    const bool wide = v.problem.dtype == DType::f64;
    const auto stored = [wide](double x) {
      return wide ? x : static_cast<double>(static_cast<float>(x));
    };
    row.sum = row.sink == kMinusInf ? 0 : stored(std::exp(row.sink - max));
    double largest = 0;
    for (std::size_t n = 0; n < row.keys.size(); ++n) {
      row.weight[n] = stored(std::exp(row.z[n] - max));
      row.sum += row.weight[n];
      largest = std::max(largest, row.weight[n]);
    }
    row.max = max;
    if (!wide && largest < 0x1p-120) row.extra_error = 0x1p-149 / std::max(largest, 0x1p-149);
  };
  v.finish = [as_empty](const RowAt&, RowOutput& out) {
    if (out.outcome != RowOutcome::ordinary || out.sum != 0) return;
    if (as_empty) std::fill(out.o.begin(), out.o.end(), 0.0);
    out.lse_unknown = !as_empty;
  };
}
ATTEST_HYPOTHESIS(max_init_zero,
                  {.id = "max_init_zero",
                   .sentence = "the running maximum starts at 0: low scores underflow",
                   .explains = {"max_init_flt_min"},
                   .applies = always,
                   .change = [](Variant& v) { start_at_zero(v, false); }});
ATTEST_HYPOTHESIS(max_init_zero_empty,
                  {.id = "max_init_zero/empty",
                   .sentence = "the running maximum starts at 0: rows of low scores count as empty",
                   .explains = {"max_init_zero", "max_init_flt_min"},
                   .applies = always,
                   .change = [](Variant& v) { start_at_zero(v, true); }});
ATTEST_HYPOTHESIS(max_not_subtracted,
                  {.id = "max_not_subtracted",
                   .sentence = "the maximum is not subtracted: high scores overflow exp",
                   .applies = always,
                   .change = [](Variant& v) {
                     v.weigh = [&v](const RowAt&, WeighedRow& row) {
                       const bool wide = v.problem.dtype == DType::f64;
                       const auto exponential = [wide](double x) {
                         return wide ? std::exp(x)
                                     : static_cast<double>(static_cast<float>(std::exp(x)));
                       };
                       if (row.keys.empty()) return;
                       row.sum = row.sink == kMinusInf ? 0 : exponential(row.sink);
                       for (std::size_t n = 0; n < row.keys.size(); ++n) {
                         row.weight[n] = exponential(row.z[n]);
                         row.sum += row.weight[n];
                       }
                       if (!wide) row.sum = static_cast<double>(static_cast<float>(row.sum));
                       row.max = 0;
                     };
                   }});

}  // namespace
}  // namespace attest
