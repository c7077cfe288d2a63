// SPDX-License-Identifier: Apache-2.0
// The kernels of planted faults that decode: the honest ones give the answer over the whole
// sequences and append exactly the new rows, and each fault is told from its base by some call.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "attest/faults.h"
#include "impls/faulty/random_decode.hpp"

namespace attest::testing {
namespace {

std::string faulty_path() { return ATTEST_BINARY_DIR "/lib/attest-faulty/faulty.so"; }

const attest_fault* read_catalogue() {
  void* const library = dlopen(faulty_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;  // never closed: the catalogue lives in it
  const auto catalogue =
      reinterpret_cast<attest_fault_catalogue_function>(dlsym(library, "attest_fault_catalogue"));
  return catalogue ? catalogue() : nullptr;
}

/// A kernel of the library with a state of its own.
class Decoder {
 public:
  explicit Decoder(const std::string& kernel) : kernel_(faulty_path(), kernel) {
    attest_context context = make_context(1);
    EXPECT_EQ(plugin().open(0, &context, &state_), ATTEST_OK);
  }
  ~Decoder() { plugin().close(state_); }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  const attest_plugin& plugin() const { return kernel_.plugin(); }
  attest_status decode(const attest_attention& problem, int num_threads = 1) {
    attest_context context = make_context(num_threads);
    return plugin().decode(state_, nullptr, &problem, &context);
  }
  std::string message() const { return message_; }

 private:
  attest_context make_context(int num_threads) {
    attest_context context{};
    context.struct_size = sizeof context;
    context.num_threads = num_threads;
    context.message = message_;
    context.message_capacity = sizeof message_;
    return context;
  }

  Loaded kernel_;
  void* state_ = nullptr;
  char message_[256] = "";
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts(1);
  for (const char c : list)
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// The entries of the catalogue that decode.
std::vector<const attest_fault*> decoding(bool honest) {
  std::vector<const attest_fault*> found;
  for (const attest_fault* f = read_catalogue(); f; f = f->next) {
    if ((f->honest != 0) != honest) continue;
    Loaded kernel(faulty_path(), f->id + ("." + split(f->dtypes).front()));
    const std::string declaration = kernel.plugin().declaration;
    if (declaration.find(" cache=") != std::string::npos) found.push_back(f);
  }
  return found;
}

using Bytes = std::map<std::string, std::vector<unsigned char>>;

Bytes bytes_of(DecodeCall& call) {
  Bytes bytes;
  for (const auto& [name, tensor] : call.all()) bytes[name] = tensor->bytes();
  return bytes;
}

/// Of numbers up to a few units: P is rounded to the storage type, and so are rotated keys.
double room(DType dtype) {
  switch (dtype) {
    case DType::f64: return 1e-11;
    case DType::f32: return 2e-4;
    case DType::f16: return 3e-2;
    case DType::bf16: return 0.25;
  }
  return 0;
}

void expect_near(double got, double want, DType dtype, const std::string& what) {
  if (want == -HUGE_VAL)
    EXPECT_EQ(got, want) << what;
  else
    EXPECT_NEAR(got, want, room(dtype)) << what;
}

void expect_answer(DecodeCall& call, const Answer& expected, const std::string& what) {
  std::size_t n = 0;
  Tensor& o = (*call.whole)["o"];
  o.fill([&](const Shape& at) {
    expect_near(o.get(at), expected.o[n++], call.whole->dtype, what + ": o");
    return o.get(at);
  });
  if (!call.p.lse) return;
  Tensor& lse = (*call.whole)["lse"];
  n = 0;
  lse.fill([&](const Shape& at) {
    expect_near(lse.get(at), expected.lse[n++], call.whole->dtype, what + ": lse");
    return lse.get(at);
  });
}

/// The new rows are there, raw ones to the bit; all other bytes are as before.
void expect_appended(DecodeCall& call, Bytes before, const std::string& what) {
  for (const char* name : {"k", "v"}) {
    Tensor& cache = call[std::string(name) + "_cache"];
    std::vector<unsigned char>& bytes = before[std::string(name) + "_cache"];
    const auto element = static_cast<std::size_t>(cache.dl()->dtype.bits / 8);
    for (const SequenceRows& rows : call.whole->sequences)
      for (std::int64_t g = 0; g < cache.extent(1); ++g)
        for (std::int64_t row = call.cached(rows); row < rows.k1; ++row) {
          const std::vector<double> want = row_as_stored(call, name, rows.b, g, row);
          Shape at = call.slot(rows.b, g, row);
          for (at[3] = 0; at[3] < cache.extent(3); ++at[3]) {
            const auto c = static_cast<std::size_t>(at[3]);
            if (name[0] == 'k' && call.p.cache_rotated)
              expect_near(cache.get(at), want[c], call.whole->dtype, what + ": stored key");
            else
              EXPECT_EQ(cache.get(at), want[c]) << what << ": stored " << name;
            const auto* address = static_cast<const unsigned char*>(cache.address(at));
            std::copy_n(address, element, bytes.begin() + (address - cache.bytes().data()));
          }
        }
  }
  before.erase("o"), before.erase("lse");
  for (const auto& entry : before)
    EXPECT_EQ(entry.second, call.all()[entry.first]->bytes()) << what << ": " << entry.first;
}

TEST(FaultyDecode, HonestKernelsGiveTheAnswerOverWholeSequences) {
  const auto honest = decoding(true);
  EXPECT_EQ(honest.size(), 7u);
  for (const DType dtype : kAllDTypes)
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const Answer expected = answer(*random_decode(seed, dtype)->whole);
      for (const attest_fault* f : honest) {
        Decoder kernel(f->id + ("." + std::string(name(dtype))));
        const auto call = random_decode(seed, dtype);
        const Bytes before = bytes_of(*call);
        const std::string what = kernel.plugin().name + (", seed " + std::to_string(seed));
        ASSERT_EQ(kernel.decode(call->p, 1 + static_cast<int>(seed % 3)), ATTEST_OK)
            << what << ": " << kernel.message();
        expect_answer(*call, expected, what);
        expect_appended(*call, before, what);
        expect_written_exactly((*call->whole)["o"], what);
        if (HasFailure()) return;
      }
    }
}

TEST(FaultyDecode, HonestKernelsRefuseRowsThatDoNotFitAndWriteNothing) {
  for (const attest_fault* f : decoding(true)) {
    Decoder kernel(f->id + std::string(".f32"));
    int refused = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
      const auto call = random_decode(seed, DType::f32, Fit::no);
      if (call->p.cache == ATTEST_CACHE_RING && call->p.k_cache->shape[2] < 1) continue;
      const Bytes before = bytes_of(*call);
      ASSERT_EQ(kernel.decode(call->p), ATTEST_INVALID) << f->id << ", seed " << seed;
      EXPECT_EQ(bytes_of(*call), before) << f->id << ", seed " << seed;
      ++refused;
    }
    EXPECT_GE(refused, 80);
  }
}

TEST(FaultyDecode, OneKernelServesEveryTypeOfAnHonestEntry) {
  Decoder kernel("decode");
  for (const DType dtype : kAllDTypes) {
    const auto call = random_decode(3, dtype);
    ASSERT_EQ(kernel.decode(call->p), ATTEST_OK) << kernel.message();
    expect_answer(*call, answer(*call->whole), "decode");
  }
  EXPECT_EQ(Decoder("decode.f32").decode(random_decode(3, DType::f64)->p), ATTEST_UNSUPPORTED);
  EXPECT_EQ(Loaded(faulty_path(), "decode.f32").forward(random_call(3, DType::f32)->p),
            ATTEST_UNSUPPORTED);
}

constexpr std::uint64_t kCalls = 600;

/// Exit code of the process in which both kernels see the same calls: 0 where nothing tells them
/// apart. A fault may do harm to the process.
int tell_apart(const std::string& fault, const std::string& base, DType dtype) {
  Decoder one(fault), other(base);
  for (std::uint64_t seed = 0; seed < kCalls; ++seed) {
    const Fit fit = seed % 8 == 7 ? Fit::no : Fit::yes;
    const auto is = random_decode(seed, dtype, fit), was = random_decode(seed, dtype, fit);
    const int num_threads = 1 + static_cast<int>(seed % 3);
    if (one.decode(is->p, num_threads) != other.decode(was->p, num_threads)) return 1;
    if (bytes_of(*is) != bytes_of(*was)) return 1;
  }
  return 0;
}

TEST(FaultyDecode, EveryFaultIsToldFromItsBaseBySomeCall) {
  const auto faults = decoding(false);
  EXPECT_GE(faults.size(), 140u);
  seed_that_can_be_cut(kCalls);  // found once, not in every process
  for (const attest_fault* f : faults)
    for (const std::string& type : split(f->dtypes)) {
      const std::string kernel = f->id + ("." + type), base = f->base + ("." + type);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) _exit(tell_apart(kernel, base, *parse_dtype(type)));
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_NE(status, 0) << kernel << " is " << base;
    }
}

}  // namespace
}  // namespace attest::testing
