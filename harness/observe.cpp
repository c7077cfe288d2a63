// SPDX-License-Identifier: Apache-2.0
#include "harness/observe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numbers>

#include "attest/plugin.h"
#include "harness/cache.hpp"
#include "harness/encode.hpp"
#include "harness/poison.hpp"
#include "harness/verify.hpp"
#include "reference/visible.hpp"

namespace attest {

namespace {

/// One output read back, in logical row-major order.
struct ReadBack {
  std::vector<double>& values;
  std::vector<std::uint64_t>& bits;
  std::vector<std::uint8_t>& junk;
};

template <class T, class Decode>
void gather(const TensorForm& form, const std::byte* data, Poison poison, Decode decode,
            ReadBack to) {
  const auto count = static_cast<std::size_t>(form.count());
  to.values.resize(count);
  to.bits.resize(count);
  to.junk.resize(count);
  if (count == 0) return;
  const std::uint64_t junk[2] = {poison_bits(form.element, poison, 0),
                                 poison_bits(form.element, poison, 1)};
  std::size_t flat = 0;
  for (std::int64_t a = 0; a < form.shape[0]; ++a)
    for (std::int64_t b = 0; b < form.shape[1]; ++b)
      for (std::int64_t c = 0; c < form.shape[2]; ++c)
        for (std::int64_t d = 0; d < form.shape[3]; ++d, ++flat) {
          const std::int64_t at =
              a * form.strides[0] + b * form.strides[1] + c * form.strides[2] + d * form.strides[3];
          T bits;
          std::memcpy(&bits, data + at * static_cast<std::int64_t>(sizeof bits), sizeof bits);
          to.bits[flat] = bits;
          to.junk[flat] = bits == static_cast<T>(junk[at & 1]);
          to.values[flat] = decode(bits);
        }
}

void read_back(const TensorForm& form, const std::byte* data, Poison poison, ReadBack to) {
  switch (form.element) {
    case Element::f64:
      gather<std::uint64_t>(
          form, data, poison, [](std::uint64_t bits) { return std::bit_cast<double>(bits); }, to);
      break;
    case Element::f32:
      gather<std::uint32_t>(
          form, data, poison,
          [](std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); }, to);
      break;
    case Element::f16: gather<std::uint16_t>(form, data, poison, decode_f16, to); break;
    case Element::bf16: gather<std::uint16_t>(form, data, poison, decode_bf16, to); break;
    case Element::u8:
    case Element::i32: break;
  }
}

Observation trouble(std::string sentence, Verdict verdict = Verdict::error) {
  Observation observation;
  observation.call.accident = Accident{verdict, Reason::none, std::move(sentence)};
  return observation;
}

/// What a kernel leaves in padding rows that it does not promise to fill is read as what another
/// one has to write there, bits included: nothing that looks at outputs needs to know of them.
void blank_padding_rows(const AttentionProblem& problem, Observation& seen) {
  constexpr double kMinusInf = -std::numeric_limits<double>::infinity();
  const std::uint64_t lse_bits = problem.dtype == DType::f64
                                     ? std::bit_cast<std::uint64_t>(kMinusInf)
                                     : std::bit_cast<std::uint32_t>(static_cast<float>(kMinusInf));
  const auto width = static_cast<std::size_t>(problem.v_head_dim);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const Rows rows = rows_of(problem, b);
    for (std::int64_t h = 0; h < problem.num_heads; ++h)
      for (std::int64_t i = 0; i < problem.q_len; ++i) {
        if (rows.real_query(i)) continue;
        const auto row = static_cast<std::size_t>((b * problem.num_heads + h) * problem.q_len + i);
        for (std::size_t flat = row * width; flat < (row + 1) * width; ++flat)
          seen.o[flat] = 0, seen.o_bits[flat] = 0, seen.o_junk[flat] = 0;
        if (!seen.lse.empty())
          seen.lse[row] = kMinusInf, seen.lse_bits[row] = lse_bits, seen.lse_junk[row] = 0;
      }
  }
}

std::uint64_t workspace_pattern(Poison poison) {
  return poison_bits(Element::f32, poison, 0) | poison_bits(Element::f32, poison, 1) << 32;
}

/// Reads the rows that a decode call had to append, and allows them to be as they are; whatever
/// else the call changed in a cache stays a change.
void take_appended(const AttentionProblem& problem, const CallForm& form, const PlacedCall& call,
                   Slot slot, Poison poison, const Arena& arena, const std::vector<Region>& regions,
                   Snapshot& snapshot, SeenTensor& seen) {
  const TensorForm& cache = form[static_cast<std::size_t>(slot)];
  const PlacedTensor& placed = call.tensors[static_cast<std::size_t>(slot)];
  const auto size = static_cast<std::uint64_t>(size_of(cache.element));
  const std::int64_t channels = cache.shape[3];
  const auto count =
      static_cast<std::size_t>(problem.batch * problem.num_kv_heads * problem.q_len * channels);
  seen.values.assign(count, 0);
  seen.bits.assign(count, 0);
  seen.junk.assign(count, 0);
  // A row of one head at a time, as a tensor of its own.
  TensorForm row = cache;
  row.shape = {1, 1, 1, channels};
  std::vector<double> values;
  std::vector<std::uint64_t> bits;
  std::vector<std::uint8_t> junk;
  const CachePlan plan = plan_cache(problem);
  for_each_append(problem, plan, [&](std::int64_t b, std::int64_t position, CachePlace place) {
    const std::int64_t i = position - cached_rows(problem, b);
    for (std::int64_t g = 0; g < problem.num_kv_heads; ++g) {
      const std::uint64_t first =
          placed.offset +
          size * static_cast<std::uint64_t>(place.entry * cache.strides[0] + g * cache.strides[1] +
                                            place.row * cache.strides[2]);
      read_back(row, arena.base() + first, poison, {values, bits, junk});
      const std::int64_t flat = ((b * problem.num_kv_heads + g) * problem.q_len + i) * channels;
      std::copy(values.begin(), values.end(), seen.values.begin() + flat);
      std::copy(bits.begin(), bits.end(), seen.bits.begin() + flat);
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::uint64_t begin = first + size * static_cast<std::uint64_t>(c * cache.strides[3]);
        snapshot.take_again(regions, slot, begin, begin + size, arena.base());
      }
    }
  });
}

Observation observe_one(Subject& subject, const AttentionProblem& asked,
                        const AttentionInputs& inputs, const CallOptions& options) {
  const Declaration& declaration = subject.declaration();
  const AttentionProblem problem = as_told(asked, declaration);
  const int alignment = subject.alignment();
  const CallForm form = call_form(problem, alignment);
  PlacedCall call{};
  call.scalars = encode_scalars(problem, declaration, options.num_threads);
  if (auto why = shape_mismatch(problem, form, inputs)) return trouble(*why);

  Arena& arena = subject.arena();
  if (problem.layout == Layout::far) {
    // Address space is the machine's to give: a small `ulimit -v` accuses nobody.
    if (auto why = arena.reserve_far(slot_bytes(form, alignment)))
      return trouble(*why, Verdict::not_judged);
  } else if (auto why = arena.reserve(slot_bytes(form, alignment))) {
    return trouble(*why);
  }
  place(form, arena, alignment, options.flush, call);
  call.workspace_fill = workspace_pattern(options.poison);
  call.workspace_at_end = options.flush == Flush::high;
  call.repeats = options.repeats;
  const std::vector<Region> regions = regions_of(form, call, arena);
  write_values(problem, inputs, declaration, form, call, regions, options.poison, arena.base());
  thread_local Snapshot snapshot;  // keeps its memory from call to call
  snapshot.take(regions, arena.base());

  Observation seen;
  if (options.before_call) options.before_call();
  seen.call = subject.call(call, options.limits);
  if (seen.call.accident) return seen;
  // The arena may have moved: the kernel can have asked for more workspace.
  if (problem.operation == Operation::decode && seen.call.status == ATTEST_OK)
    for (const Slot slot : {Slot::k_cache, Slot::v_cache})
      take_appended(problem, form, call, slot, options.poison, arena, regions, snapshot,
                    slot == Slot::k_cache ? seen.appended_k : seen.appended_v);
  Snapshot::Changes changes = snapshot.compare(form, regions, arena.base());
  seen.inputs_modified = std::move(changes.inputs_modified);
  seen.writes_outside = std::move(changes.writes_outside);
  for (std::string& write : workspace_writes(arena, seen.call.workspace_bytes, call))
    seen.writes_outside.push_back(std::move(write));
  if (seen.call.status != ATTEST_OK) return seen;

  const auto read = [&](Slot slot, ReadBack to) {
    const TensorForm& tensor = form[static_cast<std::size_t>(slot)];
    if (tensor.present)
      read_back(tensor, arena.base() + call.tensors[static_cast<std::size_t>(slot)].offset,
                options.poison, to);
  };
  if (problem.operation == Operation::backward) {
    for (std::size_t n = 0; n < kNumGradients; ++n) {
      SeenTensor& gradient = seen.gradients[n];
      read(static_cast<Slot>(static_cast<std::size_t>(Slot::d_q) + n),
           {gradient.values, gradient.bits, gradient.junk});
    }
    return seen;
  }
  read(problem.operation == Operation::rope ? Slot::y : Slot::o,
       {seen.o, seen.o_bits, seen.o_junk});
  read(Slot::lse, {seen.lse, seen.lse_bits, seen.lse_junk});
  if (declaration.lse_base == LseBase::two)
    for (double& value : seen.lse) value *= std::numbers::ln2;
  if (declaration.padding_row == PaddingRow::unspecified && problem.operation != Operation::rope)
    blank_padding_rows(asked, seen);
  return seen;
}

}  // namespace

void take_forward(const AttentionProblem& problem, const Observation& forward,
                  AttentionInputs& inputs) {
  inputs.o = Dense<double>({problem.batch, problem.num_heads, problem.q_len, problem.v_head_dim});
  inputs.o.values = forward.o;
  inputs.lse = {};
  if (!problem.want_lse) return;
  inputs.lse = Dense<double>({problem.batch, problem.num_heads, problem.q_len, 1});
  for (std::size_t row = 0; row < forward.lse_bits.size(); ++row)
    inputs.lse.values[row] = problem.dtype == DType::f64
                                 ? std::bit_cast<double>(forward.lse_bits[row])
                                 : static_cast<double>(std::bit_cast<float>(
                                       static_cast<std::uint32_t>(forward.lse_bits[row])));
}

Observation observe(Subject& subject, const AttentionProblem& problem,
                    const AttentionInputs& inputs, const CallOptions& options) {
  if (problem.operation != Operation::backward || inputs.o.present)
    return observe_one(subject, problem, inputs, options);
  Observation forward = observe_one(subject, forward_of(problem), inputs, options);
  if (!forward.ok()) return forward;
  AttentionInputs whole = inputs;
  take_forward(problem, forward, whole);
  return observe_one(subject, problem, whole, options);
}

std::int64_t arena_bytes(const AttentionProblem& problem) {
  const CallForm form = call_form(problem, 0);
  const std::int64_t slots = slot_memory(slot_bytes(form, 0));
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return problem.layout == Layout::far && slots != kMost ? touched_bytes(form) : slots;
}

std::vector<std::size_t> unwritten(const std::vector<std::uint8_t>& first,
                                   const std::vector<std::uint8_t>& second) {
  std::vector<std::size_t> elements;
  for (std::size_t i = 0; i < first.size() && i < second.size(); ++i)
    if (first[i] && second[i]) elements.push_back(i);
  return elements;
}

}  // namespace attest
