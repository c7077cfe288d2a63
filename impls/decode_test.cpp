// SPDX-License-Identifier: Apache-2.0
// Every decoding implementation on every kind of cache that it serves: random calls against the
// formulas, what a call writes, what it must refuse. Its laws: impls/decode_laws_test.cpp.
#include "impls/random_decode.hpp"

namespace attest::testing {
namespace {

class Decode : public ::testing::TestWithParam<Decoding> {
 protected:
  Loaded kernel = open_decoding(GetParam().kernel);
  std::int32_t kind() { return GetParam().kind; }

  DecodeCall draw(std::uint64_t seed, DType dtype) {
    DecodeCall call = random_decode(seed, dtype, kind());
    if (!GetParam().splits()) call.p.num_splits = 0;
    return call;
  }
};

using Bytes = std::vector<unsigned char>;

std::map<std::string, Bytes> bytes_of(DecodeCall& call) {
  std::map<std::string, Bytes> bytes;
  for (const auto& [name, tensor] : call.tensors()) bytes[name] = tensor->bytes();
  return bytes;
}

/// `cache` was `before` and has the new rows now: those given, bit for bit, or turned to their
/// positions. Nothing else changed.
void expect_appended(DecodeCall& call, Tensor& cache, Tensor& rows, Bytes before, bool rotated) {
  const double room = call.whole->dtype == DType::f64 ? 1e-13 : 1e-5;
  for (std::int64_t b = 0; b < call.batch(); ++b)
    for (std::int64_t g = 0; g < rows.extent(1); ++g)
      for (std::int64_t i = 0; i < call.added(static_cast<std::size_t>(b)); ++i) {
        const std::int64_t position = call.cached(static_cast<std::size_t>(b)) + i;
        std::vector<double> expected = row_at(rows, b, g, i);
        if (rotated) expected = turned(call.p, expected, position);
        for (std::int64_t c = 0; c < rows.extent(3); ++c) {
          auto* const there =
              static_cast<unsigned char*>(cache.address(call.cache->at(b, g, position, c)));
          auto* const given = static_cast<unsigned char*>(rows.address({b, g, i, c}));
          if (rotated) {
            ASSERT_NEAR(cache.get(call.cache->at(b, g, position, c)),
                        expected[static_cast<std::size_t>(c)], room);
          }
          const std::size_t size = rows.dl()->dtype.bits / 8;
          std::copy_n(rotated ? there : given, size,
                      before.begin() + (there - cache.bytes().data()));
        }
      }
  ASSERT_EQ(cache.bytes(), before);
}

TEST_P(Decode, GivesTheAnswerOfTheFormulasAndAppends) {
  for (std::uint64_t seed = 0; seed < 250; ++seed)
    for (const DType dtype : kAllDTypes) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ' ' << name(dtype));
      DecodeCall call = draw(seed, dtype);
      const auto before = bytes_of(call);
      ASSERT_EQ(kernel.decode(call.p), ATTEST_OK) << kernel.message();
      ASSERT_NO_FATAL_FAILURE(expect_answer(*call.whole, seed));
      for (const auto& [name, tensor] : call.tensors()) {
        if (name == "o" || name == "lse") expect_written_exactly(*tensor, name);
        if (name == "o" || name == "lse" || name == "k_cache" || name == "v_cache") continue;
        ASSERT_EQ(tensor->bytes(), before.at(name)) << name;
      }
      ASSERT_NO_FATAL_FAILURE(expect_appended(call, call.cache->k(), *call.k, before.at("k_cache"),
                                              call.p.cache_rotated));
      ASSERT_NO_FATAL_FAILURE(
          expect_appended(call, call.cache->v(), *call.v, before.at("v_cache"), false));
    }
}

TEST_P(Decode, DoesNotDependOnThreads) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    DecodeCall one = draw(seed, DType::f32);
    ASSERT_EQ(kernel.decode(one.p, 1), ATTEST_OK);
    const auto expected = bytes_of(one);
    for (const int threads : {2, 5}) {
      DecodeCall more = draw(seed, DType::f32);
      ASSERT_EQ(kernel.decode(more.p, threads), ATTEST_OK);
      ASSERT_EQ(bytes_of(more), expected) << "seed " << seed << " threads " << threads;
    }
  }
}

TEST_P(Decode, DoesNotDependOnTheBatch) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    DecodeCall together = draw(seed, DType::f32), apart = draw(seed, DType::f32);
    ASSERT_EQ(kernel.decode(together.p), ATTEST_OK);
    const std::int64_t batch = apart.batch();
    for (std::int64_t b = 0; b < batch; ++b) {
      attest_attention p = apart.p;
      std::vector<std::unique_ptr<Slice>> slices;
      const auto cut = [&](auto*& tensor, int rank) {
        if (!tensor || tensor->ndim < rank || tensor->shape[0] != batch) return;
        slices.push_back(std::make_unique<Slice>(*tensor, 0, b, b + 1));
        tensor = slices.back()->dl();
      };
      for (auto* tensor : {&p.q, &p.k, &p.v, &p.bias, &p.mask, &p.blocks, &p.seqlens_q,
                           &p.prefix_len, &p.cache_len, &p.block_table})
        cut(*tensor, 1);
      cut(p.alibi_slopes, 2);
      cut(p.o, 1);
      cut(p.lse, 1);
      if (kind() != ATTEST_CACHE_PAGED) cut(p.k_cache, 1), cut(p.v_cache, 1);
      ASSERT_EQ(kernel.decode(p), ATTEST_OK) << kernel.message();
    }
    ASSERT_EQ(bytes_of(together), bytes_of(apart)) << seed;
  }
}

/// The call is refused with this status and a message that holds `word`, and writes nothing.
void expect_refused(Loaded& kernel, DecodeCall& call, attest_status status,
                    const std::string& word) {
  const auto before = bytes_of(call);
  ASSERT_EQ(kernel.decode(call.p, 2), status) << word;
  EXPECT_NE(kernel.message().find(word), std::string::npos) << kernel.message();
  ASSERT_EQ(bytes_of(call), before) << word;
}

TEST_P(Decode, RefusesRowsThatDoNotFit) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    // Of the last sequence: the others must not have been written when it is found.
    const auto last = [](DecodeCall& call) { return call.batch() - 1; };
    const auto capacity = [&](DecodeCall& call) {
      return kind() == ATTEST_CACHE_PAGED ? call.cache->table().extent(1) * call.cache->rows()
                                          : call.cache->rows();
    };
    const auto fill = [&](DecodeCall& call, std::int64_t total) {
      const std::int64_t b = last(call), added = call.added(static_cast<std::size_t>(b));
      call.cache_len->set({b}, static_cast<double>(total - added));
      // No other sequence, and no mask, is in the way.
      call.p.mask = call.p.blocks = call.p.bias = nullptr;
      if (kind() == ATTEST_CACHE_PAGED) call.cache->reserve(b, std::min(total, capacity(call)));
    };
    DecodeCall call = draw(seed, DType::f32);
    const std::int64_t added = call.added(static_cast<std::size_t>(last(call)));
    if (capacity(call) + 1 < added) continue;
    fill(call, capacity(call) + 1);
    if (kind() == ATTEST_CACHE_RING) {
      call.p.window_left = -1;
      expect_refused(kernel, call, ATTEST_INVALID, "window");
      call.p.window_left = std::numeric_limits<std::int64_t>::max();
      expect_refused(kernel, call, ATTEST_INVALID, "window");
      call.p.window_left = std::max<std::int64_t>(0, capacity(call) - added + 1);
      expect_refused(kernel, call, ATTEST_INVALID, "window");
      if (call.p.q->shape[2] <= capacity(call)) {
        call.p.window_left = 0;
        call.p.global_tokens = 1;
        expect_refused(kernel, call, ATTEST_INVALID, "global");
      }
    } else {
      expect_refused(kernel, call, ATTEST_INVALID, "full");
    }
    DecodeCall negative = draw(seed, DType::f32);
    negative.cache_len->set({last(negative)}, -1);
    expect_refused(kernel, negative, ATTEST_INVALID, "cache_len");
  }
}

TEST_P(Decode, RefusesPagesThatDoNotExist) {
  if (kind() != ATTEST_CACHE_PAGED) return;
  for (std::uint64_t seed = 0; seed < 60; ++seed)
    for (const bool negative : {false, true}) {
      DecodeCall call = draw(seed, DType::f32);
      const auto last = static_cast<std::size_t>(call.batch() - 1);
      const std::int64_t total = call.cached(last) + call.added(last);
      if (total == 0) continue;
      const auto pages = static_cast<double>(call.cache->k().extent(0));
      call.cache->table().set({call.batch() - 1, (total - 1) / call.cache->rows()},
                              negative ? -1 : pages);
      expect_refused(kernel, call, ATTEST_INVALID, "page");
    }
}

TEST_P(Decode, RefusesWhatItDoesNotServe) {
  const auto refused = [&](auto&& change, attest_status status, const char* word) {
    DecodeCall call = draw(3, DType::f32);
    change(call);
    expect_refused(kernel, call, status, word);
  };
  const auto unsupported = [&](auto&& change, const char* word) {
    refused([&](DecodeCall& call) { change(call.p); }, ATTEST_UNSUPPORTED, word);
  };
  Tensor ints(kDlInt32, {draw(3, DType::f32).batch()});
  ints.fill([](const Shape&) { return 0; });
  unsupported([](auto& p) { p.align = ATTEST_ALIGN_TOP_LEFT; }, "alignment");
  unsupported([](auto& p) { p.dropout_p = 0.5; }, "dropout");
  unsupported([](auto& p) { p.keep = p.q; }, "dropout");
  unsupported([&](auto& p) { p.cu_seqlens_q = p.cu_seqlens_k = ints.dl(); }, "cu_seqlens");
  unsupported([&](auto& p) { p.left_pad_q = ints.dl(); }, "left_pad");
  unsupported([&](auto& p) { p.seqlens_k = ints.dl(); }, "seqlens_k");
  if (!GetParam().splits()) {
    unsupported([](auto& p) { p.num_splits = 1; }, "splits");
  } else {
    unsupported(
        [&](auto& p) {
          p.cache = (kind() + 1) % 3;
          p.block_table = p.cache == ATTEST_CACHE_PAGED ? p.cache_len : nullptr;
        },
        "cache");
  }
  const auto invalid = [&](auto&& change, const char* word) {
    refused(change, ATTEST_INVALID, word);
  };
  std::int64_t longest = 0;
  const DecodeCall drawn = draw(3, DType::f32);
  for (std::size_t b = 0; b < drawn.whole->sequences.size(); ++b)
    longest = std::max(longest, drawn.whole->sequences[b].k1);
  ASSERT_GT(longest, 2);
  Tensor odd(dl_dtype(DType::f32), {5, 1, 1, 1}), flat(dl_dtype(DType::f32), {2, 2});
  Tensor too_short(dl_dtype(DType::f32), {1, 1, 1, longest - 1});
  Tensor short_mask(kDlUint8, {1, 1, 1, longest - 1});
  invalid([](DecodeCall& c) { c.p.num_splits = -1; }, "num_splits");
  invalid([](DecodeCall& c) { c.p.cache_len = nullptr; }, "cache_len");
  invalid([](DecodeCall& c) { c.p.k_cache->dtype = dl_dtype(DType::f16); }, "k_cache");
  invalid([](DecodeCall& c) { c.p.v_cache->shape[2] += 1; }, "v_cache");
  invalid([&](DecodeCall& c) { c.p.k_cache = flat.dl(); }, "k_cache");
  invalid([&](DecodeCall& c) { c.p.k = odd.dl(); }, "k");
  invalid([&](DecodeCall& c) { c.p.bias = flat.dl(); }, "bias");
  invalid([&](DecodeCall& c) { c.p.bias = odd.dl(); }, "bias");
  invalid([&](DecodeCall& c) { c.p.bias = too_short.dl(); }, "bias");
  invalid([&](DecodeCall& c) { c.p.mask = short_mask.dl(); }, "mask");
  invalid(
      [&](DecodeCall& c) {
        Tensor& rows = c.whole->add("seqlens_q", kDlInt32, {c.batch()});
        rows.fill([&](const Shape&) { return static_cast<double>(c.p.q->shape[2] + 1); });
        c.p.seqlens_q = rows.dl();
      },
      "seqlens_q");
}

INSTANTIATE_TEST_SUITE_P(, Decode, ::testing::ValuesIn(all_decodings()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace attest::testing
