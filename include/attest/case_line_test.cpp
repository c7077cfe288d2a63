// SPDX-License-Identifier: Apache-2.0
#include "attest/case_line.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "attest/text.hpp"

namespace attest {
namespace {

const std::string kForward = "attention.forward", kDecode = "attention.decode";

/// A small generator of its own (splitmix64), so that the test does not lean on the harness.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  std::int64_t in(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool one_in(std::int64_t n) { return in(1, n) == 1; }
  template <class E>
  E pick(E last) {
    return static_cast<E>(in(0, static_cast<std::int64_t>(last)));
  }
  Axes axes() { return {one_in(2), one_in(2), one_in(2), one_in(2)}; }
  /// Any finite double bit pattern.
  double number() {
    while (true)
      if (const double value = std::bit_cast<double>(bits()); std::isfinite(value)) return value;
  }
  std::vector<std::int64_t> list(std::int64_t size, std::int64_t least, std::int64_t most) {
    std::vector<std::int64_t> values;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(in(least, most));
    return values;
  }
  /// Values that `type` holds, now and then -0, Inf or NaN where allowed.
  std::vector<double> values(std::int64_t size, DType type, bool special) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < size; ++i) {
      double value = round_to(type, static_cast<double>(in(-40, 40)) * 0.37);
      if (special && one_in(16))
        value = one_in(2) ? -std::numeric_limits<double>::infinity() : -0.0;
      values.push_back(value);
    }
    return values;
  }
  std::vector<double> flags(std::int64_t size) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < size; ++i) values.push_back(one_in(2) ? 1 : 0);
    return values;
  }

 private:
  std::uint64_t state_;
};

std::int64_t stored(const Axes& axes, const AttentionProblem& p) {
  return (axes.b ? p.batch : 1) * (axes.h ? p.num_heads : 1) * (axes.q ? p.q_len : 1) *
         (axes.k ? p.kv_len : 1);
}

/// Of a decode call: new rows that are rows of their sequences, and a cache that they fit into.
void draw_decode(Dice& dice, AttentionProblem& p) {
  p.operation = Operation::decode;
  p.align = Align::bottom_right;
  p.q_offset.clear();
  p.cu_seqlens_q.clear();
  p.cu_seqlens_k.clear();
  p.left_pad_q.clear();
  p.left_pad_k.clear();
  p.dropout_p = 0;
  p.kv_len = dice.in(0, 5);
  p.q_len = dice.in(0, p.kv_len);
  p.seqlens_q = p.seqlens_k = {};
  if (dice.one_in(2)) p.seqlens_k = dice.list(p.batch, p.q_len, p.kv_len);
  if (dice.one_in(2)) p.seqlens_q = dice.list(p.batch, 0, p.q_len);
  p.cache = dice.pick(CacheKind::paged);
  if (dice.one_in(2)) p.cache_rows = p.kv_len + dice.in(1, 9);
  if (p.cache == CacheKind::paged) {
    p.page_size = dice.in(1, 9);
    p.pages = dice.pick(PageOrder::shared);
  }
  if (p.cache == CacheKind::ring && p.window_left >= 0 && p.global_tokens == 0 && dice.one_in(2))
    p.cache_rows = std::max<std::int64_t>(p.window_left + p.q_len, 1);
  if (p.rope != RopePairing::none) p.cache_rotated = dice.one_in(2);
  if (dice.one_in(3)) p.num_splits = dice.in(1, 9);
}

/// The rotary embedding of rows of the same sizes.
AttentionProblem rope_problem(Dice& dice, AttentionProblem p) {
  p.head_dim = std::max<std::int64_t>(p.head_dim, 2);
  p.rope = dice.one_in(2) ? RopePairing::half : RopePairing::interleaved;
  if (p.rope_dim > p.head_dim) p.rope_dim = 0;
  if (effective_rope_dim(p) <= 2) p.rope_ntk = 1;
  p.q_offset.clear();
  if (p.layout == Layout::kv_packed || p.layout == Layout::broadcast) p.layout = Layout::blhd;
  p = rope_alone(p);
  p.literal.q.clear();
  if (p.data == Family::list)
    p.literal.q = dice.values(p.batch * p.num_heads * p.q_len * p.head_dim, p.dtype, true);
  p.rope_inverse = dice.one_in(2);
  if (dice.one_in(3))
    p.positions = dice.list(p.batch * p.q_len, -100, 100000);
  else if (dice.one_in(2))
    p.q_offset = dice.list(p.batch, -100, 100000);
  return p;
}

AttentionProblem random_attention(Dice& dice);

/// Legal by construction, with every field off its default now and then.
AttentionProblem random_problem(std::uint64_t seed) {
  Dice dice(seed);
  const AttentionProblem p = random_attention(dice);
  return dice.one_in(6) ? rope_problem(dice, p) : p;
}

AttentionProblem random_attention(Dice& dice) {
  AttentionProblem p;
  const DType statistic_of[] = {DType::f64, DType::f32, DType::f32, DType::f32};
  p.dtype = dice.pick(DType::bf16);
  const DType statistic = statistic_of[static_cast<std::size_t>(p.dtype)];
  p.batch = dice.in(0, 3);
  p.num_kv_heads = dice.in(1, 3);
  p.num_heads = p.num_kv_heads * dice.in(1, 3);
  p.q_len = dice.in(0, 5);
  p.kv_len = dice.in(0, 5);
  p.head_dim = dice.in(1, 6);
  p.v_head_dim = dice.one_in(2) ? p.head_dim : dice.in(0, 6);
  if (dice.one_in(4)) p.scale = dice.number();
  if (dice.one_in(4)) p.softcap = std::fabs(dice.number());
  if (dice.one_in(4)) p.dropout_p = static_cast<double>(dice.in(0, 999)) / 1000;
  const bool packed = dice.one_in(5);
  if (packed) {
    p.batch = 1;
    p.cu_seqlens_q = p.cu_seqlens_k = {0};
    for (std::int64_t s = dice.in(1, 3); s > 0; --s) {
      p.cu_seqlens_q.push_back(dice.in(p.cu_seqlens_q.back(), p.q_len));
      p.cu_seqlens_k.push_back(dice.in(p.cu_seqlens_k.back(), p.kv_len));
    }
  } else {
    if (dice.one_in(4)) p.left_pad_q = dice.list(p.batch, 0, p.q_len / 2);
    if (dice.one_in(4)) p.seqlens_q = dice.list(p.batch, p.q_len / 2, p.q_len);
    if (dice.one_in(4)) p.left_pad_k = dice.list(p.batch, 0, p.kv_len / 2);
    if (dice.one_in(4)) p.seqlens_k = dice.list(p.batch, p.kv_len / 2, p.kv_len);
  }
  p.base = dice.pick(Base::prefix);
  if (p.base == Base::prefix) p.prefix_len = dice.list(num_sequences(p), 0, 7);
  p.align = dice.pick(Align::q_offset);
  if (p.align == Align::q_offset) p.q_offset = dice.list(num_sequences(p), -9, 9);
  if (dice.one_in(3)) p.window_left = dice.in(-1, 9);
  if (dice.one_in(3)) p.window_right = dice.in(-1, 9);
  if (p.window_left >= 0 && dice.one_in(2)) p.global_tokens = dice.in(0, 3);
  if (p.head_dim >= 2 && dice.one_in(3)) p.rope = dice.pick(RopePairing::half);
  if (dice.one_in(3)) {
    draw_decode(dice, p);
    p.prefix_len = dice.list(p.base == Base::prefix ? p.batch : 0, 0, 7);
  }
  if (dice.one_in(2)) p.mask = dice.pick(MaskKind::list);
  if (p.mask != MaskKind::none) p.mask_axes = dice.axes();
  if (p.mask == MaskKind::list) p.literal.mask = dice.flags(stored(p.mask_axes, p));
  if (dice.one_in(2)) p.bias = dice.pick(BiasKind::list);
  if (p.bias != BiasKind::none && p.bias != BiasKind::t5) p.bias_axes = dice.axes();
  if (p.bias == BiasKind::list) p.literal.bias = dice.values(stored(p.bias_axes, p), p.dtype, true);
  if (p.bias == BiasKind::t5) {
    p.bias_axes.h = dice.one_in(2);
    p.t5_bidirectional = dice.one_in(2);
    p.t5_buckets = dice.in(4, 64);
    p.t5_max_distance = dice.in(33, 300);
  }
  if (dice.one_in(4)) {
    p.blocks = true;
    p.block_q = dice.in(1, 4);
    p.block_k = dice.in(1, 4);
    p.block_axes = {dice.one_in(2), dice.one_in(2), true, true};
    const auto count = [](std::int64_t rows, std::int64_t block) {
      return (rows + block - 1) / block;
    };
    if (dice.one_in(2))
      p.literal.blocks =
          dice.flags((p.block_axes.b ? p.batch : 1) * (p.block_axes.h ? p.num_heads : 1) *
                     count(p.q_len, p.block_q) * count(p.kv_len, p.block_k));
  }
  if (dice.one_in(3)) p.alibi = dice.pick(AlibiKind::key_anchored);
  if (p.alibi != AlibiKind::none) {
    p.slopes = dice.pick(SlopesKind::list);
    p.alibi_inside_softcap = p.softcap > 0 && dice.one_in(2);
    if (p.slopes == SlopesKind::list)
      p.literal.slopes =
          dice.values((dice.one_in(2) ? 1 : p.batch) * p.num_heads, statistic, false);
  }
  if (dice.one_in(3)) p.sink = dice.pick(SinkKind::list);
  if (p.sink == SinkKind::list) p.literal.sink = dice.values(p.num_heads, statistic, true);
  if (p.rope != RopePairing::none) {
    if (dice.one_in(2)) p.rope_dim = 2 * dice.in(1, p.head_dim / 2);
    if (dice.one_in(2)) p.rope_base = static_cast<double>(dice.in(1, 1000000)) / 7;
    if (dice.one_in(2)) p.rope_scale = static_cast<double>(dice.in(1, 90)) / 7;
    if (effective_rope_dim(p) > 2 && dice.one_in(2))
      p.rope_ntk = static_cast<double>(dice.in(1, 90)) / 7;
  }
  p.empty_output = dice.pick(EmptyOutput::unspecified);
  p.empty_lse = dice.pick(EmptyLse::unspecified);
  p.want_lse = dice.one_in(2);
  p.layout = dice.pick(p.operation == Operation::decode ? Layout::strided : Layout::kv_packed);
  p.data = dice.pick(Family::list);
  if (dice.one_in(4)) p.v_data = dice.pick(Family::list);
  if (p.v_data.value_or(p.data) == Family::identity_v && p.v_head_dim < p.kv_len)
    p.v_data = Family::zeros;
  // Rows of shared pages repeat: problem_error_test.cpp.
  const bool any_list = p.data == Family::list || p.v_data == Family::list;
  if (any_list && p.pages == PageOrder::shared) p.pages = PageOrder::shuffled;
  if (dice.one_in(2)) p.seed = dice.bits();
  if (p.data == Family::list) {
    p.literal.q = dice.values(p.batch * p.num_heads * p.q_len * p.head_dim, p.dtype, true);
    p.literal.k = dice.values(p.batch * p.num_kv_heads * p.kv_len * p.head_dim, p.dtype, true);
  }
  if (p.v_data.value_or(p.data) == Family::list)
    p.literal.v = dice.values(p.batch * p.num_kv_heads * p.kv_len * p.v_head_dim, p.dtype, true);
  if (p.dropout_p > 0 && dice.one_in(2))
    p.literal.keep = dice.flags(p.batch * p.num_heads * p.q_len * p.kv_len);
  if (p.operation == Operation::decode || !dice.one_in(3)) return p;
  p.operation = Operation::backward;
  for (bool& left_out : p.no_gradient) left_out = dice.one_in(4);
  p.d_lse = p.want_lse && dice.one_in(2);
  p.d_o_data = dice.pick(Family::list);
  if (dice.one_in(3)) p.d_o_layout = dice.pick(Layout::strided);
  if (p.d_o_data == Family::list)
    p.literal.d_o = dice.values(p.batch * p.num_heads * p.q_len * p.v_head_dim, p.dtype, true);
  if (p.d_lse && dice.one_in(2))
    p.literal.d_lse = dice.values(p.batch * p.num_heads * p.q_len, statistic, true);
  return p;
}

constexpr std::uint64_t kRandomProblems = 20000;

/// The keys that stand first in the rows of the tables of docs/case-line.md: "| `lq` | ...".
std::set<std::string> documented_keys() {
  std::ifstream page(ATTEST_SOURCE_DIR "/docs/case-line.md");
  std::set<std::string> keys;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const auto pieces = split(std::string_view(line).substr(0, line.find('|', 1)), '`');
    for (std::size_t i = 1; i < pieces.size(); i += 2) keys.emplace(pieces[i]);
  }
  return keys;
}

TEST(CaseLine, EveryProblemReadsBackAsItself) {
  std::map<std::string, AttentionProblem> printed;
  std::set<std::string> keys;
  for (std::uint64_t seed = 0; seed < kRandomProblems; ++seed) {
    const AttentionProblem problem = random_problem(seed);
    const std::string line = print_case(problem);
    const auto read = parse_case(line);
    ASSERT_TRUE(read) << line << "\n" << read.error();
    ASSERT_TRUE(*read == problem) << line << "\n" << print_case(*read);
    ASSERT_EQ(print_case(*read), line);
    // Different problems, different lines.
    const auto [entry, fresh] = printed.emplace(line, problem);
    ASSERT_TRUE(fresh || entry->second == problem) << line;
    for (const Word& word : split_words(line))
      keys.emplace(word.text.substr(0, word.text.find('=')));
  }
  // The generator leaves no field at its default for ever.
  EXPECT_EQ(keys.erase(kForward) + keys.erase("attention.backward") + keys.erase(kDecode) +
                keys.erase("attention.rope"),
            4u);
  EXPECT_EQ(keys, documented_keys());
}

TEST(CaseLine, DefaultsAreNotPrinted) {
  EXPECT_EQ(print_case({}), kForward);
  const auto plain = parse_case(kForward);
  ASSERT_TRUE(plain);
  EXPECT_TRUE(*plain == AttentionProblem{});
}

TEST(CaseLine, ReadsEveryFieldOfTheExample) {
  const std::string line =
      "attention.forward dtype=bf16 hq=8 hkv=2 lq=33 lk=65 d=64 base=causal align=top_left "
      "window=16,0 data=needle seed=17";
  AttentionProblem expected;
  expected.dtype = DType::bf16;
  expected.num_heads = 8;
  expected.num_kv_heads = 2;
  expected.q_len = 33;
  expected.kv_len = 65;
  expected.head_dim = expected.v_head_dim = 64;
  expected.base = Base::causal;
  expected.align = Align::top_left;
  expected.window_left = 16;
  expected.window_right = 0;
  expected.data = Family::needle;
  expected.seed = 17;
  const auto read = parse_case(line);
  ASSERT_TRUE(read) << read.error();
  EXPECT_TRUE(*read == expected);
  EXPECT_EQ(print_case(expected), line);
}

TEST(CaseLine, ReadsEveryFieldOfADecodeCall) {
  const std::string line =
      "attention.decode b=2 lq=2 lk=9 d=4 base=causal seqlens_k=9,5 rope=half cache=paged "
      "cache_rows=12 page_size=4 pages=shared cache_rotated=1 splits=3";
  AttentionProblem expected;
  expected.operation = Operation::decode;
  expected.batch = 2;
  expected.q_len = 2;
  expected.kv_len = 9;
  expected.head_dim = expected.v_head_dim = 4;
  expected.base = Base::causal;
  expected.seqlens_k = {9, 5};
  expected.rope = RopePairing::half;
  expected.cache = CacheKind::paged;
  expected.cache_rows = 12;
  expected.page_size = 4;
  expected.pages = PageOrder::shared;
  expected.cache_rotated = true;
  expected.num_splits = 3;
  const auto read = parse_case(line);
  ASSERT_TRUE(read) << read.error();
  EXPECT_TRUE(*read == expected);
  EXPECT_EQ(print_case(expected), line);
}

TEST(CaseLine, HeadsAndChannelsDefaultToEachOther) {
  const auto read = parse_case("attention.forward hq=6 d=32");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->num_kv_heads, 6);
  EXPECT_EQ(read->v_head_dim, 32);
  const auto apart = parse_case("attention.forward dv=8 hkv=3 d=32 hq=6");
  ASSERT_TRUE(apart);
  EXPECT_EQ(apart->num_kv_heads, 3);
  EXPECT_EQ(apart->v_head_dim, 8);
}

TEST(CaseLine, OrderOfKeysAndBlanksAreFree) {
  const auto read = parse_case("\t attention.forward   lk=3\tlq=2  \r\n");
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(print_case(*read), "attention.forward lq=2 lk=3");
}

TEST(CaseLine, LiteralsKeepTheirBits) {
  const auto read = parse_case(
      "attention.forward lk=3 dtype=f64 data=list q=0x1.8p-3 k=-0,nan,-inf v=0.1,1e-323,.5");
  ASSERT_TRUE(read) << read.error();
  EXPECT_EQ(read->literal.q, std::vector<double>{0.1875});
  EXPECT_TRUE(std::signbit(read->literal.k[0]));
  EXPECT_TRUE(std::isnan(read->literal.k[1]));
  EXPECT_EQ(read->literal.k[2], -std::numeric_limits<double>::infinity());
  EXPECT_EQ(read->literal.v[0], 0.1);
  EXPECT_EQ(read->literal.v[1], 2 * std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(print_case(*read),
            "attention.forward dtype=f64 lk=3 data=list q=0.1875 k=-0,nan,-inf v=0.1,1e-323,0.5");
}

TEST(CaseLine, ErrorsNameKeyAndColumn) {
  const struct {
    std::string line, error;
  } kTable[] = {
      {"", "case line: empty; it starts with attention.forward"},
      {"  \t", "case line: empty; it starts with attention.forward"},
      {"lq=3",
       "case line, column 1: 'lq=3' is no operation; a case line starts with attention.forward, "
       "attention.backward, attention.decode or attention.rope"},
      {" attention.encode",
       "case line, column 2: 'attention.encode' is no operation; a case line starts with "
       "attention.forward, attention.backward, attention.decode or attention.rope"},
      {kDecode + " cache=linear",
       "case line, column 18: cache: 'linear' is none of contiguous, ring, paged"},
      {kDecode + " pages=sorted",
       "case line, column 18: pages: 'sorted' is none of in_order, shuffled, shared"},
      {kDecode + " cache_rows=2^3",
       "case line, column 18: cache_rows: '2^3' is not a 64-bit integer"},
      {kDecode + " cache=paged page_size=1.5",
       "case line, column 30: page_size: '1.5' is not a 64-bit integer"},
      {kDecode + " splits=", "case line, column 18: splits has no value"},
      {kDecode + " splits=9223372036854775808",
       "case line, column 18: splits: '9223372036854775808' is not a 64-bit integer"},
      {kDecode + " d=2 rope=half cache_rotated=2",
       "case line, column 32: cache_rotated: '2' is not 0 or 1"},
      {kDecode + " cache=ring cache=ring", "case line, column 29: cache is given twice"},
      {kDecode + " cache=paged", "case line: page_size is 0; cache=paged needs 1..2147483647"},
      {kDecode + " d_lse=1", "case line: d_lse needs attention.backward"},
      {kForward + " splits=1",
       "case line: cache, cache_rows, page_size, pages, cache_rotated and splits need "
       "attention.decode"},
      {kForward + " no_gradient=q", "case line: no_gradient needs attention.backward"},
      {kForward + " d_lse=1", "case line: d_lse needs attention.backward"},
      {kForward + " d_o_data=zeros", "case line: d_o_data needs attention.backward"},
      {"attention.backward lse=0 d_lse=1", "case line: d_lse needs lse"},
      {"attention.backward no_gradient=o",
       "case line, column 20: no_gradient: 'o' is none of q, k, v, bias, slopes, sink"},
      {"attention.backward d_o_data=list d_o_values=1,2",
       "case line: d_o_values has 2 values; the shape needs 1"},
      {kForward + " lq=3 foo=1", "case line, column 24: 'foo' is no key of a case line"},
      {kForward + " lq=3 lq=3", "case line, column 24: lq is given twice"},
      {kForward + " lq", "case line, column 19: lq has no '='"},
      {kForward + " lq=", "case line, column 19: lq has no value"},
      {kForward + " =3", "case line, column 19: '' is no key of a case line"},
      {kForward + " lq=3x", "case line, column 19: lq: '3x' is not a 64-bit integer"},
      {kForward + " lq=+3", "case line, column 19: lq: '+3' is not a 64-bit integer"},
      {kForward + " lq=9223372036854775808",
       "case line, column 19: lq: '9223372036854775808' is not a 64-bit integer"},
      {kForward + " lq=1.5", "case line, column 19: lq: '1.5' is not a 64-bit integer"},
      {kForward + " dtype=fp8",
       "case line, column 19: dtype: 'fp8' is none of f64, f32, f16, bf16"},
      {kForward + " scale=1e999", "case line, column 19: scale: '1e999' is not a number"},
      {kForward + " scale=1e-999", "case line, column 19: scale: '1e-999' is not a number"},
      {kForward + " scale=0x", "case line, column 19: scale: '0x' is not a number"},
      {kForward + " scale=--1", "case line, column 19: scale: '--1' is not a number"},
      {kForward + " scale=nan(1)", "case line, column 19: scale: 'nan(1)' is not a number"},
      {kForward + " scale=infinity", "case line, column 19: scale: 'infinity' is not a number"},
      {kForward + " scale=-nan", "case line, column 19: scale: '-nan' is not a number"},
      {kForward + " window=3",
       "case line, column 19: window: '3' is not two integers with a comma"},
      {kForward + " window=3,0,0",
       "case line, column 19: window: '3,0,0' is not two integers with a comma"},
      {kForward + " blocks=3,",
       "case line, column 19: blocks: '3,' is not two integers with a comma"},
      {kForward + " mask=random mask_axes=hb",
       "case line, column 31: mask_axes: 'hb' is not a subset of bhqk in that order, or -"},
      {kForward + " seqlens_k=1,,2", "case line, column 19: seqlens_k: '' is not a 64-bit integer"},
      {kForward + " lse=yes", "case line, column 19: lse: 'yes' is not 0 or 1"},
      {kForward + " seed=-1",
       "case line, column 19: seed: '-1' is not an integer from 0 to 2^64-1"},
      {kForward + " seed=18446744073709551616",
       "case line, column 19: seed: '18446744073709551616' is not an integer from 0 to 2^64-1"},
      {kForward + " bias=t5 t5=32,128,both",
       "case line, column 27: t5: '32,128,both' is not buckets,max_distance,bidirectional or "
       "...,causal"},
      {kForward + " data=list q=1,x", "case line, column 29: q: 'x' is not a number"},
      {kForward + " lq=3\nlk=4", "case line, column 23: a byte that is not printable ASCII"},
      {std::string("attention.forward lq=3\0", 23),
       "case line, column 23: a byte that is not printable ASCII"},
      {kForward + " lq=3\xc2\xa0", "case line, column 23: a byte that is not printable ASCII"},
      {kForward + " hq=8 hkv=3", "case line: hkv=3 does not divide hq=8"},
  };
  for (const auto& [line, error] : kTable) {
    const auto read = parse_case(line);
    ASSERT_FALSE(read) << line;
    EXPECT_EQ(read.error(), error) << line;
  }
}

TEST(CaseLine, LongTextsAreCutInMessagesAndRefusedWhole) {
  const std::string junk(500, 'j');
  const auto read = parse_case(kForward + " lq=" + junk);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error(),
            "case line, column 19: lq: '" + junk.substr(0, 40) + "...' is not a 64-bit integer");

  std::string line = kForward + " lk=400000 data=list q=1 v=1 k=1";
  line.resize(kMostTextBytes + 1, ' ');
  const auto too_long = parse_case(line);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error(), "case line: 1048577 bytes long; at most 1048576 are read");
  line.resize(kMostTextBytes);
  EXPECT_EQ(parse_case(line).error(), "case line: k has 1 values; the shape needs 400000");
}

TEST(PrintNumber, IsTheShortestTextThatReadsBack) {
  EXPECT_EQ(print_number(0.1), "0.1");
  EXPECT_EQ(print_number(-0.0), "-0");
  EXPECT_EQ(print_number(3), "3");
  EXPECT_EQ(print_number(1e22), "1e+22");
  EXPECT_EQ(print_number(5e-324), "5e-324");
  EXPECT_EQ(print_number(0x1.6a09e667f3bcdp-1), "0.7071067811865476");
  EXPECT_EQ(print_number(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(print_number(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(print_number(-std::numeric_limits<double>::quiet_NaN()), "nan");
  Dice dice(7);
  for (int i = 0; i < 20000; ++i) {
    const double value = dice.number();
    const auto read = read_number(print_number(value));
    ASSERT_TRUE(read);
    ASSERT_EQ(std::bit_cast<std::uint64_t>(*read), std::bit_cast<std::uint64_t>(value));
  }
}

}  // namespace
}  // namespace attest
