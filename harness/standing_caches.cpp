// SPDX-License-Identifier: Apache-2.0
#include "harness/standing_caches.hpp"

#include <cstring>

#include "harness/cache.hpp"
#include "harness/encode.hpp"
#include "harness/poison.hpp"

namespace attest {

namespace {
constexpr Poison kPoison = Poison::nan;
}  // namespace

struct StandingCaches::State {
  Subject& subject;
  AttentionProblem shape;
  int num_threads;
  CallForm form{};
  PlacedCall call{};

  const TensorForm& at(Slot slot) const { return form[static_cast<std::size_t>(slot)]; }
  std::byte* data(Slot slot) const {
    return subject.arena().base() + call.tensors[static_cast<std::size_t>(slot)].offset;
  }
  /// Where element (b, h, i, c) lies.
  std::byte* element(Slot slot, std::int64_t b, std::int64_t h, std::int64_t i,
                     std::int64_t c) const {
    const auto& strides = at(slot).strides;
    return data(slot) + static_cast<std::int64_t>(size_of(shape.dtype)) *
                            (b * strides[0] + h * strides[1] + i * strides[2] + c * strides[3]);
  }

  void put(Slot slot, const Dense<double>& rows) const {
    for (std::int64_t b = 0; b < rows.shape[0]; ++b)
      for (std::int64_t h = 0; h < rows.shape[1]; ++h)
        for (std::int64_t i = 0; i < rows.shape[2]; ++i)
          for (std::int64_t c = 0; c < rows.shape[3]; ++c)
            store(element(slot, b, h, i, c), shape.dtype, rows.at(b, h, i, c));
  }
  void put_integer(Slot slot, std::size_t place, std::int64_t value) const {
    const auto narrow = static_cast<std::int32_t>(value);
    std::memcpy(data(slot) + place * sizeof narrow, &narrow, sizeof narrow);
  }

  std::int64_t written(Slot slot) const {
    const TensorForm& cache = at(slot);
    const auto size = static_cast<std::size_t>(size_of(cache.element));
    std::vector<std::byte> before(static_cast<std::size_t>(cache.span()) * size);
    fill_poison(before.data(), before.data() + before.size(), before.data(), cache.element,
                kPoison);
    const std::byte* now = data(slot);
    std::size_t bytes = 0;
    for (std::size_t place = 0; place < before.size(); place += size)
      if (std::memcmp(before.data() + place, now + place, size) != 0) bytes += size;
    return static_cast<std::int64_t>(bytes);
  }
};

StandingCaches::StandingCaches(Subject& subject, const AttentionProblem& shape, int num_threads)
    : state_(new State{subject, shape, num_threads}) {}
StandingCaches::~StandingCaches() = default;

std::optional<std::string> StandingCaches::lay_out() {
  State& s = *state_;
  Arena& arena = s.subject.arena();
  s.form = call_form(s.shape, s.subject.alignment());
  if (auto why = arena.reserve(slot_bytes(s.form, s.subject.alignment()))) return why;
  place(s.form, arena, s.subject.alignment(), Flush::high, s.call);
  s.call.scalars = encode_scalars(s.shape, s.subject.declaration(), s.num_threads);
  for (const Region& region : regions_of(s.form, s.call, arena))
    fill_poison(arena.base() + region.window_begin, arena.base() + region.window_end,
                arena.base() + region.origin, region.element, kPoison);
  const CachePlan plan = plan_cache(s.shape);
  for (std::size_t n = 0; n < plan.table.size(); ++n)
    s.put_integer(Slot::block_table, n, plan.table[n]);
  return std::nullopt;
}

CallStatus StandingCaches::call(const Dense<double>& q, const Dense<double>& k,
                                const Dense<double>& v, std::int64_t cached,
                                const CallLimits& limits) {
  State& s = *state_;
  s.put(Slot::q, q);
  s.put(Slot::k, k);
  s.put(Slot::v, v);
  for (std::int64_t b = 0; b < s.shape.batch; ++b)
    s.put_integer(Slot::cache_len, static_cast<std::size_t>(b), cached);
  return s.subject.call(s.call, limits);
}

std::vector<double> StandingCaches::o() const {
  const State& s = *state_;
  const auto& shape = s.at(Slot::o).shape;
  std::vector<double> values;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i)
        for (std::int64_t c = 0; c < shape[3]; ++c)
          values.push_back(load(s.element(Slot::o, b, h, i, c), s.shape.dtype));
  return values;
}

std::int64_t StandingCaches::bytes_written() const {
  return state_->written(Slot::k_cache) + state_->written(Slot::v_cache);
}

}  // namespace attest
