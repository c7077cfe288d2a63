// SPDX-License-Identifier: Apache-2.0
// One legal problem per feature, and one refusal per rule of docs/semantics.md sections 1 to 4.
#include <gtest/gtest.h>

#include <limits>

#include "attest/case_line.hpp"
#include "attest/problem.hpp"

namespace attest {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The keys of a case line, and what the refusal must say.
struct Refusal {
  const char* keys;
  const char* says;
};

void expect_refused(const Refusal& refusal, const char* operation = "attention.forward ") {
  const auto problem = parse_case(operation + std::string(refusal.keys));
  ASSERT_FALSE(problem) << refusal.keys;
  EXPECT_NE(problem.error().find(refusal.says), std::string::npos)
      << refusal.keys << "\n  gave: " << problem.error() << "\n  not:  " << refusal.says;
  EXPECT_EQ(problem.error().find('\n'), std::string::npos) << "one line only";
}

TEST(ProblemError, Dims) {
  for (const Refusal& refusal : {
           Refusal{"b=-1", "b is -1; it must be at least 0"},
           {"hq=0 hkv=1", "hq is 0"},
           {"hq=1 hkv=0", "hkv is 0"},
           {"hq=-4 hkv=2", "hq is -4"},
           {"hq=8 hkv=3", "hkv=3 does not divide hq=8"},
           {"hq=2 hkv=4", "hkv=4 does not divide hq=2"},
           {"lq=-1", "lq is -1"},
           {"lk=-1", "lk is -1"},
           {"d=-1 dv=1", "d is -1"},
           {"dv=-1", "dv is -1"},
           {"d=0", "d is 0, which needs an explicit scale"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, Sizes) {
  for (const Refusal& refusal : {
           Refusal{"b=9223372036854775807 hq=9223372036854775807", "q (b*hq*lq*d)"},
           {"lq=2147483648 d=1073741824 dv=1", "q (b*hq*lq*d) would need more than 2^62"},
           {"lk=2147483648 d=1073741824 dv=1", "k (b*hkv*lk*d)"},
           {"lk=2147483648 dv=1073741824", "v (b*hkv*lk*dv)"},
           {"lq=2147483648 dv=1073741824", "o (b*hq*lq*dv)"},
           {"lq=2147483648 lk=1073741824", "the scores (b*hq*lq*lk)"},
           // A zero extent does not excuse strides that overflow.
           {"b=0 lq=4294967296 d=4294967296", "q (b*hq*lq*d)"},
           // Each tensor fits, the sum does not: four of 2^60 bytes, and lse of as many.
           {"lq=288230376151711744 lk=1 dv=4 d=4", "all tensors together"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, Scalars) {
  for (const Refusal& refusal : {
           Refusal{"scale=nan", "scale is nan; it must be finite"},
           {"scale=inf", "scale is inf"},
           {"scale=-inf", "scale is -inf"},
           {"softcap=-1", "softcap is -1"},
           {"softcap=nan", "softcap is nan"},
           {"softcap=inf", "softcap is inf"},
           {"dropout=1", "dropout is 1; it must lie in [0, 1)"},
           {"dropout=-0.1", "dropout is -0.1"},
           {"dropout=nan", "dropout is nan"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, LengthsAndPads) {
  for (const Refusal& refusal : {
           Refusal{"b=2 lk=4 seqlens_k=4", "seqlens_k has 1 entries, but there are 2 sequences"},
           {"lk=4 seqlens_k=5", "seqlens_k[0] is 5; it must lie in 0..4"},
           {"b=2 lk=4 seqlens_k=4,-1", "seqlens_k[1] is -1"},
           {"lq=4 seqlens_q=5", "seqlens_q[0] is 5"},
           {"lq=4 left_pad_q=5", "left_pad_q[0] is 5; it must lie in 0..4"},
           {"lk=4 left_pad_k=-1", "left_pad_k[0] is -1"},
           {"lk=4 left_pad_k=1,1", "left_pad_k has 2 entries"},
           {"lk=4 seqlens_k=2 left_pad_k=3", "left_pad_k[0] is 3, above seqlens_k[0]=2"},
           {"lq=4 seqlens_q=0 left_pad_q=1", "left_pad_q[0] is 1, above seqlens_q[0]=0"},
           {"b=0 seqlens_q=1", "seqlens_q has 1 entries, but there are 0 sequences"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, Packing) {
  for (const Refusal& refusal : {
           Refusal{"lq=4 cu_seqlens_q=0,4", "belong together"},
           {"lk=4 cu_seqlens_k=0,4", "belong together"},
           {"lq=4 lk=4 cu_seqlens_q=1,4 cu_seqlens_k=0,4", "cu_seqlens_q starts at 1"},
           {"lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=-1,4", "cu_seqlens_k starts at -1"},
           {"lq=4 lk=4 cu_seqlens_q=0,3,2 cu_seqlens_k=0,1,2", "cu_seqlens_q descends from 3 to 2"},
           {"lq=4 lk=4 cu_seqlens_q=0,5 cu_seqlens_k=0,4", "cu_seqlens_q ends at 5, beyond lq=4"},
           {"lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=0,5", "cu_seqlens_k ends at 5, beyond lk=4"},
           {"lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=0,2,4", "has 1 segments, cu_seqlens_k has 2"},
           {"lq=4 lk=4 cu_seqlens_q=0 cu_seqlens_k=0", "at least one segment"},
           {"b=2 lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=0,4", "needs b=1, but b is 2"},
           {"lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=0,4 seqlens_k=3", "exclude each other"},
           {"lq=4 lk=4 cu_seqlens_q=0,4 cu_seqlens_k=0,4 left_pad_q=1", "exclude each other"},
           // q_offset and prefix_len count segments here.
           {"lq=4 lk=4 cu_seqlens_q=0,2,4 cu_seqlens_k=0,2,4 align=q_offset q_offset=1",
            "q_offset has 1 entries, but there are 2 sequences"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, Positions) {
  for (const Refusal& refusal : {
           Refusal{"q_offset=1", "q_offset is given, but align is bottom_right"},
           {"align=top_left q_offset=1", "q_offset is given, but align is top_left"},
           {"align=q_offset", "q_offset has 0 entries, but there are 1 sequences"},
           {"align=q_offset q_offset=2147483648", "q_offset[0] is 2147483648"},
           {"align=q_offset q_offset=-2147483649", "q_offset[0] is -2147483649"},
           {"prefix_len=1", "prefix_len is given, but base is full"},
           {"base=causal prefix_len=1", "prefix_len is given, but base is causal"},
           {"base=prefix", "prefix_len has 0 entries"},
           {"base=prefix prefix_len=-1", "prefix_len[0] is -1"},
           {"window=-2,0", "window=-2,0"},
           {"window=0,-2", "window=0,-2"},
           {"window=4611686018427387905,0", "window=4611686018427387905,0"},
           {"window=1,1 global_tokens=-1", "global_tokens is -1"},
           {"global_tokens=1", "global_tokens needs a window"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, PositionEncodings) {
  for (const Refusal& refusal : {
           Refusal{"slopes=random", "slopes is given, but alibi is none"},
           {"alibi_inside=1", "alibi_inside is given, but alibi is none"},
           {"alibi=signed alibi_inside=1", "alibi_inside needs a softcap"},
           {"rope_dim=2 d=4", "but rope is none"},
           {"rope_base=500", "but rope is none"},
           {"rope_scale=2", "but rope is none"},
           {"rope_ntk=2", "but rope is none"},
           {"rope=half d=1", "rope needs d of at least 2"},
           {"rope=half d=0 scale=1", "rope needs d of at least 2"},
           {"rope=half d=4 rope_dim=3", "rope_dim is 3; it must be even and lie in 2..4"},
           {"rope=half d=4 rope_dim=6", "rope_dim is 6"},
           {"rope=half d=4 rope_dim=-2", "rope_dim is -2"},
           {"rope=half d=4 rope_base=0", "rope_base is 0"},
           {"rope=half d=4 rope_base=nan", "rope_base is nan"},
           {"rope=half d=4 rope_scale=-1", "rope_scale is -1"},
           {"rope=half d=4 rope_scale=inf", "rope_scale is inf"},
           {"rope=half d=4 rope_ntk=1e300", "rope_ntk is 1e+300"},
           {"rope=half d=2 rope_ntk=2", "rope_ntk needs more than 2 rotated channels"},
           {"rope=half d=3 rope_ntk=2", "rope_ntk needs more than 2 rotated channels"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, T5) {
  for (const Refusal& refusal : {
           Refusal{"t5=16,64,causal", "t5 is given, but bias is not t5"},
           {"bias=normal t5=16,64,causal", "t5 is given, but bias is not t5"},
           {"bias=t5 t5=3,64,bidirectional", "t5 has 3 buckets; bidirectional ones need 4..1024"},
           {"bias=t5 t5=1,64,causal", "t5 has 1 buckets; causal ones need 2..1024"},
           {"bias=t5 t5=1025,6400,causal", "t5 has 1025 buckets"},
           // E = 8 for 32 buckets bidirectional, 16 causal.
           {"bias=t5 t5=32,8,bidirectional", "max_distance 8; it must lie in 9.."},
           {"bias=t5 t5=32,16,causal", "max_distance 16; it must lie in 17.."},
           {"bias=t5 t5=32,2147483648,causal", "max_distance 2147483648"},
           {"bias=t5 bias_axes=bhk", "needs the axes q and k"},
           {"bias=t5 bias_axes=hq", "needs the axes q and k"},
           {"b=2 lk=4 seqlens_k=4,3 bias=t5 bias_axes=hqk", "needs the axis b"},
           {"b=2 lk=4 left_pad_k=0,1 align=top_left bias=t5 bias_axes=qk", "needs the axis b"},
           {"b=2 align=q_offset q_offset=1,2 bias=t5 bias_axes=hqk", "needs the axis b"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, AxesNeedTheirTensor) {
  for (const Refusal& refusal : {
           Refusal{"mask_axes=hk", "mask_axes is given, but mask is none"},
           {"bias_axes=-", "bias_axes is given, but bias is none"},
           {"block_axes=hqk", "block_axes or block sizes are given, but blocks is not"},
           {"blocks=4,4 block_axes=bh", "block_axes needs the axes q and k"},
           {"blocks=0,4", "blocks=0,4: a block has 1"},
           {"blocks=4,-1", "blocks=4,-1"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, Literals) {
  for (const Refusal& refusal : {
           Refusal{"q=1", "q is given, but data=list is not"},
           {"v=1", "v is given, but data=list or v_data=list is not"},
           {"data=list v=1,2 q=1 k=1", "v has 2 values; the shape needs 1"},
           {"data=list q=1 k=1", "v has 0 values; the shape needs 1"},
           {"data=list v_data=zeros q=1 k=1 v=1", "v is given, but"},
           {"data=list q=0.1 k=1 v=1", "q[0] is 0.1, which f32 does not hold exactly"},
           {"dtype=f16 data=list q=1 k=65520 v=1", "k[0] is 65520, which f16"},
           {"dtype=bf16 data=list q=1 k=1 v=257", "v[0] is 257, which bf16"},
           {"bias_values=1", "bias_values is given, but bias=list is not"},
           {"bias=list", "bias_values has 0 values"},
           {"lk=2 bias=list bias_axes=k bias_values=1",
            "bias_values has 1 values; the shape needs 2"},
           {"dtype=bf16 bias=list bias_values=1.001", "bias_values[0] is 1.001, which bf16"},
           {"mask_values=1", "mask_values is given, but mask=list is not"},
           {"mask=list mask_values=0.5", "mask_values[0] is 0.5; it must be 0 or 1"},
           {"mask=list mask_values=nan", "mask_values[0] is nan"},
           {"block_values=1", "block_values is given, but blocks is not"},
           {"lq=5 blocks=2,2 block_values=1,0", "block_values has 2 values; the shape needs 3"},
           {"blocks=2,2 block_values=2", "block_values[0] is 2"},
           {"keep_values=1", "keep_values is given, but dropout is not"},
           {"dropout=0.5 keep_values=1,1", "keep_values has 2 values"},
           {"sink_values=1", "sink_values is given, but sink=list is not"},
           {"hq=2 sink=list sink_values=1", "sink_values has 1 values; the shape needs 2"},
           {"dtype=bf16 sink=list sink_values=0.1", "sink_values[0] is 0.1, which f32"},
           {"alibi=signed slope_values=1", "slope_values is given, but slopes=list is not"},
           {"b=2 hq=2 alibi=signed slopes=list slope_values=1,1,1", "slope_values has 3 values"},
           {"alibi=signed slopes=list slope_values=inf", "slope_values[0] is inf"},
           {"lk=2 data=identity_v", "identity_v needs dv of at least lk, but dv=1 and lk=2"},
           {"lk=2 v_data=identity_v", "identity_v needs dv of at least lk"},
           {"b=2 data=list layout=broadcast q=1,2 k=1,2 v=1,1", "shares k between sequences"},
           {"b=2 data=list layout=broadcast q=1,2 k=1,1 v=0,-0", "shares v between sequences"},
       })
    expect_refused(refusal);
}

TEST(ProblemError, LegalOnes) {
  for (const char* keys : {"",
                           "b=0",
                           "lq=0",
                           "lk=0",
                           "dv=0",
                           "d=0 dv=4 scale=1",
                           "scale=0",
                           "scale=-1",
                           "softcap=1e-300",
                           "dropout=0.9999999",
                           "hq=9 hkv=3",
                           "lq=3 lk=5 seqlens_q=0 seqlens_k=5",
                           "lk=4 left_pad_k=4",
                           "lk=4 seqlens_k=2 left_pad_k=2",
                           "b=0 align=q_offset",
                           "lq=4 lk=9 cu_seqlens_q=0,2,2,3 cu_seqlens_k=0,0,5,9",
                           "align=q_offset q_offset=-5",
                           "b=2 base=prefix prefix_len=0,7",
                           "window=-1,0",
                           "window=4611686018427387904,0",
                           "window=0,0 global_tokens=3",
                           "mask=random mask_axes=-",
                           "bias=lowest bias_axes=b",
                           "blocks=3,4611686018427387904 block_axes=qk",
                           "lk=4 bias=t5 bias_axes=hqk",
                           "b=2 lk=4 seqlens_k=4,3 bias=t5",
                           "b=2 lk=4 seqlens_k=4,3 align=top_left bias=t5 bias_axes=qk",
                           "lq=4 lk=4 cu_seqlens_q=0,2,4 cu_seqlens_k=0,1,4 bias=t5 bias_axes=qk",
                           "bias=t5 t5=4,2,bidirectional",
                           "bias=t5 t5=2,2,causal",
                           "alibi=absolute alibi_inside=1 softcap=2 slopes=per_batch",
                           "rope=interleaved d=3",
                           "rope=half d=8 rope_dim=4 rope_base=1 rope_scale=0.5 rope_ntk=8",
                           "sink=mixed_inf",
                           "empty_output=mean_v empty_lse=pos_inf",
                           "lk=2 dv=2 v_data=identity_v",
                           "lk=2 data=list q=nan k=inf,-inf v=-0,1",
                           "data=list v_data=zeros q=1 k=1",
                           "v_data=list v=3",
                           "bias=list bias_values=-inf",
                           "sink=list sink_values=nan",
                           "hq=2 b=2 alibi=signed slopes=list slope_values=1,2,3,4",
                           "hq=2 b=2 alibi=signed slopes=list slope_values=1,2",
                           "data=list lq=0 lk=0",
                           "b=2 data=list layout=broadcast q=1,2 k=3,3 v=nan,nan"}) {
    const auto problem = parse_case(std::string("attention.forward ") + keys);
    EXPECT_TRUE(problem) << keys << ": " << problem.error();
  }
}

TEST(ProblemError, NumbersOutsideTheLists) {
  const auto says = [](auto change) {
    AttentionProblem problem;
    change(problem);
    return problem_error(problem).value_or("");
  };
  using P = AttentionProblem;
  EXPECT_NE(says([](P& p) { p.dtype = static_cast<DType>(4); }).find("dtype"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.base = static_cast<Base>(3); }).find("base"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.align = static_cast<Align>(255); }).find("align"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.mask = static_cast<MaskKind>(8); }).find("mask"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.bias = static_cast<BiasKind>(6); }).find("bias"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.data = static_cast<Family>(25); }).find("data"), std::string::npos);
  EXPECT_NE(says([](P& p) { p.v_data = static_cast<Family>(99); }).find("v_data"),
            std::string::npos);
  EXPECT_NE(says([](P& p) { p.layout = static_cast<Layout>(7); }).find("layout"),
            std::string::npos);
}

TEST(ProblemError, Decode) {
  for (const Refusal& refusal : {
           Refusal{"align=top_left", "attention.decode has align=bottom_right"},
           {"align=q_offset q_offset=0", "attention.decode has align=bottom_right"},
           {"cu_seqlens_q=0,1 cu_seqlens_k=0,1", "attention.decode takes no cu_seqlens_q"},
           {"left_pad_q=0", "attention.decode takes no left_pad_q or left_pad_k"},
           {"left_pad_k=0", "attention.decode takes no left_pad_q or left_pad_k"},
           {"dropout=0.5", "attention.decode takes no dropout"},
           {"layout=kv_packed", "attention.decode takes no layout=kv_packed"},
           {"layout=broadcast", "attention.decode takes no layout=broadcast"},
           {"layout=far", "attention.decode takes no layout=far"},
           {"lq=3 lk=2", "sequence 0 has more new rows than rows: lq or seqlens_q above lk"},
           {"b=2 lq=3 lk=4 seqlens_k=3,2", "sequence 1 has more new rows than rows"},
           {"b=2 lq=3 lk=4 seqlens_k=4,1 seqlens_q=3,2", "sequence 1 has more new rows than rows"},
           {"lk=4 cache_rows=3", "cache_rows=3 is below lk=4"},
           {"lk=4 cache_rows=3 cache=paged page_size=4", "cache_rows=3 is below lk=4"},
           {"lk=4 cache_rows=-1", "cache_rows and lk must lie in 0..2147483647"},
           {"cache_rows=2147483648", "cache_rows and lk must lie in 0..2147483647"},
           {"lk=2147483648", "cache_rows and lk must lie in 0..2147483647"},
           {"page_size=1", "page_size needs cache=paged"},
           {"cache=ring page_size=1", "page_size needs cache=paged"},
           {"pages=shuffled", "pages needs cache=paged"},
           {"cache=ring pages=shared", "pages needs cache=paged"},
           {"cache=paged", "page_size is 0; cache=paged needs 1..2147483647"},
           {"cache=paged page_size=-1", "page_size is -1; cache=paged needs 1..2147483647"},
           {"cache=paged page_size=2147483648", "page_size is 2147483648; cache=paged needs 1.."},
           {"cache_rotated=1", "cache_rotated needs rope"},
           {"splits=-1", "splits is -1; it must lie in 0..2147483647"},
           {"splits=2147483648", "splits is 2147483648; it must lie in 0..2147483647"},
       })
    expect_refused(refusal, "attention.decode ");
  for (const char* keys : {"cache=ring", "cache_rows=1", "page_size=1", "pages=shuffled",
                           "cache_rotated=1 rope=half d=2", "splits=1"}) {
    expect_refused({keys, "and splits need attention.decode"});
    expect_refused({keys, "and splits need attention.decode"}, "attention.backward ");
  }
  for (const char* keys : {"no_gradient=q", "d_lse=1", "d_o_data=zeros", "d_o_layout=bhld"})
    expect_refused({keys, "needs attention.backward"}, "attention.decode ");
}

/// Keys of a decode call that is legal.
void expect_taken(const char* keys) {
  const auto problem = parse_case(std::string("attention.decode ") + keys);
  EXPECT_TRUE(problem) << keys << ": " << problem.error();
}

TEST(ProblemError, DecodeAtItsLimits) {
  for (const char* keys :
       {"lk=0 lq=0", "b=0", "b=0 lk=0 lq=0 cache=paged page_size=1", "lk=3 lq=3",
        "lk=4 cache_rows=4", "b=2 lq=3 lk=4 seqlens_k=3,4",
        "b=2 lq=3 lk=4 seqlens_k=2,0 seqlens_q=2,0", "lk=4 cache_rows=2147483647",
        "lk=4 cache=paged page_size=2147483647", "lk=2147483647 cache=paged page_size=2147483647",
        "lk=9 splits=2147483647", "d=2 rope=half cache_rotated=1", "layout=strided", "layout=bhdl"})
    expect_taken(keys);
}

TEST(ProblemError, LiteralRowsOfSharedPagesRepeat) {
  // Four rows of two sequences, of which one comes with the call: one page of two rows is shared.
  const std::string keys = "b=2 lk=4 cache=paged page_size=2 pages=shared data=list q=1,1 ";
  expect_taken((keys + "k=1,2,3,4,1,2,7,8 v=1,-0,3,4,1,-0,7,8").c_str());
  for (const Refusal& refusal : {
           Refusal{"k=1,2,3,4,1,5,7,8 v=1,2,3,4,1,2,7,8",
                   "pages=shared shares k between sequences, but k[5] differs"},
           {"k=1,2,3,4,1,2,7,8 v=1,-0,3,4,1,0,7,8",
            "pages=shared shares v between sequences, but v[5] differs"},
       })
    expect_refused({(keys + refusal.keys).c_str(), refusal.says}, "attention.decode ");
  expect_taken(
      "b=2 lk=4 cache=paged page_size=2 pages=shuffled data=list q=1,1 k=1,2,3,4,1,5,7,8 "
      "v=1,2,3,4,5,6,7,8");
}

/// A ring may overwrite a row once no new row sees it: the first new row sees window_left rows
/// before it, and all of the call are written before any is read.
TEST(ProblemError, ARingKeepsWhatIsSeen) {
  for (const char* keys :
       {// Nothing is overwritten, whatever is seen.
        "lk=9 cache=ring", "lk=9 cache=ring cache_rows=9", "lk=9 cache=ring cache_rows=9 lq=4",
        "lk=9 cache=ring cache_rows=9 window=2,-1 global_tokens=3",
        // Exactly what is seen is held.
        "lk=9 cache=ring cache_rows=4 window=3,0", "lk=9 cache=ring cache_rows=6 lq=3 window=3,0",
        "lk=9 cache=ring cache_rows=1 window=0,0", "lk=9 cache=ring cache_rows=8 lq=8 window=0,0",
        // The second sequence fits, and needs nothing.
        "b=2 lk=9 seqlens_k=9,3 lq=3 seqlens_q=1,3 cache=ring cache_rows=4 window=3,0",
        "lk=2147483647 cache=ring cache_rows=1 window=0,0"})
    expect_taken(keys);
  constexpr const char* kWindow =
      "cache=ring with more keys than cache_rows needs a left window and no global_tokens";
  for (const Refusal& refusal : {
           Refusal{"lk=9 cache=ring cache_rows=8", kWindow},
           {"lk=9 cache=ring cache_rows=8 window=-1,0", kWindow},
           {"lk=9 cache=ring cache_rows=8 window=2,-1 global_tokens=1", kWindow},
           {"b=2 lk=9 seqlens_k=4,9 cache=ring cache_rows=8", kWindow},
           {"lk=9 cache=ring cache_rows=3 window=3,0",
            "cache_rows=3 is below window + new rows = 3 + 1: keys that are seen would be"},
           {"lk=9 cache=ring cache_rows=5 lq=3 window=3,0", "is below window + new rows = 3 + 3"},
           {"lk=9 cache=ring cache_rows=2 lq=3 window=0,0", "is below window + new rows = 0 + 3"},
           {"b=2 lk=9 seqlens_k=9,5 lq=3 seqlens_q=1,3 cache=ring cache_rows=4 window=3,0",
            "is below window + new rows = 3 + 3"},
           {"lk=9 cache=ring cache_rows=8 window=4611686018427387904,0",
            "is below window + new rows = 4611686018427387904 + 1"},
       })
    expect_refused(refusal, "attention.decode ");
}

/// Neither time nor memory goes with the batch, which nothing but a list of lengths bounds.
TEST(ProblemError, AHugeBatchOfADecodeCallTakesNoTime) {
  constexpr const char* kBatch = "b=1125899906842624 ";  // 2^50
  for (const char* keys :
       {"d=1 lk=4", "lk=4 cache=ring cache_rows=2 window=1,0", "lk=4 cache=ring"})
    expect_taken((std::string(kBatch) + keys).c_str());
  expect_refused({"b=1125899906842624 lk=4 cache=paged page_size=4 pages=shared",
                  "more pages than block_table can number"},
                 "attention.decode ");
  expect_refused({"b=1125899906842624 lq=4 lk=3", "sequence 0 has more new rows"},
                 "attention.decode ");
  expect_refused({"b=1125899906842624 lk=4 seqlens_k=4", "seqlens_k has 1 entries"},
                 "attention.decode ");
  // One page less than the limit, and the limit: (b + 1) * pages.
  expect_taken("b=1023 lk=1048575 cache=paged page_size=1");
  expect_refused(
      {"b=1023 lk=1048576 cache=paged page_size=1", "more pages than block_table can number"},
      "attention.decode ");
}

/// Every number of a decode call takes hostile values in pairs; sanitizers watch for overflow.
TEST(ProblemError, TotalOnHostileNumbersOfDecode) {
  using P = AttentionProblem;
  using Field = std::int64_t P::*;
  const Field fields[] = {&P::batch,       &P::num_heads, &P::num_kv_heads, &P::q_len,
                          &P::kv_len,      &P::head_dim,  &P::v_head_dim,   &P::cache_rows,
                          &P::window_left, &P::page_size, &P::num_splits,   &P::global_tokens};
  const std::int64_t values[] = {kLeast, -1, 0, 1, 3, std::int64_t{1} << 31, kMost - 1, kMost};
  int refused = 0, taken = 0;
  for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged})
    for (Field first : fields)
      for (Field second : fields)
        for (std::int64_t a : values)
          for (std::int64_t b : values) {
            P problem;
            problem.operation = Operation::decode;
            problem.head_dim = problem.v_head_dim = 4;
            problem.kv_len = 3;
            problem.cache = kind;
            problem.pages = kind == CacheKind::paged ? PageOrder::shared : PageOrder::in_order;
            problem.page_size = kind == CacheKind::paged ? 2 : 0;
            problem.window_left = 1;
            problem.*first = a;
            problem.*second = b;
            (problem_error(problem) ? refused : taken) += 1;
            EXPECT_GE(tensor_bytes(problem), 0);
          }
  EXPECT_GT(refused, 5000);
  EXPECT_GT(taken, 1000);
  for (const std::int64_t value : {kLeast, std::int64_t{-1}, kMost}) {
    P problem;
    problem.operation = Operation::decode;
    problem.batch = 2;
    problem.kv_len = 3;
    problem.seqlens_k = {3, value};
    EXPECT_TRUE(problem_error(problem));
    problem.seqlens_k = {};
    problem.seqlens_q = {value, 1};
    EXPECT_TRUE(problem_error(problem));
  }
  P problem;
  problem.operation = Operation::decode;
  problem.cache = static_cast<CacheKind>(7);
  EXPECT_EQ(problem_error(problem), "cache is a number that stands for nothing");
  problem.cache = CacheKind::paged;
  problem.page_size = 1;
  problem.pages = static_cast<PageOrder>(3);
  EXPECT_EQ(problem_error(problem), "pages is a number that stands for nothing");
}

TEST(ProblemError, BlockSizesStayPlainWithoutBlocks) {
  AttentionProblem problem;
  problem.block_q = 8;
  EXPECT_NE(problem_error(problem).value_or("").find("blocks is not"), std::string::npos);
}

/// Every integer field takes hostile values in turn and in pairs; sanitizers watch for overflow.
TEST(ProblemError, TotalOnHostileNumbers) {
  using Field = std::int64_t AttentionProblem::*;
  using P = AttentionProblem;
  const Field fields[] = {
      &P::batch,      &P::num_heads,       &P::num_kv_heads, &P::q_len,        &P::kv_len,
      &P::head_dim,   &P::v_head_dim,      &P::window_left,  &P::window_right, &P::global_tokens,
      &P::t5_buckets, &P::t5_max_distance, &P::block_q,      &P::block_k,      &P::rope_dim};
  const std::int64_t values[] = {kLeast, -1, 0, 1, 3, std::int64_t{1} << 31, kMost};
  P everything;
  everything.head_dim = 4;
  everything.blocks = true;
  everything.rope = RopePairing::half;
  everything.bias = BiasKind::t5;
  everything.alibi = AlibiKind::absolute;
  everything.dropout_p = 0.5;
  int refused = 0;
  for (Field first : fields)
    for (Field second : fields)
      for (std::int64_t a : values)
        for (std::int64_t b : values) {
          P problem = everything;
          problem.*first = a;
          problem.*second = b;
          refused += problem_error(problem).has_value();
        }
  EXPECT_GT(refused, 5000);
  EXPECT_EQ(problem_error(everything), std::nullopt);
}

TEST(ProblemError, TotalOnHostileVectorsAndDoubles) {
  using Field = std::vector<std::int64_t> AttentionProblem::*;
  using P = AttentionProblem;
  for (Field field : {&P::q_offset, &P::prefix_len, &P::seqlens_q, &P::seqlens_k, &P::left_pad_q,
                      &P::left_pad_k, &P::cu_seqlens_q, &P::cu_seqlens_k})
    for (std::int64_t value : {kLeast, std::int64_t{-1}, kMost}) {
      P problem;
      problem.batch = 2;
      problem.align = Align::q_offset;
      problem.q_offset = {0, 0};
      problem.base = Base::prefix;
      problem.prefix_len = {0, 0};
      problem.rope = RopePairing::half;
      problem.head_dim = 2;
      problem.*field = {value, kMost};
      EXPECT_TRUE(problem_error(problem)) << value;
    }
  using Number = double AttentionProblem::*;
  for (Number field : {&P::softcap, &P::dropout_p, &P::rope_base, &P::rope_scale, &P::rope_ntk})
    for (double value : {kNan, kInfinity, -kInfinity, -1.0}) {
      P problem;
      problem.rope = RopePairing::half;
      problem.head_dim = 4;
      problem.*field = value;
      EXPECT_TRUE(problem_error(problem)) << value;
    }
}

}  // namespace
}  // namespace attest
