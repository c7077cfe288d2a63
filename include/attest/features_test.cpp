// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"

namespace attest {
namespace {

AttentionProblem problem_of(const std::string& keys) {
  const auto problem = parse_case("attention.forward " + keys);
  EXPECT_TRUE(problem) << keys << ": " << problem.error();
  return problem ? *problem : AttentionProblem{};
}

std::string features_in(const std::string& keys) {
  std::string text;
  for (Feature feature : features_of(problem_of(keys)))
    text += fmt::format("{}{}", text.empty() ? "" : " ", name(feature));
  return text;
}

/// Keys of a case line, and the features that it uses.
struct Row {
  const char* keys;
  const char* features;
};
const Row kSingle[] = {
    {"", ""},
    {"lse=1", "lse"},
    {"hq=4 hkv=2", "gqa"},
    {"hq=4", ""},
    {"d=4 dv=2", "v_head_dim"},
    {"base=causal", "causal"},
    {"base=prefix prefix_len=0", "prefix"},
    {"window=3,-1", "window_left"},
    {"window=-1,0", "window_right"},
    {"window=0,0 global_tokens=1", "window_left window_right global_tokens"},
    {"seqlens_q=1", "seqlens_q"},
    {"seqlens_k=1", "seqlens_k"},
    {"left_pad_q=0", "left_pad_q"},
    {"left_pad_k=0", "left_pad_k"},
    {"cu_seqlens_q=0,1 cu_seqlens_k=0,1", "packed"},
    {"mask=all_true", "mask"},
    {"blocks=1,1", "blocks"},
    {"bias=normal", "bias"},
    {"bias=lowest", "bias"},
    {"bias=neg_inf", "bias bias_neg_inf"},
    {"bias=list bias_values=1", "bias"},
    {"lk=2 bias=list bias_axes=k bias_values=1,-inf", "bias bias_neg_inf"},
    {"alibi=absolute", "alibi_absolute"},
    {"alibi=signed", "alibi_signed"},
    {"alibi=key_anchored", "alibi_key_anchored"},
    {"alibi=signed softcap=1 alibi_inside=1", "alibi_signed alibi_inside_softcap softcap"},
    {"d=4 rope=interleaved", "rope_interleaved"},
    {"d=4 rope=half", "rope_half"},
    {"d=4 rope=half rope_dim=4", "rope_half"},
    {"d=5 rope=half", "rope_half rope_partial"},
    {"d=4 rope=half rope_dim=2", "rope_half rope_partial"},
    {"d=4 rope=half rope_scale=2", "rope_half rope_linear"},
    {"d=4 rope=half rope_ntk=2", "rope_half rope_ntk"},
    {"d=4 scale=0.5", ""},
    {"d=4 scale=0.25", "scale"},
    {"scale=0", "scale scale_nonpositive"},
    {"scale=-1", "scale scale_nonpositive"},
    {"softcap=3", "softcap"},
    {"sink=mixed_inf", "sink"},
    {"dropout=0.5", "dropout"},
    {"layout=bhld", ""},
    {"layout=blhd", "layout_blhd"},
    {"layout=bhdl", "layout_bhdl"},
    {"layout=strided", "layout_strided"},
    {"layout=kv_packed", "layout_kv_packed"},
    {"layout=broadcast", "layout_broadcast"},
    {"b=0", "empty_dims"},
    {"lq=0", "empty_dims"},
    {"lk=0", "empty_dims"},
    {"dv=0", "v_head_dim empty_dims"},
};

/// A case line's keys with lse=0, unless they are about lse themselves.
std::string quiet(const std::string& keys) {
  return keys.starts_with("lse") ? keys : "lse=0 " + keys;
}

TEST(FeaturesOf, EachFeatureAlone) {
  for (const Row& row : kSingle) EXPECT_EQ(features_in(quiet(row.keys)), row.features) << row.keys;
}

TEST(FeaturesOf, AlignmentCountsOnlyWhereTheAnswerDependsOnIt) {
  const Row kTable[] = {
      // Nothing positional.
      {"lq=2 lk=3", ""},
      {"lq=2 lk=3 align=top_left", ""},
      {"lq=2 lk=3 align=q_offset q_offset=5", ""},
      {"lq=2 lk=3 mask=random", "mask"},
      {"lq=2 lk=3 alibi=key_anchored", "alibi_key_anchored"},
      // Everything positional.
      {"lq=2 lk=3 base=causal", "causal align_bottom_right"},
      {"lq=2 lk=3 base=causal align=top_left", "causal align_top_left"},
      {"lq=2 lk=3 base=causal align=q_offset q_offset=0", "causal align_q_offset"},
      {"lq=2 lk=3 base=prefix prefix_len=1", "prefix align_bottom_right"},
      {"lq=2 lk=3 window=-1,1 align=top_left", "align_top_left window_right"},
      {"lq=2 lk=3 window=1,-1", "align_bottom_right window_left"},
      {"lq=2 lk=3 alibi=signed", "align_bottom_right alibi_signed"},
      {"lq=2 lk=3 alibi=absolute", "align_bottom_right alibi_absolute"},
      {"lq=2 lk=3 bias=t5", "align_bottom_right bias"},
      {"lq=2 lk=3 d=2 rope=half", "align_bottom_right rope_half"},
      // Equally many rows: both ends are one, but an explicit offset stays one.
      {"lq=3 lk=3 base=causal", "causal"},
      {"lq=3 lk=3 base=causal align=top_left", "causal"},
      {"lq=3 lk=3 base=causal align=q_offset q_offset=0", "causal align_q_offset"},
      // Lengths decide, not capacities; one sequence of the batch is enough.
      {"b=2 lq=3 lk=3 base=causal seqlens_k=3,2", "causal align_bottom_right seqlens_k"},
      {"b=2 lq=3 lk=3 base=causal seqlens_k=2,2 seqlens_q=2,2", "causal seqlens_q seqlens_k"},
      {"lq=3 lk=4 base=causal left_pad_k=1", "causal left_pad_k"},
      {"lq=4 lk=5 base=causal cu_seqlens_q=0,2,4 cu_seqlens_k=0,2,5",
       "causal align_bottom_right packed"},
      {"lq=4 lk=5 base=causal cu_seqlens_q=0,2,4 cu_seqlens_k=0,2,4", "causal packed"},
      // Without queries or keys there is nothing to align.
      {"lq=3 lk=3 base=causal seqlens_k=0", "causal seqlens_k"},
      {"lq=0 lk=3 base=causal", "causal empty_dims"},
  };
  for (const Row& row : kTable) EXPECT_EQ(features_in(quiet(row.keys)), row.features) << row.keys;
}

TEST(Feature, NamesReadBackAndAreDistinct) {
  std::set<std::string_view> names;
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    EXPECT_TRUE(names.insert(name(feature)).second) << name(feature);
    EXPECT_EQ(parse_feature(name(feature)), feature);
  }
  EXPECT_EQ(name(static_cast<Feature>(kNumFeatures)), "?");
  EXPECT_EQ(parse_feature("?"), std::nullopt);
}

Declaration declared(const std::string& text) {
  const auto declaration = parse_declaration(text);
  EXPECT_TRUE(declaration) << text << ": " << declaration.error();
  return declaration ? *declaration : Declaration{};
}

std::string reason(const Declaration& declaration, const std::string& keys) {
  return not_declared(declaration, problem_of(keys)).value_or("");
}

TEST(NotDeclared, EveryUndeclaredFeatureIsNamedAndEveryDeclaredOneServed) {
  const Declaration nothing = declared("dtype=f32");
  const Declaration everything = declared("dtype=f32 features=all");
  std::set<std::string> refused;
  for (const Row& row : kSingle) {
    const auto problem = problem_of(quiet(row.keys));
    EXPECT_EQ(not_declared(everything, problem), std::nullopt) << row.keys;
    const auto why = not_declared(nothing, problem);
    EXPECT_EQ(why.has_value(), row.features[0] != '\0') << row.keys;
    if (why) refused.insert(*why);
  }
  EXPECT_TRUE(refused.count("feature gqa") && refused.count("feature lse") &&
              refused.count("feature window_left") && refused.count("feature empty_dims"));
}

TEST(NotDeclared, DTypesAndDims) {
  const Declaration d =
      declared("dtype=f32 head_dim=8..16%8,3 v_head_dim=4,8 max_q_len=5 max_kv_len=6 lse");
  EXPECT_EQ(reason(d, "d=8"), "");
  EXPECT_EQ(reason(d, "d=16 dv=4"), "");
  EXPECT_EQ(reason(d, "d=3 dv=8"), "");
  EXPECT_EQ(reason(d, "d=8 dtype=f16"), "dtype f16");
  EXPECT_EQ(reason(d, "d=12 dv=8"), "head_dim 12");
  EXPECT_EQ(reason(d, "d=24 dv=8"), "head_dim 24");
  EXPECT_EQ(reason(d, "d=0 dv=8 scale=0"), "feature scale_nonpositive");
  EXPECT_EQ(reason(d, "d=8 dv=5"), "v_head_dim 5");
  EXPECT_EQ(reason(d, "d=16"), "v_head_dim 16");
  EXPECT_EQ(reason(d, "d=8 lq=5 lk=6"), "");
  EXPECT_EQ(reason(d, "d=8 lq=6"), "q_len 6");
  EXPECT_EQ(reason(d, "d=8 lk=7"), "kv_len 7");
  const Declaration same = declared("dtype=f32 lse empty_dims");
  EXPECT_EQ(reason(same, "d=8 dv=4"), "feature v_head_dim");
  EXPECT_EQ(reason(same, "d=8 dv=0"), "feature v_head_dim");
  EXPECT_EQ(reason(declared("dtype=f32 lse empty_dims v_head_dim=1..64"), "d=8 dv=0"), "");
  EXPECT_EQ(
      reason(declared("dtype=f32 lse scale scale_nonpositive head_dim=0..64"), "d=0 dv=0 scale=0"),
      "feature empty_dims");
}

std::string decode_reason(const std::string& declaration, const std::string& keys) {
  const auto problem = parse_case("attention.decode lse=0 " + keys);
  EXPECT_TRUE(problem) << keys << ": " << problem.error();
  return problem ? not_declared(declared(declaration), *problem).value_or("") : "";
}

TEST(NotDeclared, CachesPagesFormsOfKeysAndSplits) {
  const Row kTable[] = {
      // A declaration, and the first key that is refused.
      {"dtype=f32", "cache contiguous"},
      {"dtype=f32 features=all", "cache contiguous"},
      {"dtype=f32 cache=ring", "cache contiguous"},
      {"dtype=f32 cache=contiguous", ""},
      {"dtype=f32 cache=contiguous,ring forward=none", ""},
  };
  for (const Row& row : kTable)
    EXPECT_EQ(decode_reason(row.keys, "lk=3"), row.features) << row.keys;
  const std::string contiguous = "dtype=f32 cache=contiguous rope=half";
  EXPECT_EQ(decode_reason(contiguous, "lk=3 cache=ring"), "cache ring");
  EXPECT_EQ(decode_reason(contiguous, "lk=3 cache=paged page_size=2"), "cache paged");
  EXPECT_EQ(decode_reason(contiguous, "lk=3 splits=1"), "splits");
  EXPECT_EQ(decode_reason(contiguous + " splits", "lk=3 splits=1"), "");
  EXPECT_EQ(decode_reason(contiguous, "lk=3 d=4 rope=half"), "");
  EXPECT_EQ(decode_reason(contiguous, "lk=3 d=4 rope=half cache_rotated=1"),
            "a cache of rotated keys");
  EXPECT_EQ(decode_reason(contiguous + " cache_keys=rotated", "lk=3 d=4 rope=half"),
            "a cache of keys before RoPE");
  // Without RoPE both forms are one.
  EXPECT_EQ(decode_reason(contiguous + " cache_keys=rotated", "lk=3 d=4"), "");
  const std::string paged = "dtype=f32 cache=paged page_size=8..16%8,3";
  for (const char* size : {"3", "8", "16"})
    EXPECT_EQ(decode_reason(paged, std::string("lk=3 cache=paged page_size=") + size), "") << size;
  for (const char* size : {"1", "4", "24"})
    EXPECT_EQ(decode_reason(paged, std::string("lk=3 cache=paged page_size=") + size),
              std::string("page_size ") + size);
}

TEST(NotDeclared, AKernelThatOnlyDecodesServesNoForwardCall) {
  const Declaration only = declared("dtype=f32 cache=ring forward=none");
  EXPECT_EQ(reason(only, "lk=3 lse=0"), "forward");
  EXPECT_EQ(reason(declared("dtype=f32 cache=ring"), "lk=3 lse=0"), "");
}

TEST(NotDeclared, DecodingHasLengthsAndOneAlignmentOfItsOwn) {
  const std::string plain = "dtype=f32 cache=contiguous base=full,causal";
  // Neither seqlens_k nor align=bottom_right is declared.
  EXPECT_EQ(decode_reason(plain, "b=2 lq=2 lk=5 seqlens_k=5,3 base=causal"), "");
  EXPECT_EQ(decode_reason(plain, "b=2 lq=2 lk=5 seqlens_q=2,1"), "feature seqlens_q");
  EXPECT_EQ(reason(declared(plain), "lse=0 lq=2 lk=5 base=causal"), "feature align_bottom_right");
  EXPECT_EQ(reason(declared(plain), "lse=0 b=2 lq=2 lk=5 seqlens_k=5,3"), "feature seqlens_k");
}

TEST(NotDeclared, PlainBaseAndLayoutCanBeMissing) {
  const Declaration d = declared("dtype=f32 lse base=causal layout=blhd");
  EXPECT_EQ(reason(d, "base=causal layout=blhd"), "");
  EXPECT_EQ(reason(d, "layout=blhd"), "base full");
  EXPECT_EQ(reason(d, "base=causal"), "layout bhld");
}

TEST(NotDeclared, ConventionsOfEmptyRowsAreNoRefusal) {
  // A kernel cannot see them in a call, so it cannot refuse them.
  EXPECT_EQ(reason(declared("dtype=f32 lse"), "empty_output=nan empty_lse=zero"), "");
}

TEST(DimSet, RangesWithSteps) {
  const DimSet set{{8, 24, 8}, {5, 5, 1}};
  for (std::int64_t value : {8, 16, 24, 5}) EXPECT_TRUE(contains(set, value)) << value;
  for (std::int64_t value : {0, 4, 6, 9, 32, -8}) EXPECT_FALSE(contains(set, value)) << value;
  EXPECT_FALSE(contains({}, 1));
}

}  // namespace
}  // namespace attest
