// SPDX-License-Identifier: Apache-2.0
// From the tensors of a call back to a problem with its values, and to the judge.
#include "attest/grade.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "attest/case_line.hpp"
#include "attest/declaration.hpp"
#include "attest/grade.h"
#include "attest/inputs.hpp"
#include "harness/diagnose.hpp"
#include "harness/judge.hpp"
#include "reference/expected.hpp"
#include "tools/tensor_elements.hpp"

namespace attest {
namespace {

/// What is wrong with the call, in one line.
struct BadCall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The shape as four axes, missing leading ones being 1; refuses what is none.
std::array<std::int64_t, 4> four_axes(const char* name, const DLTensor& tensor) {
  if (tensor.ndim < 1 || tensor.ndim > 4 || !tensor.shape || !tensor.strides || tensor.byte_offset)
    throw BadCall(std::string(name) + ": wants 1 to 4 axes, strides, and byte_offset 0");
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  for (int axis = 0; axis < tensor.ndim; ++axis) {
    shape[static_cast<std::size_t>(4 - tensor.ndim + axis)] = tensor.shape[axis];
    if (tensor.shape[axis] < 0) throw BadCall(std::string(name) + ": negative extent");
  }
  return shape;
}

DType floating(const char* name, const DLTensor& tensor) {
  const std::optional<DType> type = dtype_of(tensor.dtype);
  if (!type) throw BadCall(std::string(name) + ": wants f64, f32, f16 or bf16");
  return *type;
}

Dense<double> read_floating(const char* name, const DLTensor* tensor) {
  if (!tensor) return {};
  const DType type = floating(name, *tensor);
  Dense<double> dense(four_axes(name, *tensor));
  for_each_element(*tensor, [&](std::size_t flat, const std::byte* address) {
    dense.values[flat] = load(address, type);
  });
  return dense;
}

Dense<std::uint8_t> read_bytes(const char* name, const DLTensor* tensor) {
  if (!tensor) return {};
  if (tensor->dtype.code != kDLUInt || tensor->dtype.bits != 8)
    throw BadCall(std::string(name) + ": wants uint8");
  Dense<std::uint8_t> dense(four_axes(name, *tensor));
  for_each_element(*tensor, [&](std::size_t flat, const std::byte* address) {
    dense.values[flat] = std::to_integer<std::uint8_t>(*address) != 0;
  });
  return dense;
}

std::vector<std::int64_t> read_integers(const char* name, const DLTensor* tensor) {
  std::vector<std::int64_t> values;
  if (!tensor) return values;
  if (tensor->dtype.code != kDLInt || tensor->dtype.bits != 32)
    throw BadCall(std::string(name) + ": wants int32");
  four_axes(name, *tensor);
  for_each_element(*tensor, [&](std::size_t, const std::byte* address) {
    std::int32_t value;
    std::memcpy(&value, address, sizeof value);
    values.push_back(value);
  });
  return values;
}

Axes axes_of(const std::array<std::int64_t, 4>& shape) {
  return {shape[0] != 1, shape[1] != 1, shape[2] != 1, shape[3] != 1};
}

void want_shape(const char* name, const DLTensor* tensor,
                std::initializer_list<std::int64_t> shape) {
  if (!tensor) return;
  if (tensor->ndim != static_cast<int>(shape.size()) ||
      !std::equal(shape.begin(), shape.end(), tensor->shape))
    throw BadCall(std::string(name) + ": shape differs from what q, k and v say");
}

/// An axis of a broadcast tensor has the full extent or 1.
template <class T>
void want_broadcast(const char* name, const Dense<T>& tensor, std::array<std::int64_t, 4> full) {
  if (!tensor.present) return;
  for (std::size_t axis = 0; axis < 4; ++axis)
    if (tensor.shape[axis] != 1 && tensor.shape[axis] != full[axis])
      throw BadCall(std::string(name) + ": cannot be broadcast to the score's shape");
}

AttentionProblem problem_of(const attest_attention& call) {
  if (call.struct_size < sizeof(attest_attention))
    throw BadCall("struct_size: smaller than attest_attention");
  if (!call.q || !call.k || !call.v || !call.o) throw BadCall("q, k, v and o are all needed");
  for (const DLTensor* tensor : {call.q, call.k, call.v})
    if (tensor->ndim != 4) throw BadCall("q, k and v want 4 axes");
  AttentionProblem problem;
  problem.dtype = floating("q", *call.q);
  problem.batch = call.q->shape[0];
  problem.num_heads = call.q->shape[1];
  problem.q_len = call.q->shape[2];
  problem.head_dim = call.q->shape[3];
  problem.num_kv_heads = call.k->shape[1];
  problem.kv_len = call.k->shape[2];
  problem.v_head_dim = call.v->shape[3];
  want_shape("k", call.k, {problem.batch, problem.num_kv_heads, problem.kv_len, problem.head_dim});
  want_shape("v", call.v,
             {problem.batch, problem.num_kv_heads, problem.kv_len, problem.v_head_dim});
  want_shape("o", call.o, {problem.batch, problem.num_heads, problem.q_len, problem.v_head_dim});
  want_shape("lse", call.lse, {problem.batch, problem.num_heads, problem.q_len});

  problem.scale = call.scale;
  problem.softcap = call.softcap;
  problem.dropout_p = call.dropout_p;
  if (call.base < 0 || call.base > ATTEST_BASE_PREFIX) throw BadCall("base: unknown value");
  if (call.align < 0 || call.align > ATTEST_ALIGN_Q_OFFSET) throw BadCall("align: unknown value");
  if (call.alibi < 0 || call.alibi > ATTEST_ALIBI_KEY_ANCHORED)
    throw BadCall("alibi: unknown value");
  if (call.rope < 0 || call.rope > ATTEST_ROPE_HALF) throw BadCall("rope: unknown value");
  problem.base = static_cast<Base>(call.base);
  problem.align = static_cast<Align>(call.align);
  problem.alibi = static_cast<AlibiKind>(call.alibi);
  problem.alibi_inside_softcap = call.alibi_inside_softcap != 0;
  problem.rope = static_cast<RopePairing>(call.rope);
  if (problem.rope != RopePairing::none) {
    problem.rope_dim = call.rope_dim;
    problem.rope_base = call.rope_base;
    problem.rope_scale = call.rope_scale;
    problem.rope_ntk = call.rope_ntk;
  }
  problem.window_left = call.window_left;
  problem.window_right = call.window_right;
  problem.global_tokens = call.global_tokens;
  problem.q_offset = read_integers("q_offset", call.q_offset);
  problem.prefix_len = read_integers("prefix_len", call.prefix_len);
  problem.seqlens_q = read_integers("seqlens_q", call.seqlens_q);
  problem.seqlens_k = read_integers("seqlens_k", call.seqlens_k);
  problem.left_pad_q = read_integers("left_pad_q", call.left_pad_q);
  problem.left_pad_k = read_integers("left_pad_k", call.left_pad_k);
  problem.cu_seqlens_q = read_integers("cu_seqlens_q", call.cu_seqlens_q);
  problem.cu_seqlens_k = read_integers("cu_seqlens_k", call.cu_seqlens_k);
  problem.want_lse = call.lse != nullptr;
  if (call.blocks) {
    problem.blocks = true;
    problem.block_q = call.block_q;
    problem.block_k = call.block_k;
  }
  if (const auto error = problem_error(problem)) throw BadCall(*error);
  return problem;
}

AttentionInputs inputs_of(const attest_attention& call, AttentionProblem& problem) {
  AttentionInputs inputs;
  inputs.q = read_floating("q", call.q);
  inputs.k = read_floating("k", call.k);
  inputs.v = read_floating("v", call.v);
  inputs.bias = read_floating("bias", call.bias);
  inputs.mask = read_bytes("mask", call.mask);
  inputs.blocks = read_bytes("blocks", call.blocks);
  inputs.keep = read_bytes("keep", call.keep);
  if (problem.dropout_p > 0 && !inputs.keep.present)
    throw BadCall("dropout_p: needs the keep mask that the kernel used");
  const std::array<std::int64_t, 4> scores = {problem.batch, problem.num_heads, problem.q_len,
                                              problem.kv_len};
  want_broadcast("bias", inputs.bias, scores);
  want_broadcast("mask", inputs.mask, scores);
  if (inputs.keep.present && inputs.keep.shape != scores)
    throw BadCall("keep: wants the full shape [B, Hq, Lq, Lk]");
  if (inputs.blocks.present) {
    const auto blocks = [](std::int64_t extent, std::int64_t size) {
      return (extent + size - 1) / size;
    };
    want_broadcast("blocks", inputs.blocks,
                   {problem.batch, problem.num_heads, blocks(problem.q_len, problem.block_q),
                    blocks(problem.kv_len, problem.block_k)});
  }
  if (inputs.bias.present) {
    problem.bias = BiasKind::list;
    problem.bias_axes = axes_of(inputs.bias.shape);
  }
  if (inputs.mask.present) {
    problem.mask = MaskKind::list;
    problem.mask_axes = axes_of(inputs.mask.shape);
  }
  if (problem.alibi != AlibiKind::none) {
    if (!call.alibi_slopes) throw BadCall("alibi: needs alibi_slopes");
    const Dense<double> slopes = read_floating("alibi_slopes", call.alibi_slopes);
    // [Hq] or [B, Hq], read as four axes: the heads are last.
    if (slopes.shape[3] != problem.num_heads ||
        (slopes.shape[2] != 1 && slopes.shape[2] != problem.batch))
      throw BadCall("alibi_slopes: wants [Hq] or [B, Hq]");
    inputs.slopes = Dense<double>({slopes.shape[2], problem.num_heads, 1, 1});
    inputs.slopes.values = slopes.values;
    problem.slopes = SlopesKind::list;
  }
  if (call.sink) {
    const Dense<double> sink = read_floating("sink", call.sink);
    if (static_cast<std::int64_t>(sink.values.size()) != problem.num_heads)
      throw BadCall("sink: wants [Hq]");
    inputs.sink = Dense<double>({1, problem.num_heads, 1, 1});
    inputs.sink.values = sink.values;
    problem.sink = SinkKind::list;
  }
  return inputs;
}

void judge_into(Grade& grade, const AttentionProblem& problem, const Expected& expected,
                Output output, const DLTensor* tensor) {
  if (!tensor) return;
  const char* name = output == Output::o ? "o" : "lse";
  const Dense<double> actual = read_floating(name, tensor);
  const CaseResult result = judge_values(problem, expected, output, actual.values, false);
  grade.worst_ratio = std::max(grade.worst_ratio, result.worst_ratio);
  // The first failure keeps the message; a plain pass never hides a warning.
  const auto weight = [](Verdict verdict) {
    return is_failure(verdict)        ? 3
           : verdict == Verdict::warn ? 2
           : verdict == Verdict::pass ? 1
                                      : 0;
  };
  if (grade.verdict != Verdict::not_judged && weight(result.verdict) <= weight(grade.verdict))
    return;
  grade.verdict = result.verdict;
  grade.reason = result.reason;
  grade.message = result.detail;
  if (is_failure(result.verdict) && result.worst)
    grade.message += ", tolerance " + print_number(result.worst->tolerance);
}

/// What known mistake the outputs look like, from this call alone.
void add_diagnosis(Grade& grade, const attest_attention& call, const AttentionProblem& problem,
                   const AttentionInputs& inputs, const PrecisionProfile& profile,
                   const Expected& expected) {
  Sample sample{problem, inputs, profile, expected, {}, 0, {}};
  sample.seen.o = read_floating("o", call.o).values;
  sample.seen.lse = read_floating("lse", call.lse).values;
  sample.seen.o_junk.assign(sample.seen.o.size(), 0);
  sample.seen.lse_junk.assign(sample.seen.lse.size(), 0);
  sample.wrong = count_wrong(sample);
  grade.message += fmt::format("; {} of {} elements wrong", sample.wrong,
                               sample.seen.o.size() + sample.seen.lse.size());
  if (problem.rope != RopePairing::none) return;  // its tables are not part of the call
  const std::string looks = diagnosis_text(likely_mistakes({sample}));
  if (!looks.empty()) grade.message += "; looks like: " + looks;
}

}  // namespace

Grade grade(const attest_attention& call, const std::string& precision) {
  Grade grade;
  try {
    AttentionProblem problem = problem_of(call);
    const std::optional<PrecisionProfile> profile = precision_preset(precision, problem.dtype);
    if (!profile) throw BadCall("precision: unknown preset '" + precision + "'");
    const AttentionInputs inputs = inputs_of(call, problem);
    const Expected expected = expect(problem, inputs, *profile);
    grade.verdict = Verdict::not_judged;
    judge_into(grade, problem, expected, Output::o, call.o);
    judge_into(grade, problem, expected, Output::lse, call.lse);
    if (is_failure(grade.verdict)) add_diagnosis(grade, call, problem, inputs, *profile, expected);
    if (grade.verdict == Verdict::pass)
      grade.message = "worst err/tolerance " + print_number(grade.worst_ratio);
  } catch (const BadCall& bad) {
    grade.verdict = Verdict::error;
    grade.message = bad.what();
  }
  return grade;
}

}  // namespace attest

extern "C" int32_t attest_grade(const attest_attention* call, const char* precision, char* message,
                                uint64_t message_capacity) {
  const attest::Grade grade = attest::grade(*call, precision ? precision : "f32");
  if (message && message_capacity > 0) {
    const std::size_t length =
        std::min<std::size_t>(grade.message.size(), static_cast<std::size_t>(message_capacity - 1));
    std::memcpy(message, grade.message.data(), length);
    message[length] = 0;
  }
  if (grade.passed()) return ATTEST_GRADE_PASS;
  if (grade.verdict == attest::Verdict::not_judged) return ATTEST_GRADE_NOT_JUDGED;
  return grade.verdict == attest::Verdict::error ? ATTEST_GRADE_INVALID : ATTEST_GRADE_FAIL;
}
