// SPDX-License-Identifier: Apache-2.0
// Heads, layouts, channels: which numbers are taken for which.
#include <unordered_map>

#include "harness/layout.hpp"
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

void map_heads(Variant& v, std::int64_t (*map)(const AttentionProblem&, std::int64_t)) {
  v.kv_head = [&v, map](std::int64_t h) { return map(v.problem, h); };
}
ATTEST_HYPOTHESIS(gqa_modulo,
                  {.id = "gqa_modulo",
                   .sentence = "query head h uses key/value head h mod Hkv",
                   .applies = has_groups,
                   .change = [](Variant& v) {
                     map_heads(v, [](Problem p, std::int64_t h) { return h % p.num_kv_heads; });
                   }});
ATTEST_HYPOTHESIS(gqa_first, {.id = "gqa_first_head",
                              .sentence = "every query head uses key/value head 0",
                              .applies = has_groups,
                              .change = [](Variant& v) {
                                map_heads(v, [](Problem, std::int64_t) { return std::int64_t{0}; });
                              }});
ATTEST_HYPOTHESIS(gqa_group_stride,
                  {.id = "gqa_group_as_stride",
                   .sentence = "key/value heads advance by the group: h G mod Hkv",
                   .applies = has_groups,
                   .change = [](Variant& v) {
                     map_heads(v, [](Problem p, std::int64_t h) {
                       return h * (p.num_heads / p.num_kv_heads) % p.num_kv_heads;
                     });
                   }});
ATTEST_HYPOTHESIS(gqa_divides_by_kv,
                  {.id = "gqa_divides_by_kv_heads",
                   .sentence = "query head h uses key/value head h / Hkv, not h / G",
                   .explains = {"gqa_group_as_stride"},
                   .applies = [](Problem p) { return p.num_heads > 1; },
                   .change =
                       [](Variant& v) {
                         map_heads(v, [](Problem p, std::int64_t h) {
                           return std::min(h / p.num_kv_heads, p.num_kv_heads - 1);
                         });
                       }});
ATTEST_HYPOTHESIS(gqa_clamped, {.id = "gqa_clamped",
                                .sentence = "query head h uses key/value head min(h, Hkv - 1)",
                                .applies = has_groups,
                                .change = [](Variant& v) {
                                  map_heads(v, [](Problem p, std::int64_t h) {
                                    return std::min(h, p.num_kv_heads - 1);
                                  });
                                }});
ATTEST_HYPOTHESIS(kv_next_head, {.id = "kv_next_head",
                                 .sentence = "key/value heads are off by one",
                                 .explains = {"gqa_next_head"},
                                 .applies = [](Problem p) { return p.num_kv_heads > 1; },
                                 .change =
                                     [](Variant& v) {
                                       map_heads(v, [](Problem p, std::int64_t h) {
                                         return (kv_head(p, h) + 1) % p.num_kv_heads;
                                       });
                                     }});
ATTEST_HYPOTHESIS(gqa_reversed, {.id = "heads_reversed",
                                 .sentence = "key/value heads are taken in reverse order",
                                 .applies = [](Problem p) { return p.num_kv_heads > 1; },
                                 .change =
                                     [](Variant& v) {
                                       map_heads(v, [](Problem p, std::int64_t h) {
                                         return p.num_kv_heads - 1 - kv_head(p, h);
                                       });
                                     }});

/// A tensor read with other strides (in elements): NaN where no element lies. Its memory is a map,
/// since far rows lie 2^31 elements apart.
Dense<double> reread(const Dense<double>& tensor, const TensorForm& form,
                     const std::array<std::int64_t, 4>& strides) {
  const auto each = [&](const auto& body) {
    std::size_t flat = 0;
    for (std::int64_t a = 0; a < tensor.shape[0]; ++a)
      for (std::int64_t b = 0; b < tensor.shape[1]; ++b)
        for (std::int64_t c = 0; c < tensor.shape[2]; ++c)
          for (std::int64_t d = 0; d < tensor.shape[3]; ++d, ++flat)
            body(flat, [&](const std::array<std::int64_t, 4>& s) {
              return a * s[0] + b * s[1] + c * s[2] + d * s[3];
            });
  };
  std::unordered_map<std::int64_t, double> memory;
  memory.reserve(tensor.values.size());
  each([&](std::size_t flat, const auto& place) {
    memory[place(form.strides)] = tensor.values[flat];
  });
  Dense<double> read = tensor;
  each([&](std::size_t flat, const auto& place) {
    const auto found = memory.find(place(strides));
    read.values[flat] = found == memory.end() ? kQuietNaN : found->second;
  });
  return read;
}

/// q, k or v through strides computed from its true ones.
void misread(Variant& v, Slot slot,
             std::array<std::int64_t, 4> (*strides)(const Dense<double>&, const TensorForm&)) {
  const TensorForm form = call_form(v.problem, 0)[static_cast<std::size_t>(slot)];
  Dense<double>& tensor = slot == Slot::q ? v.inputs.q : slot == Slot::k ? v.inputs.k : v.inputs.v;
  if (form.count() > 0) tensor = reread(tensor, form, strides(tensor, form));
}
std::array<std::int64_t, 4> dense(const Dense<double>& t, const TensorForm&) {
  return {t.shape[1] * t.shape[2] * t.shape[3], t.shape[2] * t.shape[3], t.shape[3], 1};
}
std::array<std::int64_t, 4> dense_blhd(const Dense<double>& t, const TensorForm&) {
  return {t.shape[1] * t.shape[2] * t.shape[3], t.shape[3], t.shape[1] * t.shape[3], 1};
}
std::array<std::int64_t, 4> dense_rows(const Dense<double>& t, const TensorForm& form) {
  return {form.strides[0], form.strides[1], t.shape[3], 1};
}
std::array<std::int64_t, 4> unit_channels(const Dense<double>&, const TensorForm& form) {
  return {form.strides[0], form.strides[1], form.strides[2], 1};
}
std::array<std::int64_t, 4> heads_of_rows(const Dense<double>& t, const TensorForm& form) {
  return {form.strides[0], t.shape[2] * t.shape[3], form.strides[2], form.strides[3]};
}
std::array<std::int64_t, 4> dense_batches(const Dense<double>& t, const TensorForm& form) {
  return {t.shape[1] * t.shape[2] * t.shape[3], form.strides[1], form.strides[2], form.strides[3]};
}

struct Misreading {
  const char* name;
  const char* sentence;
  std::array<std::int64_t, 4> (*strides)(const Dense<double>&, const TensorForm&);
  int rank;
};
constexpr Misreading kMisreadings[] = {
    {"dense", "the strides of # are ignored: read as dense [B, H, L, D]", dense, 0},
    {"dense_rows", "the row stride of # is ignored: rows read as dense", dense_rows, 0},
    {"unit_channels", "the channel stride of # is taken for 1", unit_channels, 0},
    {"heads", "the head stride of # is ignored", heads_of_rows, 1},
    {"batches", "the batch stride of # is ignored", dense_batches, 1},
    {"blhd", "# is read as dense [B, L, H, D]", dense_blhd, 1},
};
bool misreadings() {
  const std::pair<const char*, Slot> tensors[] = {{"q", Slot::q}, {"k", Slot::k}, {"v", Slot::v}};
  for (const Misreading& m : kMisreadings)
    for (const auto& [name, slot] : tensors) {
      std::string sentence = m.sentence;
      sentence.replace(sentence.find('#'), 1, name);
      const Slot of = slot;
      register_hypothesis({.id = "stride_ignored_" + std::string(name) + "/" + m.name,
                           .sentence = sentence,
                           .explains = {"head_split_by_reshape", "stride_ignored"},
                           .rank = m.rank,
                           .applies = always,
                           .change = [m, of](Variant& v) { misread(v, of, m.strides); }});
    }
  for (const Misreading& m : kMisreadings)
    register_hypothesis(
        {.id = "stride_ignored_all/" + std::string(m.name),
         .sentence =
             std::string(m.sentence).replace(std::string(m.sentence).find('#'), 1, "q, k and v"),
         .explains = {"head_split_by_reshape", "stride_ignored"},
         .rank = m.rank,
         .applies = always,
         .change = [m](Variant& v) {
           for (const Slot slot : {Slot::q, Slot::k, Slot::v}) misread(v, slot, m.strides);
         }});
  return true;
}
[[maybe_unused]] const bool misreadings_are_known = misreadings();

/// Heads and rows of one tensor mixed up as reshape without transpose does.
void split_by_reshape(Dense<double>& t) {
  const Dense<double> from = t;
  const std::int64_t H = t.shape[1], L = t.shape[2], D = t.shape[3];
  for (std::int64_t b = 0; b < t.shape[0]; ++b)
    for (std::int64_t n = 0; n < H * L * D; ++n) {
      // Element n of [L, H, D] memory, read as [H, L, D].
      const std::int64_t l = n / (H * D), h = n / D % H, c = n % D;
      t.values[static_cast<std::size_t>(b * H * L * D + n)] = from.at(b, h, l, c);
    }
}
ATTEST_HYPOTHESIS(head_split_q, {.id = "head_split_by_reshape/q",
                                 .sentence = "heads of q are split by reshape, without a transpose",
                                 .explains = {"head_split_by_reshape"},
                                 .rank = 1,
                                 .applies = always,
                                 .change = [](Variant& v) { split_by_reshape(v.inputs.q); }});
ATTEST_HYPOTHESIS(head_split_kv,
                  {.id = "head_split_by_reshape/kv",
                   .sentence = "heads of k and v are split by reshape, without a transpose",
                   .explains = {"head_split_by_reshape"},
                   .rank = 1,
                   .applies = always,
                   .change = [](Variant& v) {
                     split_by_reshape(v.inputs.k);
                     split_by_reshape(v.inputs.v);
                   }});
ATTEST_HYPOTHESIS(head_split_qkv,
                  {.id = "head_split_by_reshape/qkv",
                   .sentence = "heads of q, k and v are split by reshape, without a transpose",
                   .explains = {"head_split_by_reshape"},
                   .rank = 1,
                   .applies = always,
                   .change = [](Variant& v) {
                     split_by_reshape(v.inputs.q);
                     split_by_reshape(v.inputs.k);
                     split_by_reshape(v.inputs.v);
                   }});
void permute_o(Prediction& out, const AttentionProblem& p, bool back) {
  const Prediction from = out;
  const std::int64_t H = p.num_heads, L = p.q_len, D = p.v_head_dim;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t l = 0; l < L; ++l)
        for (std::int64_t c = 0; c < D; ++c) {
          auto plain = static_cast<std::size_t>(((b * H + h) * L + l) * D + c);
          auto other = static_cast<std::size_t>(((b * L + l) * H + h) * D + c);
          if (back) std::swap(plain, other);
          out.o[other] = from.o[plain];
          out.o_tolerance[other] = from.o_tolerance[plain];
        }
}
ATTEST_HYPOTHESIS(o_reshaped,
                  {.id = "head_split_by_reshape/o",
                   .sentence = "o is written as [B, L, H, D] where [B, H, L, D] is asked for",
                   .explains = {"head_split_by_reshape", "o_heads_and_rows_swapped"},
                   .rank = 1,
                   .applies = always,
                   .change = [](Variant& v) {
                     v.last = [&v](Prediction& out) { permute_o(out, v.problem, false); };
                   }});
ATTEST_HYPOTHESIS(o_reshaped_back,
                  {.id = "head_split_by_reshape/o_back",
                   .sentence = "o is written as [B, H, L, D] where [B, L, H, D] is asked for",
                   .explains = {"head_split_by_reshape", "o_heads_and_rows_swapped"},
                   .rank = 1,
                   .applies = always,
                   .change = [](Variant& v) {
                     v.last = [&v](Prediction& out) { permute_o(out, v.problem, true); };
                   }});

ATTEST_HYPOTHESIS(v_channels_of_k,
                  {.id = "dv_from_dqk",
                   .sentence = "v has no more channels than k: those beyond are the first again",
                   .applies = [](Problem p) { return p.head_dim > 0 && p.v_head_dim > p.head_dim; },
                   .change =
                       [](Variant& v) {
                         auto& x = v.inputs.v;
                         const std::int64_t width = v.problem.head_dim;
                         for (std::size_t n = 0; n < x.values.size(); ++n) {
                           const auto c = static_cast<std::int64_t>(n) % x.shape[3];
                           if (c >= width)
                             x.values[n] = x.values[n - static_cast<std::size_t>(c - c % width)];
                         }
                       }});
/// Channels beyond the given number are left out of q.k.
bool channel_families() {
  for (const std::int64_t most : {8, 16, 32, 64, 128})
    register_hypothesis({.id = "head_dim_constant/" + std::to_string(most),
                         .sentence = with_number("q.k looks at the first # channels alone", most),
                         .rank = 1,
                         .applies = always,
                         .change = [most](Variant& v) {
                           v.dot = [most](const double* q, const double* k, std::int64_t channels) {
                             double sum = 0;
                             for (std::int64_t c = 0; c < std::min(channels, most); ++c)
                               sum += q[c] * k[c];
                             return sum;
                           };
                         }});
  for (const std::int64_t step : {2, 4, 8, 16})
    register_hypothesis(
        {.id = "head_dim_tail/" + std::to_string(step),
         .sentence = with_number("q.k leaves out the channels after the last multiple of #", step),
         .explains = {"head_dim_constant", "dot_misses_tail_channels"},
         .rank = 1,
         .applies = always,
         .change = [step](Variant& v) {
           v.dot = [step](const double* q, const double* k, std::int64_t channels) {
             double sum = 0;
             for (std::int64_t c = 0; c < channels / step * step; ++c) sum += q[c] * k[c];
             return sum;
           };
         }});
  return true;
}
[[maybe_unused]] const bool channels_are_known = channel_families();
ATTEST_HYPOTHESIS(last_channel, {.id = "last_channel_skipped",
                                 .sentence = "q.k leaves out the last channel",
                                 .explains = {"dot_misses_last_channel"},
                                 .applies = always,
                                 .change = [](Variant& v) {
                                   v.dot = [](const double* q, const double* k,
                                              std::int64_t channels) {
                                     double sum = 0;
                                     for (std::int64_t c = 0; c + 1 < channels; ++c)
                                       sum += q[c] * k[c];
                                     return sum;
                                   };
                                 }});
ATTEST_HYPOTHESIS(first_batch,
                  {.id = "batch_zero_for_all",
                   .sentence = "every sequence uses k and v of the first",
                   .explains = {"batch_stride_zero"},
                   .applies = [](Problem p) { return p.batch > 1; },
                   .change =
                       [](Variant& v) {
                         for (Dense<double>* t : {&v.inputs.k, &v.inputs.v}) {
                           const auto one =
                               static_cast<std::ptrdiff_t>(t->shape[1] * t->shape[2] * t->shape[3]);
                           for (std::int64_t b = 1; b < t->shape[0]; ++b)
                             std::copy_n(t->values.begin(), one, t->values.begin() + b * one);
                         }
                       }});
ATTEST_HYPOTHESIS(v_from_k, {.id = "v_is_k",
                             .sentence = "k is read in the place of v",
                             .applies = [](Problem p) { return p.head_dim == p.v_head_dim; },
                             .change = [](Variant& v) { v.inputs.v = v.inputs.k; }});

}  // namespace
}  // namespace attest
