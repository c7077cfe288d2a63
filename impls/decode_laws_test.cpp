// SPDX-License-Identifier: Apache-2.0
// Laws of decoding that every implementation keeps on every kind of cache: how the rows of a
// sequence are cut into calls, where pages lie and into how many parts keys are split changes
// nothing.
#include "impls/random_decode.hpp"

namespace attest::testing {
namespace {

/// What differs between the streams below.
struct StreamOptions {
  std::int64_t rows = 12;
  std::int64_t capacity = 0;  ///< 0: rows
  bool rotated = false, equal_rows = false;
  bool pairs = true;  ///< bias and mask
  DType dtype = DType::f64;
  std::uint64_t pages_seed = 1;
};

/// Two sequences of equal length whose rows are decoded in any pieces, and a cache for them. Causal
/// with a window of 3 keys, ALiBi inside a softcap, bias, mask, sink and RoPE on 4 of 6 channels.
struct Stream {
  static constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kDim = 6, kVDim = 3;
  static constexpr std::int64_t kWindow = 3;

  std::int64_t rows;
  DType dtype;
  std::map<std::string, std::unique_ptr<Tensor>> tensors;
  Numbers pages;
  Cache cache;
  attest_attention p = plain_call();

  explicit Stream(const Decoding& decoding, const StreamOptions& options = {})
      : rows(options.rows),
        dtype(options.dtype),
        pages(options.pages_seed),
        cache(decoding.kind, dtype, {kBatch, kKvHeads},
              options.capacity > 0 ? options.capacity : rows, kDim, kVDim, pages) {
    const bool equal = options.equal_rows;
    const auto values = [&](const char* name, Shape shape, double range) {
      return add(name, dl_dtype(dtype), std::move(shape), [=](const Shape& at) {
        Shape key = at;
        if (equal && key.size() == 4) key[0] = key[1] = 0;
        std::uint64_t seed = static_cast<std::uint64_t>(name[0]);
        for (const std::int64_t i : key) seed = seed * 131 + static_cast<std::uint64_t>(i);
        return static_cast<float>(Numbers(seed).real(-range, range));
      });
    };
    const DLDataType wide = dl_dtype(dtype == DType::f64 ? DType::f64 : DType::f32);
    p.q = values("q", {kBatch, kHeads, rows, kDim}, 2);
    p.k = values("k", {kBatch, kKvHeads, rows, kDim}, 2);
    p.v = values("v", {kBatch, kKvHeads, rows, kVDim}, 2);
    if (options.pairs) {
      p.bias = values("bias", {1, kHeads, rows, rows}, 1);
      p.mask = add("mask", kDlUint8, {1, 1, rows, rows},
                   [](const Shape& at) { return (at[2] * 7 + at[3] * 5) % 11 != 0; });
    }
    p.alibi_slopes = add("alibi", wide, {kHeads}, [=](const Shape& h) {
      return equal ? 0.25 : 0.5 / (1.0 + static_cast<double>(h[0]));
    });
    p.sink = add("sink", wide, {kHeads},
                 [=](const Shape& h) { return equal ? 0.5 : static_cast<double>(h[0]) - 2; });
    p.base = ATTEST_BASE_CAUSAL;
    p.window_left = kWindow;
    p.alibi = ATTEST_ALIBI_ABSOLUTE;
    p.alibi_inside_softcap = 1;
    p.softcap = 5;
    p.rope = ATTEST_ROPE_HALF;
    p.rope_dim = 4;
    p.rope_base = 10000;
    p.rope_scale = p.rope_ntk = 1;
    const auto angle = [this](const Shape& at) { return rope_angle(p, at[0], at[1]); };
    p.rope_cos = add("cos", wide, {rows, 2}, [=](auto& at) { return std::cos(angle(at)); });
    p.rope_sin = add("sin", wide, {rows, 2}, [=](auto& at) { return std::sin(angle(at)); });
    p.cache_rotated = options.rotated;
    p.o = add("o", dl_dtype(dtype), {kBatch, kHeads, rows, kVDim}, [](auto&) { return 77; });
    p.lse = add("lse", wide, {kBatch, kHeads, rows}, [](auto&) { return 77; });
  }

  template <class Value>
  DLTensor* add(const char* name, DLDataType type, Shape shape, Value&& value) {
    auto& tensor = tensors[name] = std::make_unique<Tensor>(type, std::move(shape));
    tensor->fill(value);
    return tensor->dl();
  }
  Tensor& operator[](const char* name) { return *tensors.at(name); }

  /// One call for rows [begin, end) of both sequences.
  attest_status decode(Loaded& kernel, std::int64_t begin, std::int64_t end) {
    std::vector<std::unique_ptr<Slice>> slices;
    const auto cut = [&](const DLTensor* whole) {
      if (!whole || whole->shape[2] == 1) return const_cast<DLTensor*>(whole);
      slices.push_back(std::make_unique<Slice>(*whole, 2, begin, end));
      return slices.back()->dl();
    };
    attest_attention call = p;
    call.q = cut(p.q), call.k = cut(p.k), call.v = cut(p.v), call.o = cut(p.o);
    call.lse = cut(p.lse), call.bias = cut(p.bias), call.mask = cut(p.mask);
    Tensor lengths(kDlInt32, {kBatch});
    lengths.fill([=](const Shape&) { return static_cast<double>(begin); });
    call.cache_len = lengths.dl();
    for (std::int64_t b = 0; b < kBatch; ++b) cache.reserve(b, end);
    cache.give_to(call);
    return kernel.decode(call);
  }
  void decode_one_by_one(Loaded& kernel, std::int64_t end) {
    for (std::int64_t i = 0; i < end; ++i) ASSERT_EQ(decode(kernel, i, i + 1), ATTEST_OK);
  }
};

/// Rows [begin, end) of o and lse agree, o to the last bits of its type.
void expect_same_rows(Stream& a, Stream& b, std::int64_t begin, std::int64_t end) {
  const double room = a.dtype == DType::f64 ? 1e-13 : 1e-5;
  const double o_room = std::max(room, 4 * limits(a.dtype).unit_roundoff);
  for (std::int64_t n = 0; n < Stream::kBatch; ++n)
    for (std::int64_t h = 0; h < Stream::kHeads; ++h)
      for (std::int64_t i = begin; i < end; ++i) {
        ASSERT_NEAR(a["lse"].get({n, h, i}), b["lse"].get({n, h, i}), room) << "row " << i;
        for (std::int64_t c = 0; c < Stream::kVDim; ++c)
          ASSERT_NEAR(a["o"].get({n, h, i, c}), b["o"].get({n, h, i, c}), o_room) << "row " << i;
      }
}

/// The caches hold the same bits at positions [begin, end).
void expect_same_caches(Stream& a, Stream& b, std::int64_t begin, std::int64_t end) {
  for (std::int64_t n = 0; n < Stream::kBatch; ++n)
    for (std::int64_t g = 0; g < Stream::kKvHeads; ++g)
      for (std::int64_t j = begin; j < end; ++j) {
        const auto row = [=](Stream& stream, Tensor& cache) {
          std::vector<double> x;
          for (std::int64_t c = 0; c < cache.extent(3); ++c)
            x.push_back(cache.get(stream.cache.at(n, g, j, c)));
          return x;
        };
        EXPECT_EQ(row(a, a.cache.k()), row(b, b.cache.k())) << j;
        EXPECT_EQ(row(a, a.cache.v()), row(b, b.cache.v())) << j;
      }
}

class DecodeLaws : public ::testing::TestWithParam<Decoding> {
 protected:
  Loaded kernel = open_decoding(GetParam().kernel);
  bool wraps() { return GetParam().kind == ATTEST_CACHE_RING; }
};

TEST_P(DecodeLaws, EveryCuttingOfAPromptIsTheSame) {
  constexpr std::int64_t kPrompt = 6;
  const std::int64_t ring = Stream::kWindow + kPrompt;  // the least that takes the prompt at once
  Loaded naive(ATTEST_BINARY_DIR "/lib/attest/naive.so");
  // The prompt ends one before the wrap, at it, around it, and begins at it and behind it.
  for (const std::int64_t begin :
       {ring - kPrompt - 1, ring - kPrompt, ring - 3, ring, 2 * ring + 2})
    for (const bool rotated : {false, true}) {
      const std::int64_t end = begin + kPrompt;
      StreamOptions options;
      options.rows = end;
      options.capacity = wraps() ? ring : end + 2;
      options.rotated = rotated;
      Stream at_once(GetParam(), options);
      at_once.decode_one_by_one(kernel, begin);
      ASSERT_EQ(at_once.decode(kernel, begin, end), ATTEST_OK) << kernel.message();
      Stream forward(GetParam(), options);
      ASSERT_EQ(naive.forward(forward.p), ATTEST_OK) << naive.message();
      ASSERT_NO_FATAL_FAILURE(expect_same_rows(at_once, forward, 0, end)) << begin;
      for (unsigned cuts = 0; cuts < 1u << (kPrompt - 1); ++cuts) {
        SCOPED_TRACE(::testing::Message() << "begin " << begin << " cuts " << cuts);
        Stream cut(GetParam(), options);
        cut.decode_one_by_one(kernel, begin);
        for (std::int64_t first = begin, i = begin; i < end; ++i) {
          if (i + 1 < end && !(cuts >> (i - begin) & 1)) continue;
          ASSERT_EQ(cut.decode(kernel, first, i + 1), ATTEST_OK) << kernel.message();
          first = i + 1;
        }
        ASSERT_NO_FATAL_FAILURE(expect_same_rows(at_once, cut, begin, end));
        expect_same_caches(cut, at_once, wraps() ? std::max<std::int64_t>(0, end - ring) : 0, end);
      }
    }
}

/// In 16 bits a rotated key is rounded where it is stored. Every call must see that key, the one
/// that brings it too: otherwise the scores of a prompt would depend on its cutting.
TEST_P(DecodeLaws, TheCallThatBringsAKeySeesItAsItIsStored) {
  StreamOptions options;
  options.rotated = true;
  options.dtype = DType::bf16;
  Stream at_once(GetParam(), options), cut(GetParam(), options);
  ASSERT_EQ(at_once.decode(kernel, 0, 12), ATTEST_OK);
  cut.decode_one_by_one(kernel, 12);
  expect_same_rows(at_once, cut, 0, 12);
}

TEST_P(DecodeLaws, RowsOfOneCallSeeEachOtherUnderFull) {
  for (const std::int32_t base : {ATTEST_BASE_FULL, ATTEST_BASE_CAUSAL}) {
    Stream stream(GetParam());
    stream.p.base = base;
    stream.p.mask = nullptr;
    stream.decode_one_by_one(kernel, 8);
    ASSERT_EQ(stream.decode(kernel, 8, 12), ATTEST_OK);
    const double before = stream["lse"].get({0, 0, 8});
    stream["k"].set({0, 0, 11, 5}, 50);
    ASSERT_EQ(stream.decode(kernel, 8, 12), ATTEST_OK);
    EXPECT_EQ(before != stream["lse"].get({0, 0, 8}), base == ATTEST_BASE_FULL);
  }
}

TEST_P(DecodeLaws, AnyNumberOfPartsGivesTheSame) {
  if (!GetParam().splits()) return;
  // Beyond the 512 keys of a part, so that 0 splits too. With the window most parts see nothing.
  StreamOptions options;
  options.rows = 1100;
  options.pairs = false;
  Stream one(GetParam(), options), more(GetParam(), options);
  for (Stream* stream : {&one, &more})
    ASSERT_EQ(stream->decode(kernel, 0, 1095), ATTEST_OK) << kernel.message();
  for (const std::int64_t window : {3, -1})
    for (const bool sink : {true, false}) {
      for (Stream* stream : {&one, &more}) {
        stream->p.window_left = window;
        stream->p.sink = sink ? (*stream)["sink"].dl() : nullptr;
      }
      one.p.num_splits = 1;
      ASSERT_EQ(one.decode(kernel, 1095, 1100), ATTEST_OK) << kernel.message();
      for (const std::int64_t splits : {0, 2, 3, 7, 1099, 1100, 1101, 2147483647}) {
        more.p.num_splits = splits;
        ASSERT_EQ(more.decode(kernel, 1095, 1100), ATTEST_OK) << kernel.message();
        ASSERT_NO_FATAL_FAILURE(expect_same_rows(one, more, 1095, 1100)) << splits;
      }
    }
}

TEST_P(DecodeLaws, AHiddenNanStaysHidden) {
  for (const bool rotated : {false, true}) {
    StreamOptions options;
    options.rotated = rotated;
    Stream finite(GetParam(), options), poisoned(GetParam(), options);
    for (Stream* stream : {&finite, &poisoned}) {
      Tensor& mask = (*stream)["mask"];
      for (std::int64_t i = 0; i < stream->rows; ++i)
        for (const std::int64_t hidden : {4, 9}) mask.set({0, 0, i, hidden}, 0);
    }
    for (const char* name : {"k", "v"})
      for (const std::int64_t hidden : {4, 9}) poisoned[name].set({1, 1, hidden, 2}, NAN);
    for (Stream* stream : {&finite, &poisoned}) {
      stream->decode_one_by_one(kernel, 8);
      ASSERT_EQ(stream->decode(kernel, 8, 12), ATTEST_OK);
    }
    EXPECT_EQ(finite["o"].bytes(), poisoned["o"].bytes());
    EXPECT_EQ(finite["lse"].bytes(), poisoned["lse"].bytes());
  }
}

TEST_P(DecodeLaws, AVisibleNanComesOut) {
  for (const char* name : {"q", "k", "v", "bias", "sink"}) {
    Stream stream(GetParam());
    stream.p.mask = nullptr;
    const bool per_head = name == std::string("sink"), pairs = name == std::string("bias");
    stream[name].set(per_head ? Shape{0} : pairs ? Shape{0, 0, 11, 10} : Shape{0, 0, 11, 2}, NAN);
    stream.decode_one_by_one(kernel, 11);
    ASSERT_EQ(stream.decode(kernel, 11, 12), ATTEST_OK);
    EXPECT_TRUE(std::isnan(stream["o"].get({0, 0, 11, 2}))) << name;
    EXPECT_EQ(name != std::string("v"), std::isnan(stream["lse"].get({0, 0, 11}))) << name;
    EXPECT_FALSE(std::isnan(stream["o"].get({1, 3, 11, 2}))) << name;
  }
}

TEST_P(DecodeLaws, EqualRowsAreEqualInEveryBatchAndHead) {
  for (const bool rotated : {false, true}) {
    StreamOptions options;
    options.rotated = rotated;
    options.equal_rows = true;
    options.dtype = DType::bf16;
    Stream stream(GetParam(), options);
    stream.decode_one_by_one(kernel, 8);
    ASSERT_EQ(stream.decode(kernel, 8, 12), ATTEST_OK);
    for (std::int64_t b = 0; b < Stream::kBatch; ++b)
      for (std::int64_t i = 0; i < 12; ++i) {
        for (std::int64_t g = 0; g < Stream::kKvHeads; ++g)
          for (std::int64_t c = 0; c < Stream::kDim; ++c)
            ASSERT_EQ(stream.cache.k().get(stream.cache.at(b, g, i, c)),
                      stream.cache.k().get(stream.cache.at(0, 0, i, c)));
        for (std::int64_t h = 0; h < Stream::kHeads; ++h) {
          ASSERT_EQ(stream["lse"].get({b, h, i}), stream["lse"].get({0, 0, i}));
          for (std::int64_t c = 0; c < Stream::kVDim; ++c)
            ASSERT_EQ(stream["o"].get({b, h, i, c}), stream["o"].get({0, 0, i, c}));
        }
      }
  }
}

TEST_P(DecodeLaws, RotatedKeysLieInTheCacheAsTheStorageTypeRoundsThem) {
  StreamOptions options;
  options.rotated = true;
  options.dtype = DType::bf16;
  Stream stream(GetParam(), options);
  ASSERT_EQ(stream.decode(kernel, 0, 12), ATTEST_OK);
  for (std::int64_t g = 0; g < Stream::kKvHeads; ++g)
    for (std::int64_t i = 0; i < 12; ++i) {
      const std::vector<double> key = turned(stream.p, row_at(stream["k"], 1, g, i), i);
      for (std::int64_t c = 0; c < Stream::kDim; ++c) {
        const double x = key[static_cast<std::size_t>(c)];
        // Half a step of bf16, and what f32 arithmetic adds.
        ASSERT_NEAR(stream.cache.k().get(stream.cache.at(1, g, i, c)), x,
                    std::fabs(x) * 0x1.01p-8 + 1e-6);
      }
    }
}

TEST_P(DecodeLaws, PagesMayStandAnywhereAndBeShared) {
  if (GetParam().kind != ATTEST_CACHE_PAGED) return;
  StreamOptions options;
  options.equal_rows = true;  // so that the sequences may share
  Stream stream(GetParam(), options);
  stream.decode_one_by_one(kernel, 10);
  const std::int64_t full = 10 / stream.cache.rows();
  ASSERT_EQ(stream.decode(kernel, 10, 12), ATTEST_OK);
  for (const std::uint64_t seed : {2u, 3u, 4u, 5u}) {
    options.pages_seed = seed;
    Stream other(GetParam(), options);
    other.decode_one_by_one(kernel, 10);
    ASSERT_EQ(other.decode(kernel, 10, 12), ATTEST_OK);
    ASSERT_NO_FATAL_FAILURE(expect_same_rows(stream, other, 10, 12));
  }
  ASSERT_GT(full, 0);
  Stream apart(GetParam(), {.equal_rows = true});
  Stream shared(GetParam(), {.equal_rows = true});
  apart.decode_one_by_one(kernel, 10);
  shared.decode_one_by_one(kernel, 10);
  for (std::int64_t page = 0; page < full; ++page)
    shared.cache.table().set({1, page}, shared.cache.table().get({0, page}));
  ASSERT_EQ(apart.decode(kernel, 10, 12), ATTEST_OK);
  ASSERT_EQ(shared.decode(kernel, 10, 12), ATTEST_OK);
  EXPECT_EQ(apart["o"].bytes(), shared["o"].bytes());
  EXPECT_EQ(apart["lse"].bytes(), shared["lse"].bytes());
}

TEST_P(DecodeLaws, NothingToDoIsNoError) {
  Stream stream(GetParam());
  stream.decode_one_by_one(kernel, 3);
  const auto before = stream.cache.k().bytes();
  EXPECT_EQ(stream.decode(kernel, 3, 3), ATTEST_OK) << kernel.message();
  EXPECT_EQ(stream.cache.k().bytes(), before);
  attest_attention p = stream.p;
  std::vector<std::unique_ptr<Slice>> slices;
  const auto none = [&](const DLTensor* whole) {
    slices.push_back(std::make_unique<Slice>(*whole, 0, 0, 0));
    return slices.back()->dl();
  };
  Tensor lengths(kDlInt32, {0});
  stream.cache.give_to(p);
  p.q = none(p.q), p.k = none(p.k), p.v = none(p.v), p.o = none(p.o), p.lse = none(p.lse);
  p.cache_len = lengths.dl();
  if (p.block_table)
    p.block_table = none(p.block_table);
  else
    p.k_cache = none(p.k_cache), p.v_cache = none(p.v_cache);
  EXPECT_EQ(kernel.decode(p), ATTEST_OK) << kernel.message();
}

INSTANTIATE_TEST_SUITE_P(, DecodeLaws, ::testing::ValuesIn(all_decodings()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace attest::testing
