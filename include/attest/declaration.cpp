// SPDX-License-Identifier: Apache-2.0
// Grammar: docs/declaration.md. Words are read into a Draft, in any order; what depends on several
// of them (features=all, precision, contradictions) is settled at the end.
#include "attest/declaration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "attest/declaration_words.hpp"
#include "attest/names.hpp"
#include "attest/text.hpp"

namespace attest {
namespace {

constexpr std::int64_t kMostDim = std::numeric_limits<std::int32_t>::max();

struct Override {
  std::optional<DType> dtype;  ///< nullopt: every declared one
  const ProfileField* field = nullptr;
  double value = 0;
};

struct Draft {
  Declaration declaration;
  bool all_features = false;
  bool all_gradients = false;  ///< of everything that the kernel takes
  bool v_head_dim_given = false;
  std::set<std::string, std::less<>> seen;
  std::string precision = "f32";
  std::map<DType, std::string> precision_of;
  std::vector<Override> overrides;

  bool given(std::string_view key) const { return seen.find(key) != seen.end(); }
  void add(Feature feature) { declaration.features[static_cast<std::size_t>(feature)] = true; }
};

/// What is wrong with the word; empty where it was read.
using Wrong = std::string;

Wrong read_dtypes(std::string_view text, Draft& draft) {
  for (std::string_view piece : split(text, ',')) {
    const auto dtype = parse_dtype(piece);
    if (!dtype)
      return fmt::format("{} is none of {}", quote(piece), fmt::join(kNamesOf<DType>, ", "));
    if (draft.declaration.has(*dtype)) return fmt::format("{} stands twice", piece);
    draft.declaration.dtypes.push_back(*dtype);
  }
  std::sort(draft.declaration.dtypes.begin(), draft.declaration.dtypes.end());
  return {};
}

/// "64", "1..256" or "1..256%8": the multiples of 8 in 1..256.
Wrong read_dim_range(std::string_view text, DimRange& range) {
  const std::size_t dots = text.find("..");
  const std::string_view rest = dots == text.npos ? text : text.substr(dots + 2);
  const std::size_t percent = rest.find('%');
  const auto first =
      read_integer(dots == text.npos ? rest.substr(0, percent) : text.substr(0, dots));
  const auto last = read_integer(rest.substr(0, percent));
  const auto step = percent == rest.npos ? std::optional<std::int64_t>{1}
                                         : read_integer(rest.substr(percent + 1));
  if (!first || !last || !step || *first < 0 || *last < *first || *last > kMostDim || *step < 1 ||
      *step > kMostDim)
    return fmt::format("{} is not a number, first..last or first..last%multiple", quote(text));
  range.step = *step;
  range.first = (*first + *step - 1) / *step * *step;
  range.last = *last / *step * *step;
  if (range.first > range.last) return fmt::format("{} holds no number", quote(text));
  if (range.first == range.last) range.step = 1;
  return {};
}

Wrong read_dims(std::string_view text, DimSet& dims) {
  dims.clear();
  if (text == "any") {
    dims = any_dim();
    return {};
  }
  for (std::string_view piece : split(text, ',')) {
    if (Wrong wrong = read_dim_range(piece, dims.emplace_back()); !wrong.empty()) return wrong;
  }
  return {};
}

Wrong read_v_dims(std::string_view text, Draft& draft) {
  draft.v_head_dim_given = true;
  if (text == "same") return {};
  draft.add(Feature::v_head_dim);
  return read_dims(text, draft.declaration.v_head_dims.emplace());
}

Wrong read_limit(std::string_view text, std::int64_t& limit) {
  const auto value = read_integer(text);
  if (!value || *value < 1) return fmt::format("{} is not an integer above 0", quote(text));
  limit = *value;
  return {};
}

/// A key whose values are features, as base=full,causal. `plain` is the value that is no feature.
Wrong read_feature_list(std::string_view key, std::string_view text, std::string_view plain,
                        bool* plain_served, Draft& draft) {
  if (plain_served) *plain_served = false;
  std::set<std::string_view> pieces;
  for (std::string_view piece : split(text, ',')) {
    if (!pieces.insert(piece).second) return fmt::format("{} stands twice", quote(piece));
    if (plain_served && piece == plain) {
      *plain_served = true;
      continue;
    }
    const auto word = std::find_if(
        std::begin(kFeatureWords), std::end(kFeatureWords),
        [&](const FeatureWord& known) { return known.key == key && known.value == piece; });
    if (piece.empty() || word == std::end(kFeatureWords))
      return fmt::format("{} is no value of {}", quote(piece), key);
    draft.add(word->feature);
  }
  return {};
}

template <class E>
Wrong read_choice(std::string_view text, E& value, const TwoNames& names) {
  int index = 0;
  for (std::string_view known : names) {
    if (known == text) {
      value = static_cast<E>(index);
      return {};
    }
    ++index;
  }
  return fmt::format("{} is none of {}", quote(text), fmt::join(names, ", "));
}

template <class E>
Wrong read_enum(std::string_view text, E& value) {
  if (const auto known = parse_enum<E>(text)) {
    value = *known;
    return {};
  }
  return fmt::format("{} is none of {}", quote(text), fmt::join(kNamesOf<E>, ", "));
}

Wrong read_precision(std::string_view text, std::string& name) {
  if (!precision_preset(text, DType::f32))
    return fmt::format("{} is none of {}", quote(text), fmt::join(precision_preset_names(), ", "));
  name = text;
  return {};
}

/// "precision.bf16": the dtype after the dot.
Wrong read_dotted_precision(std::string_view suffix, std::string_view text, Draft& draft) {
  const auto dtype = parse_dtype(suffix);
  if (!dtype) return fmt::format("{} is no dtype", quote(suffix));
  return read_precision(text, draft.precision_of[*dtype]);
}

/// "profile.u_p" or "profile.bf16.u_p".
Wrong read_override(std::string_view suffix, std::string_view text, Draft& draft) {
  Override given;
  if (const std::size_t dot = suffix.find('.'); dot != suffix.npos) {
    given.dtype = parse_dtype(suffix.substr(0, dot));
    if (!given.dtype) return fmt::format("{} is no dtype", quote(suffix.substr(0, dot)));
    suffix.remove_prefix(dot + 1);
  }
  given.field = find_profile_field(suffix);
  if (!given.field) return fmt::format("{} is no number of a precision profile", quote(suffix));
  const auto value = read_number(text);
  if (!value || !allowed(*given.field, *value))
    return fmt::format("{} is not {}", quote(text), allowed_text(*given.field));
  given.value = *value;
  draft.overrides.push_back(given);
  return {};
}

bool* promise_of(std::string_view key, Declaration& declaration) {
  if (key == "deterministic") return &declaration.deterministic;
  if (key == "batch_invariant") return &declaration.batch_invariant;
  if (key == "thread_invariant") return &declaration.thread_invariant;
  if (key == "masked_nan_safe") return &declaration.masked_nan_safe;
  return nullptr;
}

/// "all", or a list of kBackwardWords; dQ, dK and dV go without saying.
Wrong read_backward(std::string_view text, Draft& draft) {
  draft.all_gradients = text == "all";
  if (draft.all_gradients) return {};
  for (std::string_view piece : split(text, ',')) {
    const auto word = std::find_if(std::begin(kBackwardWords), std::end(kBackwardWords),
                                   [&](const BackwardWord& known) { return known.name == piece; });
    if (word == std::end(kBackwardWords))
      return fmt::format("{} is none of bias, slopes, sink, lse, and not all", quote(piece));
    draft.declaration.backward.*word->served = true;
  }
  return {};
}

Wrong read_flags(std::string_view text,
                 std::initializer_list<std::pair<std::string_view, bool*>> known) {
  for (const auto& [word, flag] : known) *flag = false;
  for (std::string_view piece : split(text, ',')) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const auto& entry) { return entry.first == piece; });
    if (found == known.end()) {
      std::string all;
      for (const auto& [word, flag] : known) all += (all.empty() ? "" : ", ") + std::string(word);
      return fmt::format("{} is none of {}", quote(piece), all);
    }
    if (*found->second) return fmt::format("{} stands twice", piece);
    *found->second = true;
  }
  return {};
}

Wrong read_caches(std::string_view text, CacheScope& scope) {
  return read_flags(
      text, {{"contiguous", &scope.contiguous}, {"ring", &scope.ring}, {"paged", &scope.paged}});
}

Wrong read_page_sizes(std::string_view text, DimSet& sizes) {
  if (Wrong wrong = read_dims(text, sizes); !wrong.empty()) return wrong;
  if (contains(sizes, 0)) return fmt::format("{} allows pages of 0 rows", quote(text));
  return {};
}

Wrong read_cache_keys(std::string_view text, CacheScope& scope) {
  return read_flags(text, {{"raw", &scope.raw}, {"rotated", &scope.rotated}});
}

/// "rope", or "rope,rope_inverse".
Wrong read_components(std::string_view text, RopeScope& scope) {
  if (Wrong wrong = read_flags(text, {{"rope", &scope.served}, {"rope_inverse", &scope.inverse}});
      !wrong.empty())
    return wrong;
  return scope.served ? Wrong{} : Wrong{"rope_inverse needs rope"};
}

Wrong read_switches(std::string_view text, std::vector<std::int64_t>& lengths) {
  for (std::string_view piece : split(text, ',')) {
    std::int64_t length = 0;
    if (Wrong wrong = read_limit(piece, length); !wrong.empty()) return wrong;
    if (!lengths.empty() && length <= lengths.back())
      return fmt::format("{} does not ascend", quote(text));
    lengths.push_back(length);
  }
  return {};
}

/// nullopt: no such flag.
std::optional<Wrong> read_flag(std::string_view key, bool has_value, Draft& draft) {
  if (key == "window" && !has_value) {
    draft.add(Feature::window_left);
    draft.add(Feature::window_right);
    return Wrong{};
  }
  if (key == "backward") {
    draft.declaration.backward.served = true;
    if (!has_value) return Wrong{};
    return std::nullopt;
  }
  if (key == "splits") {
    draft.declaration.cache.splits = true;
    return has_value ? fmt::format("{} takes no value", key) : Wrong{};
  }
  bool* promise = promise_of(key, draft.declaration);
  const auto word = std::find_if(
      std::begin(kFeatureWords), std::end(kFeatureWords),
      [&](const FeatureWord& known) { return known.key == key && known.value.empty(); });
  if (!promise && word == std::end(kFeatureWords)) return std::nullopt;
  if (has_value) return fmt::format("{} takes no value", key);
  if (promise)
    *promise = true;
  else
    draft.add(word->feature);
  return Wrong{};
}

/// nullopt: no such key.
std::optional<Wrong> read_value(std::string_view key, std::string_view text, Draft& draft) {
  Declaration& d = draft.declaration;
  if (key == "dtype") return read_dtypes(text, draft);
  if (key == "head_dim") return read_dims(text, d.head_dims);
  if (key == "v_head_dim") return read_v_dims(text, draft);
  if (key == "max_q_len") return read_limit(text, d.max_q_len);
  if (key == "max_kv_len") return read_limit(text, d.max_kv_len);
  if (key == "features") {
    draft.all_features = true;
    return text == "all" ? Wrong{} : fmt::format("{} is not all", quote(text));
  }
  if (key == "base") return read_feature_list(key, text, "full", &d.base_full, draft);
  if (key == "layout" && text == "any") {
    for (const FeatureWord& word : kFeatureWords)
      if (word.key == key) draft.add(word.feature);
    return Wrong{};
  }
  if (key == "layout") return read_feature_list(key, text, "bhld", &d.layout_bhld, draft);
  if (key == "align" || key == "window" || key == "alibi" || key == "rope" || key == "rope_scaling")
    return read_feature_list(key, text, "", nullptr, draft);
  if (key == "backward") return read_backward(text, draft);
  if (key == "forward") {
    d.forward = false;
    return text == "none" ? Wrong{} : fmt::format("{} is not none", quote(text));
  }
  if (key == "cache") return read_caches(text, d.cache);
  if (key == "cache_keys") return read_cache_keys(text, d.cache);
  if (key == "component") return read_components(text, d.rope);
  if (key == "page_size") return read_page_sizes(text, d.cache.page_sizes);
  if (key == "switch") return read_switches(text, d.switch_lengths);
  if (key == "mask_polarity") return read_choice(text, d.mask_polarity, kMaskPolarityNames);
  if (key == "lse_base") return read_choice(text, d.lse_base, kLseBaseNames);
  if (key == "window_bound") return read_choice(text, d.window_bound, kWindowBoundNames);
  if (key == "lengths") return read_choice(text, d.lengths, kLengthsNames);
  if (key == "padding_row") return read_choice(text, d.padding_row, kPaddingRowNames);
  if (key == "empty_row") return read_enum(text, d.empty_output);
  if (key == "empty_lse") return read_enum(text, d.empty_lse);
  if (key == "memory") {
    d.memory_linear = true;
    return text == "linear" ? Wrong{} : fmt::format("{} is not linear", quote(text));
  }
  if (key == "precision") return read_precision(text, draft.precision);
  if (key.starts_with("precision.")) return read_dotted_precision(key.substr(10), text, draft);
  if (key.starts_with("profile.")) return read_override(key.substr(8), text, draft);
  return std::nullopt;
}

Wrong read_word(std::string_view word, Draft& draft) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const bool has_value = equals != std::string_view::npos;
  if (draft.given(key)) return fmt::format("{} is given twice", quote(key));
  draft.seen.emplace(key);
  if (const auto flag = read_flag(key, has_value, draft)) return *flag;
  const std::string_view text = has_value ? word.substr(equals + 1) : "";
  if (const auto wrong = read_value(key, text, draft))
    return wrong->empty() ? Wrong{} : fmt::format("{}: {}", key, *wrong);
  return fmt::format("{} is no key of a declaration", quote(key));
}

bool has_alibi(const Declaration& d) {
  return d.has(Feature::alibi_absolute) || d.has(Feature::alibi_signed) ||
         d.has(Feature::alibi_key_anchored);
}

void settle_features(Draft& draft) {
  Declaration& d = draft.declaration;
  if (d.head_dims.empty()) d.head_dims = any_dim();
  if (d.cache.page_sizes.empty()) d.cache.page_sizes = any_dim();
  if (!draft.all_features) return;
  const bool same_v = draft.v_head_dim_given && !d.v_head_dims;
  for (int f = 0; f < kNumFeatures; ++f)
    d.features[static_cast<std::size_t>(f)] =
        d.forward || !is_of_forward_alone(static_cast<Feature>(f));
  d.features[static_cast<std::size_t>(Feature::v_head_dim)] = !same_v;
  if (!draft.v_head_dim_given) d.v_head_dims = d.head_dims;
}

/// backward=all: of everything that the kernel takes.
void settle_gradients(Draft& draft) {
  Declaration& d = draft.declaration;
  if (!draft.all_gradients) return;
  d.backward = {true, d.has(Feature::bias), has_alibi(d), d.has(Feature::sink),
                d.has(Feature::lse)};
}

void settle_precision(Draft& draft) {
  Declaration& d = draft.declaration;
  for (DType dtype : kAllDTypes) {
    const auto index = static_cast<std::size_t>(dtype);
    const auto own = draft.precision_of.find(dtype);
    d.precision[index] = own != draft.precision_of.end() ? own->second
                         : d.has(dtype)                  ? draft.precision
                                                         : "f32";
    d.profile[index] = *precision_preset(d.precision[index], dtype);
  }
  // The narrower word wins, whatever the order of the text.
  for (const bool narrow : {false, true})
    for (const Override& given : draft.overrides) {
      if (given.dtype.has_value() != narrow) continue;
      for (DType dtype : d.dtypes)
        if (!narrow || dtype == *given.dtype)
          given.field->set(d.profile[static_cast<std::size_t>(dtype)], given.value);
    }
}

/// Whether some row can be turned: whole, or the channels below an odd last one.
bool can_turn(const Declaration& d) {
  const std::int64_t parity = d.has(Feature::rope_partial) ? 1 : 2;
  return std::any_of(d.head_dims.begin(), d.head_dims.end(), [&](const DimRange& range) {
    std::int64_t dim = std::max<std::int64_t>(range.first, 2);
    dim = range.first + (dim - range.first + range.step - 1) / range.step * range.step;
    if (dim % parity != 0) dim += range.step;
    return dim <= range.last && dim % parity == 0;
  });
}

/// What contradicts itself; empty where nothing does.
Wrong contradiction(const Draft& draft) {
  const Declaration& d = draft.declaration;
  const bool window = d.has(Feature::window_left) || d.has(Feature::window_right);
  const bool alibi = has_alibi(d);
  const bool rope = d.has(Feature::rope_interleaved) || d.has(Feature::rope_half);
  const bool masks = d.has(Feature::causal) || d.has(Feature::prefix) || window ||
                     d.has(Feature::packed) || d.has(Feature::mask) || d.has(Feature::blocks);
  const bool padded_lengths = (d.has(Feature::left_pad_q) && d.has(Feature::seqlens_q)) ||
                              (d.has(Feature::left_pad_k) && d.has(Feature::seqlens_k));
  const auto needs = [](bool given, bool owner, const char* key, const char* what) -> Wrong {
    return given && !owner ? fmt::format("{} needs {}", key, what) : Wrong{};
  };
  if (d.dtypes.empty()) return "no dtype is declared, e.g. dtype=f32";
  for (const Wrong& wrong :
       {needs(d.has(Feature::global_tokens), window, "global_tokens", "window"),
        needs(d.has(Feature::bias_neg_inf), d.has(Feature::bias), "bias_neg_inf", "bias"),
        needs(d.has(Feature::alibi_inside_softcap), alibi && d.has(Feature::softcap),
              "alibi_inside_softcap", "alibi and softcap"),
        needs(d.has(Feature::rope_partial), rope, "rope_partial", "rope"),
        needs(d.has(Feature::rope_linear) || d.has(Feature::rope_ntk), rope, "rope_scaling",
              "rope"),
        needs(d.has(Feature::scale_nonpositive), d.has(Feature::scale), "scale_nonpositive",
              "scale"),
        needs(d.backward.bias, d.has(Feature::bias), "backward=bias", "bias"),
        needs(d.backward.slopes, alibi, "backward=slopes", "alibi"),
        needs(d.backward.sink, d.has(Feature::sink), "backward=sink", "sink"),
        needs(d.backward.lse, d.has(Feature::lse), "backward=lse", "lse"),
        needs(!d.forward, d.cache.served() || d.rope.served, "forward=none", "cache or component"),
        needs(d.rope.served, rope, "component=rope", "rope=interleaved or half"),
        needs(d.rope.served, can_turn(d), "component=rope",
              "a head_dim of at least 2 that is even, or rope_partial"),
        needs(!d.forward, !d.backward.served, "forward=none", "no backward"),
        needs(draft.given("cache_keys"), d.cache.served() && rope, "cache_keys", "cache and rope"),
        needs(draft.given("page_size"), d.cache.paged, "page_size", "cache=paged"),
        needs(d.cache.splits, d.cache.served(), "splits", "cache"),
        needs(draft.given("mask_polarity"), d.has(Feature::mask), "mask_polarity", "mask"),
        needs(draft.given("window_bound"), d.has(Feature::window_left), "window_bound",
              "window or window=left"),
        needs(draft.given("lse_base"), d.has(Feature::lse), "lse_base", "lse"),
        needs(draft.given("empty_lse"), d.has(Feature::lse), "empty_lse", "lse"),
        needs(draft.given("lengths"), padded_lengths, "lengths",
              "seqlens and left_pad of the same side"),
        needs(draft.given("padding_row"), may_have_padding_queries(d), "padding_row",
              "seqlens_q, left_pad_q or packed"),
        needs(d.masked_nan_safe, masks, "masked_nan_safe",
              "something that masks: base=causal or prefix, window, packed, mask or blocks")})
    if (!wrong.empty()) return wrong;
  for (const auto& [dtype, preset] : draft.precision_of)
    if (!d.has(dtype)) return fmt::format("precision.{} needs dtype={}", name(dtype), name(dtype));
  for (const Override& given : draft.overrides)
    if (given.dtype && !d.has(*given.dtype))
      return fmt::format("profile.{}.{} needs dtype={}", name(*given.dtype), given.field->name,
                         name(*given.dtype));
  return {};
}

}  // namespace

Result<Declaration> parse_declaration(std::string_view text) {
  if (text.size() > kMostTextBytes)
    return Error{fmt::format("declaration: {} bytes long; at most {} are read", text.size(),
                             kMostTextBytes)};
  Draft draft;
  std::size_t number = 0;
  for (std::string_view line : split_lines(text)) {
    ++number;
    const auto error = [number](std::size_t column, std::string_view what) {
      return Error{fmt::format("declaration, line {}, column {}: {}", number, column, what)};
    };
    line = line.substr(0, line.find('#'));
    if (const auto column = unprintable_column(line))
      return error(*column, "a byte that is not printable ASCII");
    for (const Word& word : split_words(line))
      if (const Wrong wrong = read_word(word.text, draft); !wrong.empty())
        return error(word.column, wrong);
  }
  settle_features(draft);
  settle_gradients(draft);
  settle_precision(draft);
  if (const Wrong wrong = contradiction(draft); !wrong.empty())
    return Error{"declaration: " + wrong};
  draft.declaration.text = text;
  return draft.declaration;
}

}  // namespace attest
