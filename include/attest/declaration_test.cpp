// SPDX-License-Identifier: Apache-2.0
#include "attest/declaration.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "attest/declaration_words.hpp"
#include "attest/text.hpp"

namespace attest {
namespace {

Declaration parsed(const std::string& text) {
  const auto declaration = parse_declaration(text);
  EXPECT_TRUE(declaration) << text << ": " << declaration.error();
  return declaration ? *declaration : Declaration{};
}

TEST(Declaration, ReadsTheExample) {
  const Declaration d = parsed(
      "dtype=f32,bf16 head_dim=8..256%8 base=full,causal align=bottom_right gqa window lse "
      "precision=mma_f32acc deterministic");
  EXPECT_EQ(d.dtypes, (std::vector{DType::f32, DType::bf16}));
  EXPECT_EQ(d.head_dims, (DimSet{{8, 256, 8}}));
  EXPECT_FALSE(d.v_head_dims);
  std::vector<Feature> features;
  for (int i = 0; i < kNumFeatures; ++i)
    if (d.has(static_cast<Feature>(i))) features.push_back(static_cast<Feature>(i));
  EXPECT_EQ(features, (std::vector{Feature::gqa, Feature::causal, Feature::align_bottom_right,
                                   Feature::window_left, Feature::window_right, Feature::lse}));
  EXPECT_TRUE(d.base_full && d.layout_bhld);
  EXPECT_TRUE(d.deterministic);
  EXPECT_FALSE(d.batch_invariant || d.thread_invariant || d.masked_nan_safe);
  EXPECT_EQ(d.profile_for(DType::bf16), precision_preset("mma_f32acc", DType::bf16));
  EXPECT_EQ(d.profile_for(DType::f32), precision_preset("mma_f32acc", DType::f32));
}

TEST(Declaration, PlainDefaults) {
  const Declaration d = parsed("dtype=f16");
  EXPECT_TRUE(contains(d.head_dims, 1) && contains(d.head_dims, 4096));
  EXPECT_FALSE(contains(d.head_dims, 0));
  EXPECT_EQ(std::count(d.features.begin(), d.features.end(), true), 0);
  EXPECT_EQ(d.mask_polarity, MaskPolarity::keep);
  EXPECT_EQ(d.lse_base, LseBase::e);
  EXPECT_EQ(d.window_bound, WindowBound::inclusive);
  EXPECT_EQ(d.lengths, Lengths::end_row);
  EXPECT_EQ(d.empty_output, EmptyOutput::zero);
  EXPECT_EQ(d.empty_lse, EmptyLse::neg_inf);
  EXPECT_EQ(d.precision[static_cast<std::size_t>(DType::f16)], "f32");
  EXPECT_EQ(d.text, "dtype=f16");
}

TEST(Declaration, Backward) {
  EXPECT_FALSE(parsed("dtype=f32 features=all").backward.served);
  EXPECT_EQ(parsed("dtype=f32 backward").backward,
            (BackwardScope{true, false, false, false, false}));
  const Declaration some = parsed("dtype=f32 bias sink lse backward=sink,lse");
  EXPECT_EQ(some.backward, (BackwardScope{true, false, false, true, true}));
  EXPECT_EQ(print_declaration(some), "dtype=f32 bias sink lse backward=sink,lse");
  // All that the kernel takes, wherever the word stands.
  const Declaration all = parsed("backward=all dtype=f32 alibi=signed lse");
  EXPECT_EQ(all.backward, (BackwardScope{true, false, true, false, true}));
  EXPECT_EQ(parsed(print_declaration(all)).backward, all.backward);
  for (const char* wrong :
       {"dtype=f32 backward=bias", "dtype=f32 backward=slopes", "dtype=f32 backward=sink",
        "dtype=f32 backward=lse", "dtype=f32 backward=q",
        "dtype=f32 backward=", "dtype=f32 lse backward=lse,all"})
    EXPECT_FALSE(parse_declaration(wrong)) << wrong;
}

TEST(Declaration, CoversGradients) {
  AttentionProblem problem;
  problem.operation = Operation::backward;
  problem.sink = SinkKind::normal;
  EXPECT_EQ(not_declared(parsed("dtype=f32 sink lse"), problem), "backward");
  EXPECT_EQ(not_declared(parsed("dtype=f32 sink lse backward"), problem), "the gradient of sink");
  EXPECT_EQ(not_declared(parsed("dtype=f32 sink lse backward=sink"), problem), std::nullopt);
  problem.d_lse = true;
  EXPECT_EQ(not_declared(parsed("dtype=f32 sink lse backward=sink"), problem), "a gradient of lse");
  problem.d_lse = false;
  problem.no_gradient[static_cast<std::size_t>(Gradient::sink)] = true;
  EXPECT_EQ(not_declared(parsed("dtype=f32 sink lse backward"), problem), std::nullopt);
}

TEST(Declaration, Caches) {
  const Declaration none = parsed("dtype=f32 features=all");
  EXPECT_FALSE(none.cache.served());
  EXPECT_TRUE(none.forward);
  EXPECT_TRUE(none.cache.raw && !none.cache.rotated && !none.cache.splits);
  const Declaration d = parsed(
      "page_size=16..64%16,1 cache=paged,contiguous dtype=f32 rope=half splits "
      "cache_keys=rotated,raw forward=none switch=64,4096");
  EXPECT_FALSE(d.forward);
  EXPECT_TRUE(d.cache.contiguous && d.cache.paged && !d.cache.ring);
  EXPECT_TRUE(d.cache.serves(CacheKind::contiguous) && d.cache.serves(CacheKind::paged));
  EXPECT_FALSE(d.cache.serves(CacheKind::ring));
  EXPECT_TRUE(d.cache.raw && d.cache.rotated && d.cache.splits);
  EXPECT_EQ(d.cache.page_sizes, (DimSet{{16, 64, 16}, {1, 1, 1}}));
  EXPECT_EQ(d.switch_lengths, (std::vector<std::int64_t>{64, 4096}));
  EXPECT_EQ(print_declaration(d),
            "dtype=f32 rope=half forward=none cache=contiguous,paged cache_keys=raw,rotated "
            "page_size=16..64%16,1 splits switch=64,4096");
  const Declaration rotated = parsed("dtype=f32 rope=half cache=ring cache_keys=rotated");
  EXPECT_TRUE(!rotated.cache.raw && rotated.cache.rotated && rotated.cache.ring);
  const Declaration any = parsed("dtype=f32 cache=paged");
  EXPECT_TRUE(contains(any.cache.page_sizes, 1) && contains(any.cache.page_sizes, 4096));
  // Lengths at which a kernel switches are no matter of caches alone.
  EXPECT_EQ(parsed("dtype=f32 switch=512").switch_lengths, (std::vector<std::int64_t>{512}));
}

TEST(Declaration, LinesAndComments) {
  const Declaration d = parsed("# my kernel\ndtype=f32   # only f32\r\n\tlse\n\ngqa # end");
  EXPECT_TRUE(d.has(DType::f32) && d.has(Feature::lse) && d.has(Feature::gqa));
  EXPECT_EQ(print_declaration(d), "dtype=f32 gqa lse");
}

TEST(Declaration, DimRanges) {
  EXPECT_EQ(parsed("dtype=f32 head_dim=64").head_dims, (DimSet{{64, 64, 1}}));
  EXPECT_EQ(parsed("dtype=f32 head_dim=0..4").head_dims, (DimSet{{0, 4, 1}}));
  // "%8" means multiples of 8, wherever the range starts and ends.
  EXPECT_EQ(parsed("dtype=f32 head_dim=1..260%8").head_dims, (DimSet{{8, 256, 8}}));
  EXPECT_EQ(parsed("dtype=f32 head_dim=64..70%8,3").head_dims, (DimSet{{64, 64, 1}, {3, 3, 1}}));
  EXPECT_EQ(parsed("dtype=f32 v_head_dim=32,64").v_head_dims, (DimSet{{32, 32, 1}, {64, 64, 1}}));
  EXPECT_TRUE(parsed("dtype=f32 v_head_dim=32").has(Feature::v_head_dim));
  EXPECT_FALSE(parsed("dtype=f32 v_head_dim=same").has(Feature::v_head_dim));
}

TEST(Declaration, AllFeatures) {
  const Declaration d = parsed("dtype=f32 features=all head_dim=1..64");
  EXPECT_TRUE(std::all_of(d.features.begin(), d.features.end(), [](bool on) { return on; }));
  EXPECT_EQ(d.v_head_dims, d.head_dims);
  EXPECT_FALSE(d.deterministic) << "a promise is no feature";
  const Declaration same = parsed("v_head_dim=same features=all dtype=f32");
  EXPECT_FALSE(same.has(Feature::v_head_dim));
  EXPECT_FALSE(same.v_head_dims);
  EXPECT_FALSE(parsed("dtype=f32 features=all base=causal").base_full);
}

TEST(Declaration, PrecisionByDTypeAndNumber) {
  const Declaration d = parsed(
      "profile.bf16.u_p=0x1p-7 precision.bf16=mma_f32acc dtype=f64,f32,bf16 profile.c_acc=2 "
      "precision=f32_tf32 profile.u_p=0.25 profile.p_normalised=1");
  const auto& bf16 = d.profile_for(DType::bf16);
  EXPECT_EQ(bf16.u_p, 0x1p-7) << "the narrower word wins";
  EXPECT_EQ(bf16.eta_p, 0x1p-134);
  EXPECT_EQ(bf16.c_acc, 2);
  EXPECT_TRUE(bf16.p_normalised);
  const auto& f32 = d.profile_for(DType::f32);
  EXPECT_EQ(f32.u_in, 0x1p-11);
  EXPECT_EQ(f32.u_p, 0.25);
  EXPECT_EQ(d.profile_for(DType::f64).u_acc, 0x1p-53);
  EXPECT_EQ(d.profile_for(DType::f64).u_p, 0.25);
  EXPECT_EQ(d.profile_for(DType::f16), precision_preset("f32", DType::f16)) << "undeclared";
  EXPECT_EQ(d.precision[static_cast<std::size_t>(DType::bf16)], "mma_f32acc");
  EXPECT_EQ(d.precision[static_cast<std::size_t>(DType::f32)], "f32_tf32");
}

TEST(Declaration, PrintedTextReadsBackAsTheSame) {
  for (const char* text :
       {"dtype=f32", "dtype=bf16,f64", "dtype=f32 features=all",
        "features=all dtype=f16 v_head_dim=same",
        "dtype=f32 features=all base=causal layout=blhd,strided", "dtype=f32 base=prefix",
        "dtype=f32 head_dim=8..256%8,3 v_head_dim=any max_q_len=512 max_kv_len=1024",
        "dtype=f32 window=left align=top_left,q_offset alibi=signed rope=half rope_scaling=ntk",
        "dtype=f32 mask mask_polarity=drop lse lse_base=2 window window_bound=exclusive seqlens_k "
        "left_pad_k lengths=real_count empty_row=mean_v empty_lse=pos_inf",
        "dtype=f32 packed padding_row=unspecified",
        "dtype=f32,bf16 precision.bf16=mma_f32acc profile.e_exp=1e-5 profile.l_from_rounded=1",
        "dtype=f32,f16 precision=fp16acc profile.f16.max_acc=1000",
        "dtype=f32 layout=any base=causal deterministic batch_invariant thread_invariant "
        "masked_nan_safe memory=linear",
        "dtype=f32 cache=contiguous", "dtype=f32 forward=none cache=ring window splits",
        "dtype=f32 rope=half,interleaved cache=paged,ring cache_keys=rotated page_size=8,64",
        "dtype=f32 rope=half cache=paged cache_keys=raw,rotated page_size=any",
        "dtype=f32 features=all backward=all cache=contiguous,ring,paged switch=1,2,4096"}) {
    const Declaration first = parsed(text);
    const std::string printed = print_declaration(first);
    const Declaration second = parsed(printed);
    EXPECT_EQ(print_declaration(second), printed) << text;
    EXPECT_EQ(second.dtypes, first.dtypes) << text;
    EXPECT_EQ(second.head_dims, first.head_dims) << text;
    EXPECT_EQ(second.forward, first.forward) << text;
    EXPECT_EQ(second.backward, first.backward) << text;
    EXPECT_EQ(second.cache, first.cache) << text;
    EXPECT_EQ(second.switch_lengths, first.switch_lengths) << text;
    EXPECT_EQ(second.v_head_dims, first.v_head_dims) << text;
    EXPECT_EQ(second.max_q_len, first.max_q_len) << text;
    EXPECT_EQ(second.max_kv_len, first.max_kv_len) << text;
    EXPECT_EQ(second.features, first.features) << text << "\n" << printed;
    EXPECT_EQ(second.base_full, first.base_full) << text;
    EXPECT_EQ(second.layout_bhld, first.layout_bhld) << text;
    EXPECT_EQ(second.mask_polarity, first.mask_polarity) << text;
    EXPECT_EQ(second.lse_base, first.lse_base) << text;
    EXPECT_EQ(second.window_bound, first.window_bound) << text;
    EXPECT_EQ(second.lengths, first.lengths) << text;
    EXPECT_EQ(second.padding_row, first.padding_row) << text;
    EXPECT_EQ(second.empty_output, first.empty_output) << text;
    EXPECT_EQ(second.empty_lse, first.empty_lse) << text;
    EXPECT_EQ(second.precision, first.precision) << text;
    EXPECT_EQ(second.profile, first.profile) << text;
    EXPECT_EQ(second.deterministic, first.deterministic) << text;
    EXPECT_EQ(second.batch_invariant, first.batch_invariant) << text;
    EXPECT_EQ(second.thread_invariant, first.thread_invariant) << text;
    EXPECT_EQ(second.masked_nan_safe, first.masked_nan_safe) << text;
    EXPECT_EQ(second.memory_linear, first.memory_linear) << text;
  }
}

/// Each feature declared alone (with what it needs) prints and reads back.
TEST(Declaration, PrintsCanonically) {
  EXPECT_EQ(print_declaration(
                parsed("lse masked_nan_safe gqa window base=prefix,causal,full dtype=bf16,f32")),
            "dtype=f32,bf16 base=full,causal,prefix window=left,right gqa lse masked_nan_safe");
  EXPECT_EQ(print_declaration(parsed("memory=linear dtype=f32 deterministic")),
            "dtype=f32 deterministic memory=linear");
  EXPECT_EQ(print_declaration(parsed("dtype=f32 features=all layout=any softcap")),
            "dtype=f32 v_head_dim=any features=all");
  EXPECT_EQ(print_declaration(parsed("dtype=f32 profile.u_in=0x1p-11")),
            "dtype=f32 profile.f32.u_in=0.00048828125");
}

TEST(Declaration, Refusals) {
  const struct {
    std::string text, error;
  } kTable[] = {
      {"", "declaration: no dtype is declared, e.g. dtype=f32"},
      {"lse", "declaration: no dtype is declared, e.g. dtype=f32"},
      {"dtype", "declaration, line 1, column 1: dtype: '' is none of f64, f32, f16, bf16"},
      {"dtype=", "declaration, line 1, column 1: dtype: '' is none of f64, f32, f16, bf16"},
      {"dtype=fp32", "declaration, line 1, column 1: dtype: 'fp32' is none of f64, f32, f16, bf16"},
      {"dtype=f32,f32", "declaration, line 1, column 1: dtype: f32 stands twice"},
      {"dtype=f32 dtype=f16", "declaration, line 1, column 11: 'dtype' is given twice"},
      {"dtype=f32\nlse lse", "declaration, line 2, column 5: 'lse' is given twice"},
      {"dtype=f32 foo", "declaration, line 1, column 11: 'foo' is no key of a declaration"},
      {"dtype=f32 foo=1", "declaration, line 1, column 11: 'foo' is no key of a declaration"},
      {"dtype=f32 gqa=1", "declaration, line 1, column 11: gqa takes no value"},
      {"dtype=f32 deterministic=1", "declaration, line 1, column 11: deterministic takes no value"},
      {"dtype=f32 memory=quadratic",
       "declaration, line 1, column 11: memory: 'quadratic' is not linear"},
      {"dtype=f32 memory", "declaration, line 1, column 11: memory: '' is not linear"},
      {"dtype=f32 head_dim=8..4",
       "declaration, line 1, column 11: head_dim: '8..4' is not a number, first..last or "
       "first..last%multiple"},
      {"dtype=f32 head_dim=-1",
       "declaration, line 1, column 11: head_dim: '-1' is not a number, first..last or "
       "first..last%multiple"},
      {"dtype=f32 head_dim=1..8%0",
       "declaration, line 1, column 11: head_dim: '1..8%0' is not a number, first..last or "
       "first..last%multiple"},
      {"dtype=f32 head_dim=1..7%8",
       "declaration, line 1, column 11: head_dim: '1..7%8' holds no number"},
      {"dtype=f32 head_dim=1..9223372036854775807",
       "declaration, line 1, column 11: head_dim: '1..9223372036854775807' is not a number, "
       "first..last or first..last%multiple"},
      {"dtype=f32 v_head_dim=64,",
       "declaration, line 1, column 11: v_head_dim: '' is not a number, first..last or "
       "first..last%multiple"},
      {"dtype=f32 max_q_len=0",
       "declaration, line 1, column 11: max_q_len: '0' is not an integer above 0"},
      {"dtype=f32 features=some", "declaration, line 1, column 11: features: 'some' is not all"},
      {"dtype=f32 base=ful", "declaration, line 1, column 11: base: 'ful' is no value of base"},
      {"dtype=f32 base=causal,causal",
       "declaration, line 1, column 11: base: 'causal' stands twice"},
      {"dtype=f32 align=", "declaration, line 1, column 11: align: '' is no value of align"},
      {"dtype=f32 layout=nhwc",
       "declaration, line 1, column 11: layout: 'nhwc' is no value of layout"},
      {"dtype=f32 mask mask_polarity=yes",
       "declaration, line 1, column 16: mask_polarity: 'yes' is none of keep, drop"},
      {"dtype=f32 empty_row=1",
       "declaration, line 1, column 11: empty_row: '1' is none of zero, nan, mean_v, unspecified"},
      {"dtype=f32 precision=f16",
       "declaration, line 1, column 11: precision: 'f16' is none of f32, mma_f32acc, "
       "mma_f32acc_f32p, f32_tf32, fp16acc"},
      {"dtype=f32 precision.f8=f32",
       "declaration, line 1, column 11: precision.f8: 'f8' is no dtype"},
      {"dtype=f32 precision.f16=f32", "declaration: precision.f16 needs dtype=f16"},
      {"dtype=f32 profile.f16.u_p=0", "declaration: profile.f16.u_p needs dtype=f16"},
      {"dtype=f32 profile.u_x=0",
       "declaration, line 1, column 11: profile.u_x: 'u_x' is no number of a precision profile"},
      {"dtype=f32 profile.u_p=1",
       "declaration, line 1, column 11: profile.u_p: '1' is not a number in 0..0.5"},
      {"dtype=f32 profile.u_p=nan",
       "declaration, line 1, column 11: profile.u_p: 'nan' is not a number in 0..0.5"},
      {"dtype=f32 profile.c_acc=3",
       "declaration, line 1, column 11: profile.c_acc: '3' is not 1 or 2"},
      {"dtype=f32 profile.max_acc=inf",
       "declaration, line 1, column 11: profile.max_acc: 'inf' is not a finite number above 0"},
      {"dtype=f32 profile.eta_p=-1",
       "declaration, line 1, column 11: profile.eta_p: '-1' is not a finite number of at least 0"},
      {"dtype=f32 profile.p_normalised=true",
       "declaration, line 1, column 11: profile.p_normalised: 'true' is not 0 or 1"},
      {"dtype=f32 global_tokens", "declaration: global_tokens needs window"},
      {"dtype=f32 bias_neg_inf", "declaration: bias_neg_inf needs bias"},
      {"dtype=f32 alibi=signed alibi_inside_softcap",
       "declaration: alibi_inside_softcap needs alibi and softcap"},
      {"dtype=f32 softcap alibi_inside_softcap",
       "declaration: alibi_inside_softcap needs alibi and softcap"},
      {"dtype=f32 rope_partial", "declaration: rope_partial needs rope"},
      {"dtype=f32 rope_scaling=ntk", "declaration: rope_scaling needs rope"},
      {"dtype=f32 scale_nonpositive", "declaration: scale_nonpositive needs scale"},
      {"dtype=f32 mask_polarity=drop", "declaration: mask_polarity needs mask"},
      {"dtype=f32 window=right window_bound=exclusive",
       "declaration: window_bound needs window or window=left"},
      {"dtype=f32 lse_base=2", "declaration: lse_base needs lse"},
      {"dtype=f32 empty_lse=zero", "declaration: empty_lse needs lse"},
      {"dtype=f32 seqlens_k left_pad_q lengths=real_count",
       "declaration: lengths needs seqlens and left_pad of the same side"},
      {"dtype=f32 seqlens_k left_pad_k padding_row=zero",
       "declaration: padding_row needs seqlens_q, left_pad_q or packed"},
      {"dtype=f32 seqlens_k masked_nan_safe",
       "declaration: masked_nan_safe needs something that masks: base=causal or prefix, window, "
       "packed, mask or blocks"},
      {"dtype=f32 forward=all", "declaration, line 1, column 11: forward: 'all' is not none"},
      {"dtype=f32 forward", "declaration, line 1, column 11: forward: '' is not none"},
      {"dtype=f32 cache=linear",
       "declaration, line 1, column 11: cache: 'linear' is none of contiguous, ring, paged"},
      {"dtype=f32 cache",
       "declaration, line 1, column 11: cache: '' is none of contiguous, ring, paged"},
      {"dtype=f32 cache=ring,ring", "declaration, line 1, column 11: cache: ring stands twice"},
      {"dtype=f32 rope=half cache=ring cache_keys=cooked",
       "declaration, line 1, column 32: cache_keys: 'cooked' is none of raw, rotated"},
      {"dtype=f32 cache=paged page_size=4..2",
       "declaration, line 1, column 23: page_size: '4..2' is not a number, first..last or "
       "first..last%multiple"},
      {"dtype=f32 cache=paged page_size=0",
       "declaration, line 1, column 23: page_size: '0' allows pages of 0 rows"},
      {"dtype=f32 cache=paged page_size=16,0..3",
       "declaration, line 1, column 23: page_size: '16,0..3' allows pages of 0 rows"},
      {"dtype=f32 cache=ring splits=4", "declaration, line 1, column 22: splits takes no value"},
      {"dtype=f32 switch=64,64", "declaration, line 1, column 11: switch: '64,64' does not ascend"},
      {"dtype=f32 switch=0",
       "declaration, line 1, column 11: switch: '0' is not an integer above 0"},
      {"dtype=f32 switch=", "declaration, line 1, column 11: switch: '' is not an integer above 0"},
      {"dtype=f32 forward=none", "declaration: forward=none needs cache or component"},
      {"dtype=f32 forward=none cache=ring backward", "declaration: forward=none needs no backward"},
      {"dtype=f32 cache=ring cache_keys=raw", "declaration: cache_keys needs cache and rope"},
      {"dtype=f32 rope=half cache_keys=raw", "declaration: cache_keys needs cache and rope"},
      {"dtype=f32 cache=ring page_size=4", "declaration: page_size needs cache=paged"},
      {"dtype=f32 splits", "declaration: splits needs cache"},
      {"dtype=f32 \x01", "declaration, line 1, column 11: a byte that is not printable ASCII"},
      {std::string("dtype=f32\n\0", 11),
       "declaration, line 2, column 1: a byte that is not printable ASCII"},
  };
  for (const auto& [text, error] : kTable) {
    const auto declaration = parse_declaration(text);
    ASSERT_FALSE(declaration) << text;
    EXPECT_EQ(declaration.error(), error) << text;
  }
}

TEST(Declaration, ThePageNamesEveryWordAndNumber) {
  std::ifstream file(ATTEST_SOURCE_DIR "/docs/declaration.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const auto expect_named = [&page](std::string_view word) {
    EXPECT_NE(page.find("`" + std::string(word) + "`"), std::string::npos) << word;
  };
  for (const FeatureWord& word : kFeatureWords) {
    expect_named(word.key);
    if (!word.value.empty()) expect_named(word.value);
  }
  for (const ProfileField& field : profile_fields()) expect_named(field.name);
  for (std::string_view preset : precision_preset_names()) expect_named(preset);
}

TEST(Declaration, TooLong) {
  const std::string text(kMostTextBytes + 1, ' ');
  EXPECT_EQ(parse_declaration(text).error(),
            "declaration: 1048577 bytes long; at most 1048576 are read");
}

}  // namespace
}  // namespace attest
