// SPDX-License-Identifier: Apache-2.0
#include "tools/failure_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "harness/arena.hpp"
#include "harness/cache.hpp"
#include "harness/requirement.hpp"
#include "harness/unit.hpp"
#include "reference/audit.hpp"
#include "reports/atomic_file.hpp"
#include "reports/pages.hpp"
#include "tools/arguments.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

std::string_view operation_of(const PlacedCall& call) {
  return enum_name(static_cast<Operation>(call.scalars.operation));
}

/// Passes everything on, and keeps what the first call was given.
class Watched final : public Subject {
 public:
  Watched(Subject& inner, Operation operation, FailureCall& seen)
      : inner_(inner), wanted_(enum_name(operation)), seen_(seen) {}
  const std::string& kernel_name() const override { return inner_.kernel_name(); }
  const std::string& version() const override { return inner_.version(); }
  const Declaration& declaration() const override { return inner_.declaration(); }
  int alignment() const override { return inner_.alignment(); }
  Arena& arena() override { return inner_.arena(); }
  CallStatus call(const PlacedCall& call, const CallLimits& limits) override {
    // Before a backward call stands the forward call that it needs: kept where that is as far as
    // it gets.
    if (seen_.tensors.empty() || (seen_.operation != wanted_ && operation_of(call) == wanted_))
      keep(call);
    return inner_.call(call, limits);
  }

 private:
  void keep(const PlacedCall& call);
  void keep_tensor(const PlacedCall& call, Slot slot);
  void keep_scalars(const PlacedScalars& scalars);

  Subject& inner_;
  const std::string_view wanted_;
  FailureCall& seen_;
};

std::string type_of(const PlacedTensor& tensor) {
  switch (tensor.bits) {
    case 64: return "f64";
    case 16: return tensor.code == kDLBfloat ? "bf16" : "f16";
    case 8: return "u8";
    default: return tensor.code == kDLInt ? "i32" : "f32";
  }
}

const PlacedTensor& at(const PlacedCall& call, Slot slot) {
  return call.tensors[static_cast<std::size_t>(slot)];
}

/// v lies in k's memory.
bool share_memory(const PlacedTensor& k, const PlacedTensor& v) {
  return k.extent_begin < v.extent_end && v.extent_begin < k.extent_end;
}

void Watched::keep_tensor(const PlacedCall& call, Slot slot) {
  const PlacedTensor& placed = at(call, slot);
  if (!placed.present) return;
  const PlacedTensor &k = at(call, Slot::k), &v = at(call, Slot::v);
  const bool shared = (slot == Slot::k || slot == Slot::v) && share_memory(k, v);
  const std::uint64_t begin =
      shared ? std::min(k.extent_begin, v.extent_begin) : placed.extent_begin;
  const std::uint64_t end = shared ? std::max(k.extent_end, v.extent_end) : placed.extent_end;
  const auto size = static_cast<std::uint64_t>(placed.bits / 8);
  CallTensor tensor;
  tensor.name = name(slot);
  tensor.first = static_cast<std::int64_t>((placed.offset - begin) / size);
  tensor.shape.assign(placed.shape, placed.shape + placed.rank);
  tensor.strides.assign(placed.strides, placed.strides + placed.rank);
  if (shared && slot == Slot::v) {
    for (const CallTensor& other : seen_.tensors)
      if (other.name == "k") tensor.block = other.block;
  } else {
    tensor.block = seen_.blocks.size();
    CallBlock block;
    block.name = tensor.name;
    block.type = type_of(placed);
    block.output = seen_.operation == "backward"
                       ? is_gradient(slot)
                       : slot == Slot::o || slot == Slot::lse || slot == Slot::y;
    block.written = slot == Slot::k_cache || slot == Slot::v_cache;
    block.bits.resize((end - begin) / size);
    for (std::size_t i = 0; i < block.bits.size(); ++i)
      std::memcpy(&block.bits[i], inner_.arena().base() + begin + i * size, size);
    seen_.blocks.push_back(std::move(block));
  }
  seen_.tensors.push_back(std::move(tensor));
}

void Watched::keep_scalars(const PlacedScalars& s) {
  if (static_cast<Operation>(s.operation) == Operation::rope) {
    seen_.numbers = {{"base", s.rope_base}, {"scale", s.rope_scale}, {"ntk", s.rope_ntk}};
    seen_.integers = {{"pairing", s.rope},
                      {"rope_dim", s.rope_dim},
                      {"inverse", s.rope_inverse},
                      {"rope_position", s.rope_position}};
    return;
  }
  seen_.numbers = {{"scale", s.scale},           {"softcap", s.softcap},
                   {"dropout_p", s.dropout_p},   {"rope_base", s.rope_base},
                   {"rope_scale", s.rope_scale}, {"rope_ntk", s.rope_ntk}};
  seen_.integers = {{"window_left", s.window_left},
                    {"window_right", s.window_right},
                    {"global_tokens", s.global_tokens},
                    {"block_q", s.block_q},
                    {"block_k", s.block_k},
                    {"rope_dim", s.rope_dim},
                    {"rope_position", s.rope_position},
                    {"base", s.base},
                    {"align", s.align},
                    {"alibi", s.alibi},
                    {"alibi_inside_softcap", s.alibi_inside_softcap},
                    {"rope", s.rope},
                    {"num_splits", s.num_splits},
                    {"cache", s.cache},
                    {"cache_rotated", s.cache_rotated}};
}

void Watched::keep(const PlacedCall& call) {
  seen_.tensors.clear();
  seen_.blocks.clear();
  seen_.operation = operation_of(call);
  for (int slot = 0; slot < static_cast<int>(Slot::workspace); ++slot)
    keep_tensor(call, static_cast<Slot>(slot));
  keep_scalars(call.scalars);
}

/// Negative where the oracle does not hold the element to a value (harness/judge.hpp).
double tolerance_at(const Declaration& declaration, const AttentionProblem& p,
                    const Expected& expected, bool is_o, std::size_t row, std::size_t flat) {
  const bool unspecified =
      is_o ? p.empty_output == EmptyOutput::unspecified : p.empty_lse == EmptyLse::unspecified;
  switch (expected.rows[row]) {
    case RowKind::unspecified:
    case RowKind::outside_domain:
    case RowKind::lowest_only: return -1;
    case RowKind::empty:
      if (unspecified) return -1;
      break;
    case RowKind::padding:
      if (declaration.padding_row == PaddingRow::unspecified) return -1;
      break;
    default: break;
  }
  return tolerance_of(is_o ? expected.o : expected.lse, flat);
}

/// Of o or lse, or of y, which stands for o.
CallOutput output_of(const Declaration& declaration, const AttentionProblem& p,
                     const Expected& expected, const CallTensor& called, const Observation& seen) {
  const bool is_o = called.name != "lse";
  const ExpectedTensor& tensor = is_o ? expected.o : expected.lse;
  const auto width = static_cast<std::size_t>(is_o ? called.shape.back() : 1);
  CallOutput output;
  output.name = called.name;
  output.expected = tensor.value;
  output.actual = is_o ? seen.o : seen.lse;
  for (std::size_t flat = 0; flat < tensor.value.size(); ++flat)
    output.tolerance.push_back(tolerance_at(declaration, p, expected, is_o, flat / width, flat));
  return output;
}

CallOutput output_of(const Expected& expected, Gradient gradient, const std::string& slot,
                     const std::vector<double>& actual) {
  const ExpectedTensor& tensor = expected.gradients[static_cast<std::size_t>(gradient)];
  CallOutput output;
  output.name = slot;
  output.expected = tensor.value;
  output.actual = actual;
  for (std::size_t flat = 0; flat < tensor.value.size(); ++flat) {
    const double tolerance = tolerance_of(tensor, flat);
    output.tolerance.push_back(std::isfinite(tolerance) ? tolerance : -1);
  }
  return output;
}

/// A cache after the call: what lay in it, and the new rows of a tensor of whole sequences. Keys
/// that the kernel rotates before it stores them are not judged here.
CallOutput cache_after(const FailureCall& call, const CallTensor& tensor,
                       const AttentionProblem& problem, const Dense<double>& whole,
                       const std::vector<double>& appended) {
  const CallBlock& block = call.blocks[tensor.block];
  const std::vector<std::int64_t>&shape = tensor.shape, &strides = tensor.strides;
  CallOutput output;
  output.name = tensor.name;
  for (std::int64_t entry = 0; entry < shape[0]; ++entry)
    for (std::int64_t g = 0; g < shape[1]; ++g)
      for (std::int64_t row = 0; row < shape[2]; ++row)
        for (std::int64_t c = 0; c < shape[3]; ++c)
          output.expected.push_back(value_of(
              block, static_cast<std::size_t>(tensor.first + entry * strides[0] + g * strides[1] +
                                              row * strides[2] + c * strides[3])));
  output.actual = output.expected;
  output.tolerance.assign(output.expected.size(), 0);
  const bool rotated = problem.cache_rotated && tensor.name == "k_cache";
  const auto put = [&](std::int64_t b, std::int64_t position, const CachePlace& place) {
    for (std::int64_t g = 0; g < shape[1]; ++g)
      for (std::int64_t c = 0; c < shape[3]; ++c) {
        const auto flat = static_cast<std::size_t>(
            ((place.entry * shape[1] + g) * shape[2] + place.row) * shape[3] + c);
        output.expected[flat] = whole.at(b, g, position, c);
        const std::int64_t i = position - cached_rows(problem, b);
        const auto seen =
            static_cast<std::size_t>(((b * shape[1] + g) * problem.q_len + i) * shape[3] + c);
        if (seen < appended.size()) output.actual[flat] = appended[seen];
        if (rotated) output.tolerance[flat] = -1;
      }
  };
  for_each_append(problem, plan_cache(problem), put);
  if (appended.empty()) output.actual.clear();  // the call did not come back
  return output;
}

bool same(double left, double right) {
  return left == right || (std::isnan(left) && std::isnan(right));
}

/// A requirement may owe more of an element than the oracle does: that a visible NaN comes out,
/// say. Where the finding is one of this call, it is held to what the finding says.
void apply_finding(const Failure& failure, const CallTensor& tensor, std::string_view reported,
                   CallOutput& output) {
  if (!failure.worst || failure.worst->tensor != reported ||
      failure.worst->index.size() != tensor.shape.size())
    return;
  std::int64_t flat = 0;
  for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis)
    flat = flat * tensor.shape[axis] + failure.worst->index[axis];
  const auto i = static_cast<std::size_t>(flat);
  if (i >= output.actual.size() || !same(output.actual[i], failure.worst->actual)) return;
  output.expected[i] = failure.worst->expected;
  output.tolerance[i] = failure.worst->tolerance;
}

}  // namespace

std::optional<FailureCall> call_of(const Failure& failure, const SubjectSpec& spec) {
  const Result<AttentionProblem> problem = parse_case(failure.case_line);
  if (!problem || memory_error(*problem)) return std::nullopt;
  if (problem->layout == Layout::far) return std::nullopt;  // its blocks are hundreds of gigabytes
  const std::unique_ptr<Subject> subject = open_subject(spec);
  FailureCall call;
  call.library = spec.path;
  call.kernel = subject->kernel_name();
  call.alignment = subject->alignment();
  call.lse_in_log2 = subject->declaration().lse_base == LseBase::two;
  call.refuse = failure.reason == Reason::wrong_accept;
  call.is_component = problem->operation == Operation::rope;
  Watched watched(*subject, problem->operation, call);
  CaseContext context(watched);
  context.limits = call_limits(*problem);
  const Observation& seen = context.first(*problem);
  if (call.tensors.empty()) return std::nullopt;
  if (call.refuse) return call;
  const bool backward = call.operation == "backward";
  const Expected& expected = context.expected(*problem);
  for (std::size_t n = 0; backward && n < kNumGradients; ++n) {
    const auto gradient = static_cast<Gradient>(n);
    const std::string slot = name(static_cast<Slot>(static_cast<std::size_t>(Slot::d_q) + n));
    for (const CallTensor& tensor : call.tensors) {
      if (tensor.name != slot) continue;
      call.outputs.push_back(output_of(expected, gradient, slot, seen.gradients[n].values));
      apply_finding(failure, tensor, name(output_of(gradient)), call.outputs.back());
    }
  }
  for (const CallTensor& tensor : call.tensors)
    if (!backward && (tensor.name == "o" || tensor.name == "lse" || tensor.name == "y")) {
      call.outputs.push_back(output_of(subject->declaration(), *problem, expected, tensor, seen));
      apply_finding(failure, tensor, tensor.name, call.outputs.back());
    }
  const AttentionInputs& inputs = context.inputs(*problem);
  for (const CallTensor& tensor : call.tensors)
    if (tensor.name == "k_cache" || tensor.name == "v_cache") {
      const bool keys = tensor.name == "k_cache";
      call.outputs.push_back(cache_after(call, tensor, *problem, keys ? inputs.k : inputs.v,
                                         keys ? seen.appended_k.values : seen.appended_v.values));
    }
  return call;
}

std::optional<std::string> check_pages_folder(const std::string& folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  if (!std::filesystem::exists(status)) return check_writable(folder);
  if (!std::filesystem::is_directory(status))
    return fmt::format("cannot write pages to {}: it is no folder", folder);
  return check_writable(folder + "/README.md");
}

namespace {

/// "cause-12.md" and "cause-12.c".
bool is_page(const std::string& file) {
  if (file.rfind("cause-", 0) != 0) return false;
  const std::size_t dot = file.find_first_not_of("0123456789", 6);
  return dot != 6 && dot != std::string::npos &&
         (file.substr(dot) == ".md" || file.substr(dot) == ".c");
}

}  // namespace

void write_pages(const std::string& folder, const Record& record, const SubjectSpec& spec) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw CommandError(fmt::format("cannot write {}: {}", folder, error.message()),
                       ExitCode::suite_failed);
  std::set<std::string> written;
  const auto add = [&](const std::string& file, const std::string& text) {
    write_output(folder + "/" + file, text);
    written.insert(file);
  };
  SubjectSpec assumed = spec;
  assumed.declaration = record.subject.declaration;
  for (const CauseView& view : causes_by_urgency(record)) {
    const std::optional<FailureCall> call = call_of(*view.smallest, assumed);
    const std::string stem = fmt::format("cause-{}", view.cause->id);
    std::string program;
    if (call && fits_program(*call))
      add(stem + ".c", program = failure_program(record, view, *call));
    add(stem + ".md", failure_page(record, view, call ? &*call : nullptr,
                                   program.empty() ? "" : stem + ".c", program));
  }
  add("README.md", pages_index(record));
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string file = entry.path().filename().string();
    if (is_page(file) && written.count(file) == 0) std::filesystem::remove(entry.path(), error);
  }
}

}  // namespace attest
