// SPDX-License-Identifier: Apache-2.0
// The softmax over blocks of keys, the log-sum-exp, sinks, dropout.
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
               if (n + 1 == row.keys.size() || block(n + 1) != block(n)) row.sum -= row.weight[n];
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

void change_lse(Variant& v, double (*lse)(const RowOutput&)) {
  v.finish = [lse](const RowAt&, RowOutput& out) {
    if (out.outcome == RowOutcome::ordinary || std::isfinite(out.lse)) out.lse = lse(out);
  };
}
constexpr double kLn2 = 0.69314718055994530942;
ATTEST_HYPOTHESIS(lse_base_2, {.id = "lse_base_2",
                               .sentence = "lse to base 2; declared natural",
                               .applies = always,
                               .change = [](Variant& v) {
                                 change_lse(v, [](const RowOutput& out) { return out.lse / kLn2; });
                               }});
ATTEST_HYPOTHESIS(lse_times_ln2,
                  {.id = "lse_times_ln2",
                   .sentence = "lse is multiplied by ln 2: natural, where base 2 was converted",
                   .explains = {"lse_base_e"},
                   .applies = always,
                   .change = [](Variant& v) {
                     change_lse(v, [](const RowOutput& out) { return out.lse * kLn2; });
                   }});
ATTEST_HYPOTHESIS(lse_without_max,
                  {.id = "lse_without_max",
                   .sentence = "lse misses the maximum: log of the sum alone",
                   .applies = always,
                   .change = [](Variant& v) {
                     change_lse(v, [](const RowOutput& out) {
                       return out.outcome == RowOutcome::ordinary ? std::log(out.sum) : out.lse;
                     });
                   }});
ATTEST_HYPOTHESIS(lse_is_max, {.id = "lse_is_max",
                               .sentence = "lse is the maximum alone, without log of the sum",
                               .applies = always,
                               .change = [](Variant& v) {
                                 change_lse(v, [](const RowOutput& out) {
                                   return out.outcome == RowOutcome::ordinary ? out.max : out.lse;
                                 });
                               }});
ATTEST_HYPOTHESIS(lse_log_twice, {.id = "lse_without_log",
                                  .sentence = "lse is the maximum plus the sum, without its log",
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    change_lse(v, [](const RowOutput& out) {
                                      return out.outcome == RowOutcome::ordinary ? out.max + out.sum
                                                                                 : out.lse;
                                    });
                                  }});
ATTEST_HYPOTHESIS(lse_negated, {.id = "lse_sign_flipped",
                                .sentence = "lse has the wrong sign",
                                .applies = always,
                                .change = [](Variant& v) {
                                  change_lse(v, [](const RowOutput& out) { return -out.lse; });
                                }});
ATTEST_HYPOTHESIS(lse_log2_mixed, {.id = "lse_log2_of_sum",
                                   .sentence = "lse mixes bases: the maximum plus log2 of the sum",
                                   .explains = {"lse_base_2"},
                                   .applies = always,
                                   .change = [](Variant& v) {
                                     change_lse(v, [](const RowOutput& out) {
                                       return out.outcome == RowOutcome::ordinary
                                                  ? out.max + std::log2(out.sum)
                                                  : out.lse;
                                     });
                                   }});
ATTEST_HYPOTHESIS(lse_not_written, {.id = "lse_unwritten",
                                    .sentence = "lse is not written",
                                    .applies = always,
                                    .change = [](Variant& v) {
                                      v.finish = [](const RowAt&, RowOutput& out) {
                                        out.lse_unwritten = true;
                                      };
                                    }});
void scale_o(Variant& v, double (*factor)(const RowOutput&)) {
  v.finish = [factor](const RowAt&, RowOutput& out) {
    if (out.outcome != RowOutcome::ordinary) return;
    for (double& x : out.o) x *= factor(out);
  };
}
ATTEST_HYPOTHESIS(o_not_divided, {.id = "o_not_divided",
                                  .sentence = "o is not divided by the sum of the weights",
                                  .explains = {"sum_not_divided"},
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    scale_o(v, [](const RowOutput& out) { return out.sum; });
                                  }});
ATTEST_HYPOTHESIS(o_divided_twice, {.id = "o_divided_twice",
                                    .sentence = "o is divided by the sum of the weights twice",
                                    .applies = always,
                                    .change = [](Variant& v) {
                                      scale_o(v, [](const RowOutput& out) { return 1 / out.sum; });
                                    }});

void change_sink(Variant& v, double (*sink)(const AttentionProblem&, double)) {
  for (double& x : v.inputs.sink.values)
    if (x > kMinusInf) x = sink(v.problem, x);
}
ATTEST_HYPOTHESIS(sink_dropped, {.id = "sink_dropped",
                                 .sentence = "the sink is ignored",
                                 .applies = has_sink,
                                 .change = [](Variant& v) { v.inputs.sink = {}; }});
ATTEST_HYPOTHESIS(sink_not_in_lse,
                  {.id = "sink_not_in_lse",
                   .sentence = "lse leaves the sink out",
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     v.finish = [&v](const RowAt& at, RowOutput& out) {
                       const double sink = v.inputs.sink.at(0, at.h, 0, 0);
                       if (out.outcome == RowOutcome::empty) out.lse = kMinusInf;
                       if (out.outcome == RowOutcome::ordinary && sink > kMinusInf) {
                         // By difference only where that is well conditioned.
                         const double rest = out.sum - std::exp(sink - out.max);
                         if (rest > 1e-3 * out.sum)
                           out.lse = out.max + std::log(rest);
                         else
                           out.lse_unknown = true;
                       }
                     };
                   }});
ATTEST_HYPOTHESIS(sink_in_lse_alone,
                  {.id = "sink_in_lse_alone",
                   .sentence = "the sink is in lse but not in the weights of o",
                   .explains = {"sink_dropped", "sink_in_lse_only"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     v.finish = [&v](const RowAt& at, RowOutput& out) {
                       const double sink = v.inputs.sink.at(0, at.h, 0, 0);
                       if (out.outcome != RowOutcome::ordinary || sink == kMinusInf) return;
                       const double rest = out.sum - std::exp(sink - out.max);
                       out.o_unknown = !(rest > 1e-3 * out.sum);
                       for (double& x : out.o) x *= out.sum / rest;
                     };
                   }});
ATTEST_HYPOTHESIS(sink_scaled,
                  {.id = "sink_scaled_or_softcapped",
                   .sentence = "the sink is multiplied by the scale",
                   .explains = {"sink_scaled"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem p, double x) { return x * effective_scale(p); });
                   }});
ATTEST_HYPOTHESIS(sink_softcapped,
                  {.id = "sink_softcapped",
                   .sentence = "the sink is softcapped",
                   .explains = {"sink_scaled_or_softcapped"},
                   .applies = [](Problem p) { return has_sink(p) && has_softcap(p); },
                   .change =
                       [](Variant& v) {
                         change_sink(v, [](Problem p, double x) {
                           return p.softcap * std::tanh(x / p.softcap);
                         });
                       }});
ATTEST_HYPOTHESIS(sink_scaled_and_capped,
                  {.id = "sink_scaled_and_softcapped",
                   .sentence = "the sink is scaled and softcapped like a score",
                   .explains = {"sink_scaled_or_softcapped"},
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem p, double x) {
                       const double a = x * effective_scale(p);
                       return p.softcap > 0 ? p.softcap * std::tanh(a / p.softcap) : a;
                     });
                   }});
ATTEST_HYPOTHESIS(sink_first_head, {.id = "sink_of_first_head",
                                    .sentence = "every head gets the sink of the first",
                                    .explains = {"sink_of_wrong_head", "sink_of_head_0"},
                                    .applies = has_sink,
                                    .change = [](Variant& v) {
                                      auto& s = v.inputs.sink.values;
                                      if (!s.empty()) s.assign(s.size(), s.front());
                                    }});
ATTEST_HYPOTHESIS(sink_kv_head, {.id = "sink_of_kv_head",
                                 .sentence = "the sink is read by the key/value head",
                                 .explains = {"sink_of_wrong_head"},
                                 .applies = has_sink,
                                 .change = [](Variant& v) {
                                   const auto s = v.inputs.sink;
                                   for (std::int64_t h = 0; h < v.problem.num_heads; ++h)
                                     v.inputs.sink.at(0, h, 0, 0) =
                                         s.at(0, kv_head(v.problem, h), 0, 0);
                                 }});
ATTEST_HYPOTHESIS(sink_as_key_zero,
                  {.id = "sink_is_zero_logit",
                   .sentence = "the sink is taken for a logit of 0, whatever is given",
                   .applies = has_sink,
                   .change = [](Variant& v) {
                     change_sink(v, [](Problem, double) { return 0.0; });
                   }});
ATTEST_HYPOTHESIS(sink_lost_empty, {.id = "sink_lost_in_empty_row",
                                    .sentence = "an empty row loses its sink: lse is -inf",
                                    .explains = {"sink_lost_when_split_empty",
                                                 "empty_row_sink_lost", "empty_row_forgets_sink"},
                                    .applies = has_sink,
                                    .change = [](Variant& v) {
                                      v.finish = [](const RowAt&, RowOutput& out) {
                                        if (out.outcome == RowOutcome::empty) out.lse = kMinusInf;
                                      };
                                    }});

void change_dropout(Variant& v, double (*f)(double p, double f)) {
  v.weigh = [&v, f](const RowAt&, WeighedRow& row) {
    for (double& x : row.dropout) x = f(v.problem.dropout_p, x);
  };
}
ATTEST_HYPOTHESIS(dropout_ignored, {.id = "dropout_ignored",
                                    .sentence = "dropout is ignored",
                                    .applies = has_dropout,
                                    .change = [](Variant& v) {
                                      change_dropout(v, [](double, double) { return 1.0; });
                                    }});
ATTEST_HYPOTHESIS(dropout_not_scaled,
                  {.id = "dropout_not_scaled",
                   .sentence = "kept weights are not divided by 1 - p",
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     change_dropout(v, [](double, double x) { return x == 0 ? 0.0 : 1.0; });
                   }});
ATTEST_HYPOTHESIS(dropout_scaled_twice, {.id = "dropout_scaled_twice",
                                         .sentence = "kept weights are divided by 1 - p twice",
                                         .applies = has_dropout,
                                         .change = [](Variant& v) {
                                           change_dropout(v,
                                                          [](double, double x) { return x * x; });
                                         }});
ATTEST_HYPOTHESIS(dropout_by_p, {.id = "dropout_scaled_by_p",
                                 .sentence = "kept weights are divided by p, not 1 - p",
                                 .applies = has_dropout,
                                 .change = [](Variant& v) {
                                   change_dropout(
                                       v, [](double p, double x) { return x == 0 ? 0.0 : 1 / p; });
                                 }});
ATTEST_HYPOTHESIS(dropout_inverted,
                  {.id = "dropout_inverted",
                   .sentence = "the keep mask of dropout is read the other way round",
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     for (auto& x : v.inputs.keep.values) x = x == 0;
                   }});
/// Dropped keys are hidden before the softmax; what is kept is divided by 1 - p or not.
void drop_scores(Variant& v, bool scaled, bool lse_too) {
  v.weigh = [scaled, lse_too](const RowAt&, WeighedRow& row) {
    if (row.keys.empty()) return;
    double dropped = 0;
    for (std::size_t n = 0; n < row.keys.size(); ++n)
      if (row.dropout[n] == 0) dropped += row.weight[n];
    const double kept = row.sum - dropped;
    if (!lse_too) {
      for (double& x : row.dropout)
        if (x != 0) x = (scaled ? x : 1) * row.sum / kept;
      return;
    }
    for (double& x : row.dropout)
      if (x != 0 && !scaled) x = 1;
    row.sum = kept;
  };
  v.finish = [](const RowAt&, RowOutput& out) {
    // Nothing kept: what comes out then is a convention of its own.
    if (out.outcome == RowOutcome::ordinary && !(out.sum > 1e-6))
      out.o_unknown = out.lse_unknown = true;
    for (const double x : out.o) out.o_unknown |= !std::isfinite(x);
  };
}
ATTEST_HYPOTHESIS(dropout_before,
                  {.id = "dropout_before_softmax",
                   .sentence = "dropout is applied to the scores, before the softmax",
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, false, true); }});
ATTEST_HYPOTHESIS(dropout_before_scaled,
                  {.id = "dropout_before_softmax/scaled",
                   .sentence = "dropped keys leave the sum of the weights too",
                   .explains = {"dropout_before_softmax"},
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, true, true); }});
ATTEST_HYPOTHESIS(dropout_renormalised,
                  {.id = "dropout_renormalised",
                   .sentence = "kept weights are renormalised to sum to 1",
                   .applies = has_dropout,
                   .change = [](Variant& v) { drop_scores(v, false, false); }});
ATTEST_HYPOTHESIS(dropout_renormalised_keys,
                  {.id = "dropout_renormalised/keys",
                   .sentence = "kept weights are renormalised to sum to 1, the sink left out",
                   .explains = {"dropout_renormalised"},
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     v.weigh = [](const RowAt&, WeighedRow& row) {
                       double kept = 0;
                       for (std::size_t n = 0; n < row.keys.size(); ++n)
                         if (row.dropout[n] != 0) kept += row.weight[n];
                       for (double& x : row.dropout)
                         if (x != 0) x = row.sum / kept;
                     };
                   }});
ATTEST_HYPOTHESIS(dropout_in_lse, {.id = "dropout_factor_in_lse",
                                   .sentence = "lse carries the factor 1/(1 - p)",
                                   .applies = has_dropout,
                                   .change = [](Variant& v) {
                                     v.finish = [&v](const RowAt&, RowOutput& out) {
                                       if (out.outcome == RowOutcome::ordinary)
                                         out.lse -= std::log(1 - v.problem.dropout_p);
                                     };
                                   }});
ATTEST_HYPOTHESIS(dropout_head_zero, {.id = "dropout_of_head_0",
                                      .sentence = "every head drops what the first one drops",
                                      .applies = has_dropout,
                                      .change = [](Variant& v) {
                                        auto& keep = v.inputs.keep;
                                        for (std::int64_t b = 0; b < keep.shape[0]; ++b)
                                          for (std::int64_t h = 0; h < keep.shape[1]; ++h)
                                            for (std::int64_t i = 0; i < keep.shape[2]; ++i)
                                              for (std::int64_t j = 0; j < keep.shape[3]; ++j)
                                                keep.at(b, h, i, j) = keep.at(b, 0, i, j);
                                      }});
ATTEST_HYPOTHESIS(dropout_zero_scores,
                  {.id = "dropout_zero_scores",
                   .sentence = "dropout multiplies the scores, before the softmax",
                   .explains = {"dropout_before_softmax"},
                   .applies = has_dropout,
                   .change = [](Variant& v) {
                     v.score = [&v](const PairAt& at, const ScoreParts& parts) {
                       const double z = defined_score(v.problem, parts);
                       if (z == kMinusInf) return z;
                       const bool kept = v.inputs.keep.at(at.row.b, at.row.h, at.row.i, at.j) != 0;
                       return kept ? z / (1 - v.problem.dropout_p) : 0.0;
                     };
                     v.weigh = [](const RowAt&, WeighedRow& row) {
                       for (double& x : row.dropout) x = 1;
                     };
                   }});

}  // namespace
}  // namespace attest
