// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"
#include "attest/declaration_words.hpp"
#include "attest/names.hpp"

namespace attest {
namespace {

template <auto kField>
constexpr ProfileField number(std::string_view name, ProfileField::Kind kind) {
  return {name, kind,
          [](const PrecisionProfile& profile) { return static_cast<double>(profile.*kField); },
          [](PrecisionProfile& profile, double value) {
            profile.*kField =
                static_cast<std::remove_reference_t<decltype(profile.*kField)>>(value);
          }};
}

std::string print_dims(const DimSet& dims) {
  if (dims == any_dim()) return "any";
  std::string text;
  for (const DimRange& range : dims) {
    if (!text.empty()) text += ',';
    text += std::to_string(range.first);
    if (range.last != range.first) text += fmt::format("..{}", range.last);
    if (range.step != 1) text += fmt::format("%{}", range.step);
  }
  return text;
}

class Words {
 public:
  void add(std::string_view word) {
    if (!text_.empty()) text_ += ' ';
    text_ += word;
  }
  void add(std::string_view key, std::string_view value) { add(fmt::format("{}={}", key, value)); }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// "causal,prefix": the declared values of one key.
std::string values_of(const Declaration& declaration, std::string_view key) {
  std::string values;
  for (const FeatureWord& word : kFeatureWords) {
    if (word.key != key || !declaration.has(word.feature)) continue;
    if (!values.empty()) values += ',';
    values += word.value;
  }
  return values;
}

void print_features(const Declaration& d, Words& words) {
  bool all = true;
  for (int f = 0; f < kNumFeatures; ++f) {
    const auto feature = static_cast<Feature>(f);
    all &= d.has(feature) == (d.forward || !is_of_forward_alone(feature));
  }
  if (all) words.add("features=all");
  std::string_view done;
  for (const FeatureWord& word : kFeatureWords) {
    if (word.key == done) continue;
    done = word.key;
    std::string values = all ? "" : values_of(d, word.key);
    const bool plain_served = word.key == "base"     ? d.base_full
                              : word.key == "layout" ? d.layout_bhld
                                                     : true;
    // base and layout also say whether their plain value is served; it is printed with the others,
    // and where it is missing, the others are printed although features=all says them.
    if (word.key == "base" || word.key == "layout") {
      if (!plain_served)
        values = values_of(d, word.key);
      else if (!values.empty())
        values = (word.key == "base" ? "full," : "bhld,") + values;
      if (!values.empty()) words.add(word.key, values);
    } else if (!word.value.empty()) {
      if (!values.empty()) words.add(word.key, values);
    } else if (!all && d.has(word.feature)) {
      words.add(word.key);
    }
  }
}

template <class E>
std::string_view choice(const TwoNames& names, E value) {
  return names[static_cast<std::size_t>(value) % names.size()];
}

void print_backward(const Declaration& d, Words& words) {
  if (!d.backward.served) return;
  std::string values;
  for (const BackwardWord& word : kBackwardWords) {
    if (!(d.backward.*word.served)) continue;
    if (!values.empty()) values += ',';
    values += word.name;
  }
  if (values.empty())
    words.add("backward");
  else
    words.add("backward", values);
}

/// The names of the flags that are set.
std::string set_ones(std::initializer_list<std::pair<std::string_view, bool>> flags) {
  std::string text;
  for (const auto& [name, set] : flags) {
    if (!set) continue;
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}

void print_caches(const Declaration& d, Words& words) {
  const CacheScope& cache = d.cache;
  if (!d.forward) words.add("forward", "none");
  if (cache.served())
    words.add(
        "cache",
        set_ones({{"contiguous", cache.contiguous}, {"ring", cache.ring}, {"paged", cache.paged}}));
  if (d.rope.served)
    words.add("component", set_ones({{"rope", true}, {"rope_inverse", d.rope.inverse}}));
  if (!cache.raw || cache.rotated)
    words.add("cache_keys", set_ones({{"raw", cache.raw}, {"rotated", cache.rotated}}));
  if (!cache.page_sizes.empty() && cache.page_sizes != any_dim())
    words.add("page_size", print_dims(cache.page_sizes));
  if (cache.splits) words.add("splits");
  if (!d.switch_lengths.empty())
    words.add("switch", fmt::format("{}", fmt::join(d.switch_lengths, ",")));
}

void print_conventions(const Declaration& d, Words& words) {
  const Declaration plain;
  if (d.mask_polarity != plain.mask_polarity)
    words.add("mask_polarity", choice(kMaskPolarityNames, d.mask_polarity));
  if (d.lse_base != plain.lse_base) words.add("lse_base", choice(kLseBaseNames, d.lse_base));
  if (d.window_bound != plain.window_bound)
    words.add("window_bound", choice(kWindowBoundNames, d.window_bound));
  if (d.lengths != plain.lengths) words.add("lengths", choice(kLengthsNames, d.lengths));
  if (d.padding_row != plain.padding_row)
    words.add("padding_row", choice(kPaddingRowNames, d.padding_row));
  if (d.empty_output != plain.empty_output) words.add("empty_row", enum_name(d.empty_output));
  if (d.empty_lse != plain.empty_lse) words.add("empty_lse", enum_name(d.empty_lse));
}

void print_precision(const Declaration& d, Words& words) {
  const auto preset = [&d](DType dtype) -> const std::string& {
    return d.precision[static_cast<std::size_t>(dtype)];
  };
  const bool one = std::all_of(d.dtypes.begin(), d.dtypes.end(), [&](DType dtype) {
    return preset(dtype) == preset(d.dtypes.front());
  });
  if (one && !d.dtypes.empty()) {
    if (preset(d.dtypes.front()) != "f32") words.add("precision", preset(d.dtypes.front()));
  } else {
    for (DType dtype : d.dtypes)
      if (preset(dtype) != "f32")
        words.add(fmt::format("precision.{}={}", name(dtype), preset(dtype)));
  }
  for (DType dtype : d.dtypes) {
    const auto base = precision_preset(preset(dtype), dtype).value_or(PrecisionProfile{});
    for (const ProfileField& field : profile_fields())
      if (const double value = field.get(d.profile_for(dtype)); value != field.get(base))
        words.add(fmt::format("profile.{}.{}={}", name(dtype), field.name, print_number(value)));
  }
}

}  // namespace

const std::vector<ProfileField>& profile_fields() {
  using P = PrecisionProfile;
  using Kind = ProfileField::Kind;
  static const std::vector<ProfileField> fields{
      number<&P::u_acc>("u_acc", Kind::roundoff),
      number<&P::c_acc>("c_acc", Kind::one_or_two),
      number<&P::eta_acc>("eta_acc", Kind::size),
      number<&P::u_in>("u_in", Kind::roundoff),
      number<&P::eta_in>("eta_in", Kind::size),
      number<&P::u_score>("u_score", Kind::roundoff),
      number<&P::eta_score>("eta_score", Kind::size),
      number<&P::max_score>("max_score", Kind::size),
      number<&P::u_p>("u_p", Kind::roundoff),
      number<&P::eta_p>("eta_p", Kind::size),
      number<&P::p_normalised>("p_normalised", Kind::boolean),
      number<&P::l_from_rounded>("l_from_rounded", Kind::boolean),
      number<&P::lse_merged>("lse_merged", Kind::boolean),
      number<&P::u_out>("u_out", Kind::roundoff),
      number<&P::eta_out>("eta_out", Kind::size),
      number<&P::e_exp>("e_exp", Kind::roundoff),
      number<&P::eta_exp>("eta_exp", Kind::size),
      number<&P::u_rope>("u_rope", Kind::roundoff),
      number<&P::max_acc>("max_acc", Kind::positive),
  };
  return fields;
}

const ProfileField* find_profile_field(std::string_view name) {
  for (const ProfileField& field : profile_fields())
    if (field.name == name) return &field;
  return nullptr;
}

bool allowed(const ProfileField& field, double value) {
  switch (field.kind) {
    case ProfileField::Kind::roundoff: return value >= 0 && value <= 0.5;
    case ProfileField::Kind::size: return value >= 0 && std::isfinite(value);
    case ProfileField::Kind::positive: return value > 0 && std::isfinite(value);
    case ProfileField::Kind::one_or_two: return value == 1 || value == 2;
    case ProfileField::Kind::boolean: return value == 0 || value == 1;
  }
  return false;
}

std::string_view allowed_text(const ProfileField& field) {
  switch (field.kind) {
    case ProfileField::Kind::roundoff: return "a number in 0..0.5";
    case ProfileField::Kind::size: return "a finite number of at least 0";
    case ProfileField::Kind::positive: return "a finite number above 0";
    case ProfileField::Kind::one_or_two: return "1 or 2";
    case ProfileField::Kind::boolean: return "0 or 1";
  }
  return "?";
}

std::string print_declaration(const Declaration& d) {
  Words words;
  std::string dtypes;
  for (DType dtype : d.dtypes) {
    if (!dtypes.empty()) dtypes += ',';
    dtypes += name(dtype);
  }
  words.add("dtype", dtypes);
  if (d.head_dims != any_dim()) words.add("head_dim", print_dims(d.head_dims));
  if (d.v_head_dims) words.add("v_head_dim", print_dims(*d.v_head_dims));
  if (d.max_q_len > 0) words.add("max_q_len", std::to_string(d.max_q_len));
  if (d.max_kv_len > 0) words.add("max_kv_len", std::to_string(d.max_kv_len));
  print_features(d, words);
  print_backward(d, words);
  print_caches(d, words);
  print_conventions(d, words);
  print_precision(d, words);
  if (d.deterministic) words.add("deterministic");
  if (d.batch_invariant) words.add("batch_invariant");
  if (d.thread_invariant) words.add("thread_invariant");
  if (d.masked_nan_safe) words.add("masked_nan_safe");
  if (d.memory_linear) words.add("memory", "linear");
  return words.take();
}

}  // namespace attest
