// SPDX-License-Identifier: Apache-2.0
// Arithmetic in narrower formats than declared. What rounding gives is decided by the order of the
// sums, so these speak only of rows whose keys fit one block, and are judged by how much of the
// error they account for.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

/// Rounded to `bits` significant ones; the range of the format is not looked at.
double to_bits(double x, int bits, bool truncated = false) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const double fraction = std::ldexp(std::frexp(x, &exponent), bits);
  return std::ldexp(truncated ? std::trunc(fraction) : std::nearbyint(fraction), exponent - bits);
}

struct Format {
  const char* id;
  const char* text;
  int bits;
};
constexpr Format kFormats[] = {{"f32", "f32", 24},       {"tf32", "tf32", 11},
                               {"f16", "f16", 11},       {"bf16", "bf16", 8},
                               {"fp8", "fp8 (e4m3)", 4}, {"fp5", "5 significant bits", 5}};

double rounded(const Format& format, double x) {
  if (std::string(format.id) == "f16") return round_to(DType::f16, x);
  if (std::string(format.id) == "bf16") return round_to(DType::bf16, x);
  return to_bits(x, format.bits);
}

/// Rows with more keys went through several blocks, whose maxima the hypothesis does not know.
constexpr std::int64_t kOneBlock = 32;
void speak_of_one_block(Variant& v) {
  v.finish = [](const RowAt& at, RowOutput& out) {
    if (at.segment && num_keys(at) > kOneBlock) out.o_unknown = out.lse_unknown = true;
  };
}

using Edit = void (*)(Variant&, const Format&);
void round_weights(Variant& v, const Format& format) {
  v.weigh = [format](const RowAt&, WeighedRow& row) {
    for (double& w : row.weight) w = rounded(format, w);
  };
  speak_of_one_block(v);
}
void round_normalised_weights(Variant& v, const Format& format) {
  v.weigh = [format](const RowAt&, WeighedRow& row) {
    for (double& w : row.weight) w = rounded(format, w / row.sum) * row.sum;
  };
}
void round_scores(Variant& v, const Format& format) {
  v.score = [&v, format](const PairAt&, const ScoreParts& parts) {
    return rounded(format, defined_score(v.problem, parts));
  };
}
void round_scaled(Variant& v, const Format& format) {
  v.score = [&v, format](const PairAt&, const ScoreParts& parts) {
    ScoreParts own = parts;
    own.dot = rounded(format, parts.dot * parts.scale);
    own.scale = 1;
    return defined_score(v.problem, own);
  };
}
void round_products(Variant& v, const Format& format) {
  v.score = [&v, format](const PairAt&, const ScoreParts& parts) {
    ScoreParts own = parts;
    own.dot = rounded(format, parts.dot);
    return defined_score(v.problem, own);
  };
}
void round_tensors(const Format& format, std::initializer_list<Dense<double>*> tensors) {
  for (Dense<double>* tensor : tensors)
    for (double& x : tensor->values) x = rounded(format, x);
}
void round_inputs(Variant& v, const Format& format) {
  round_tensors(format, {&v.inputs.q, &v.inputs.k, &v.inputs.v});
}
void round_qk(Variant& v, const Format& format) {
  round_tensors(format, {&v.inputs.q, &v.inputs.k});
}
void round_sum(Variant& v, const Format& format) {
  v.weigh = [format](const RowAt&, WeighedRow& row) {
    double sum = row.sink == kMinusInf ? 0 : std::exp(row.sink - row.max);
    for (const double w : row.weight) sum = rounded(format, sum + w);
    if (!row.keys.empty()) row.sum = sum;
  };
  speak_of_one_block(v);
}
void round_sum_once(Variant& v, const Format& format) {
  v.weigh = [format](const RowAt&, WeighedRow& row) { row.sum = rounded(format, row.sum); };
  speak_of_one_block(v);
}
void round_exp(Variant& v, const Format& format) {
  v.weigh = [format](const RowAt&, WeighedRow& row) {
    double sum = row.sink == kMinusInf ? 0 : std::exp(row.sink - row.max);
    for (double& w : row.weight) sum += w = rounded(format, w);
    if (!row.keys.empty()) row.sum = sum;
  };
  speak_of_one_block(v);
}
void round_o(Variant& v, const Format& format) {
  v.finish = [format](const RowAt&, RowOutput& out) {
    for (double& x : out.o) x = rounded(format, x);
  };
}
void round_lse(Variant& v, const Format& format) {
  v.finish = [format](const RowAt&, RowOutput& out) { out.lse = rounded(format, out.lse); };
}
void accumulate_o(Variant& v, const Format& format) {
  v.accumulate = [format](double sum, double product) { return rounded(format, sum + product); };
}
void round_scaled_q(Variant& v, const Format& format) {
  const double scale = effective_scale(v.problem);
  for (double& x : v.inputs.q.values) x = rounded(format, x * scale);
  v.problem.scale = 1;
}
void round_scale(Variant& v, const Format& format) {
  v.problem.scale = rounded(format, effective_scale(v.problem));
}
void round_bias(Variant& v, const Format& format) {
  for (double& x : v.inputs.bias.values) x = rounded(format, x);
}

struct Rounding {
  const char* id;
  const char* sentence;
  std::vector<std::string> explains;
  Edit edit;
};
const std::vector<Rounding>& roundings() {
  static const std::vector<Rounding> all = {
      {"p_one_format_lower", "weights are rounded to # before they meet v", {}, round_weights},
      {"p_normalised_low",
       "normalised weights are rounded to # before they meet v",
       {"p_one_format_lower"},
       round_normalised_weights},
      {"s_stored_low", "scores are stored in #", {"s_stored_bf16", "s_stored_f16"}, round_scores},
      {"s_scaled_low",
       "scaled products are stored in #",
       {"s_stored_bf16", "s_stored_f16"},
       round_scaled},
      {"s_product_low",
       "products q.k are stored in #",
       {"s_stored_bf16", "s_stored_f16"},
       round_products},
      {"tf32_inputs", "q, k and v are rounded to #", {}, round_inputs},
      {"tf32_qk", "q and k are rounded to #", {"tf32_inputs"}, round_qk},
      {"l_accumulated_low",
       "the sum of the weights is accumulated in #",
       {"stats_in_f32_for_f64"},
       round_sum},
      {"l_stored_low",
       "the sum of the weights is stored in #",
       {"l_accumulated_low", "stats_in_f32_for_f64"},
       round_sum_once},
      {"exp_low",
       "exp is rounded to #, in the sum too",
       {"f64_exp_in_f32", "l_from_rounded_undeclared", "exp_low"},
       round_exp},
      {"o_through_low",
       "o passes through #",
       {"f64_output_through_f32", "o_accumulated_low"},
       round_o},
      {"lse_through_low", "lse passes through #", {"lse_through_bf16"}, round_lse},
      {"o_accumulated_low", "o is accumulated in #", {}, accumulate_o},
      {"q_scaled_low",
       "q is scaled and stored in # before the product",
       {"q_scaled_in_storage_type"},
       round_scaled_q},
      {"scale_low", "the scale is rounded to #", {"scale_rounded_to_f16"}, round_scale},
      {"bias_low", "the bias is rounded to #", {"bias_rounded_to_f16"}, round_bias},
  };
  return all;
}

bool register_roundings() {
  for (const Rounding& rounding : roundings())
    for (const Format& format : kFormats) {
      std::string sentence = rounding.sentence;
      sentence.replace(sentence.find('#'), 1, format.text);
      register_hypothesis(
          {.id = std::string(rounding.id) + "/" + format.id,
           .sentence = sentence,
           .explains = rounding.explains,
           .rank = 3,
           .applies = always,
           .change = [edit = rounding.edit, format](Variant& v) { edit(v, format); },
           .is_rounding = true});
    }
  return true;
}
[[maybe_unused]] const bool roundings_are_known = register_roundings();

/// Cut instead of rounded to nearest.
bool register_truncations() {
  for (const DType type : {DType::f16, DType::bf16}) {
    const int bits = type == DType::f16 ? 11 : 8;
    register_hypothesis(
        {.id = "p_truncated/" + std::string(name(type)),
         .sentence = "weights are cut to " + std::string(name(type)) + " instead of rounded",
         .explains = {"p_truncated"},
         .rank = 3,
         .applies = always,
         .change =
             [bits](Variant& v) {
               v.weigh = [bits](const RowAt&, WeighedRow& row) {
                 for (double& w : row.weight) w = to_bits(w, bits, true);
               };
               speak_of_one_block(v);
             },
         .is_rounding = true});
    register_hypothesis(
        {.id = "o_truncated/" + std::string(name(type)),
         .sentence = "o is cut to " + std::string(name(type)) + " instead of rounded",
         .explains = {"o_truncated"},
         .rank = 3,
         .applies = always,
         .change =
             [bits](Variant& v) {
               v.finish = [bits](const RowAt&, RowOutput& out) {
                 for (double& x : out.o) x = to_bits(x, bits, true);
               };
             },
         .is_rounding = true});
  }
  return true;
}
[[maybe_unused]] const bool truncations_are_known = register_truncations();

}  // namespace
}  // namespace attest
