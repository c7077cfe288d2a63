// SPDX-License-Identifier: Apache-2.0
// Kernels that are known to follow one convention each, built from a plain one: the probe must name
// just that.
#include "properties/probe.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attest/names.hpp"
#include "harness/arena.hpp"
#include "harness/data.hpp"
#include "harness/layout.hpp"
#include "harness/unread.hpp"
#include "harness/variant_backward.hpp"

namespace attest {
namespace {

using Change = void (*)(Variant&);
/// Of a kernel that serves backward.
using BackwardChange = void (*)(BackwardVariant&);

/// Answers calls by reading the problem back from what observe() was asked: the test hands the
/// problem over beside the call. Writes what the variant predicts, in f32.
class ConventionSubject : public Subject {
 public:
  ConventionSubject(const std::string& declaration, Change change,
                    BackwardChange change_backward = nullptr)
      : declaration_(*parse_declaration(declaration)),
        change_(change),
        change_backward_(change_backward) {}
  const std::string& kernel_name() const override { return name_; }
  const std::string& version() const override { return version_; }
  const Declaration& declaration() const override { return declaration_; }
  int alignment() const override { return 0; }
  Arena& arena() override { return arena_; }
  CallStatus call(const PlacedCall& call, const CallLimits&) override;

 private:
  CallStatus backward(const PlacedCall& call, AttentionProblem told, AttentionInputs in,
                      const PrecisionProfile& profile);
  std::string name_ = "convention", version_ = "1";
  Declaration declaration_;
  Change change_;
  BackwardChange change_backward_;
  Arena arena_;
};

const PlacedTensor& tensor(const PlacedCall& call, Slot slot) {
  return call.tensors[static_cast<std::size_t>(slot)];
}

template <class T>
std::vector<T> read(const PlacedTensor& t, const std::byte* base) {
  std::vector<T> values;
  for (std::int64_t a = 0; a < t.shape[0]; ++a)
    for (std::int64_t b = 0; b < t.shape[1]; ++b)
      for (std::int64_t c = 0; c < t.shape[2]; ++c)
        for (std::int64_t d = 0; d < t.shape[3]; ++d) {
          T value;
          std::memcpy(
              &value,
              base + t.offset +
                  (a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3]) *
                      static_cast<std::int64_t>(sizeof(T)),
              sizeof value);
          values.push_back(value);
        }
  return values;
}

Dense<double> read_dense(const PlacedTensor& t, const std::byte* base) {
  if (!t.present) return {};
  Dense<double> dense({t.shape[0], t.shape[1], t.shape[2], t.shape[3]});
  const std::vector<float> values = read<float>(t, base);
  std::copy(values.begin(), values.end(), dense.values.begin());
  return dense;
}

void write(const PlacedTensor& t, std::byte* base, const std::vector<double>& values) {
  std::size_t n = 0;
  for (std::int64_t a = 0; a < t.shape[0]; ++a)
    for (std::int64_t b = 0; b < t.shape[1]; ++b)
      for (std::int64_t c = 0; c < t.shape[2]; ++c)
        for (std::int64_t d = 0; d < t.shape[3]; ++d) {
          const auto value = static_cast<float>(values[n++]);
          std::memcpy(
              base + t.offset +
                  (a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3]) *
                      static_cast<std::int64_t>(sizeof value),
              &value, sizeof value);
        }
}

/// Serves f32 with causal, alignments, left windows, masks, groups and a sink; refuses the rest.
CallStatus ConventionSubject::call(const PlacedCall& call, const CallLimits&) {
  CallStatus status;
  status.status = ATTEST_UNSUPPORTED;
  const PlacedScalars& s = call.scalars;
  const auto operation = static_cast<Operation>(s.operation);
  if (operation == Operation::decode || (operation == Operation::backward && !change_backward_)) {
    status.message = "the plug-in offers no " + std::string(enum_name(operation));
    return status;
  }
  const PlacedTensor &q = tensor(call, Slot::q), &k = tensor(call, Slot::k);
  for (const Slot slot : {Slot::blocks, Slot::keep, Slot::alibi_slopes, Slot::bias, Slot::seqlens_q,
                          Slot::seqlens_k, Slot::left_pad_q, Slot::left_pad_k, Slot::cu_seqlens_q,
                          Slot::q_offset, Slot::rope_cos, Slot::prefix_len})
    if (tensor(call, slot).present) return status;
  if (q.code != 2 || q.bits != 32 || s.softcap != 0 || s.window_right >= 0 || s.global_tokens != 0)
    return status;
  AttentionProblem p;
  p.dtype = DType::f32;
  p.batch = q.shape[0];
  p.num_heads = q.shape[1];
  p.num_kv_heads = k.shape[1];
  p.q_len = q.shape[2];
  p.kv_len = k.shape[2];
  p.head_dim = q.shape[3];
  p.v_head_dim = tensor(call, Slot::v).shape[3];
  if (p.v_head_dim != p.head_dim || p.head_dim % 8 != 0) return status;
  p.base = static_cast<Base>(s.base);
  p.align = static_cast<Align>(s.align);
  p.window_left = s.window_left;
  p.scale = s.scale;
  p.want_lse = tensor(call, Slot::lse).present;
  AttentionInputs in;
  std::byte* base = arena_.base();
  in.q = read_dense(q, base);
  in.k = read_dense(k, base);
  in.v = read_dense(tensor(call, Slot::v), base);
  const PlacedTensor& mask = tensor(call, Slot::mask);
  if (mask.present) {
    p.mask = MaskKind::random;
    in.mask = Dense<std::uint8_t>({mask.shape[0], mask.shape[1], mask.shape[2], mask.shape[3]});
    in.mask.values = read<std::uint8_t>(mask, base);
  }
  const PlacedTensor& sink = tensor(call, Slot::sink);
  if (sink.present) {
    p.sink = SinkKind::normal;
    in.sink = Dense<double>({1, p.num_heads, 1, 1});
    const std::vector<float> values = read<float>(sink, base);
    std::copy(values.begin(), values.end(), in.sink.values.begin());
  }
  const PrecisionProfile profile = *precision_preset("f32", DType::f32);
  const AttentionProblem told = p;
  Variant variant{told, p, in, profile};
  if (operation == Operation::backward) return backward(call, told, in, profile);
  if (change_) change_(variant);
  const Prediction out = predict(variant);
  write(tensor(call, Slot::o), base, out.o);
  if (p.want_lse) write(tensor(call, Slot::lse), base, out.lse);
  status.status = ATTEST_OK;
  return status;
}

CallStatus ConventionSubject::backward(const PlacedCall& call, AttentionProblem told,
                                       AttentionInputs in, const PrecisionProfile& profile) {
  std::byte* base = arena_.base();
  const Prediction forward = predict(Variant{told, told, in, profile});
  told.operation = Operation::backward;
  told.no_gradient = {!tensor(call, Slot::d_q).present,
                      !tensor(call, Slot::d_k).present,
                      !tensor(call, Slot::d_v).present,
                      true,
                      true,
                      !tensor(call, Slot::d_sink).present};
  in.d_o = read_dense(tensor(call, Slot::d_o), base);
  const PlacedTensor& d_lse = tensor(call, Slot::d_lse);
  CallStatus status;
  if (d_lse.present) {
    in.d_lse = Dense<double>({told.batch, told.num_heads, told.q_len, 1});
    const std::vector<float> values = read<float>(d_lse, base);
    std::copy(values.begin(), values.end(), in.d_lse.values.begin());
  }
  BackwardVariant variant{told, told, in, profile, forward};
  change_backward_(variant);
  GradientPrediction out = predict(variant);
  for (const auto& [slot, gradient] :
       {std::pair(Slot::d_q, Gradient::q), std::pair(Slot::d_k, Gradient::k),
        std::pair(Slot::d_v, Gradient::v), std::pair(Slot::d_sink, Gradient::sink)})
    if (tensor(call, slot).present) write(tensor(call, slot), base, out[gradient].value);
  return status;
}

ProbeReport probed(Change change, BackwardChange change_backward = nullptr) {
  const Result<ProbeReport> report =
      probe([change, change_backward](const std::string& declaration, OpenError&) {
        return std::make_unique<ConventionSubject>(declaration, change, change_backward);
      });
  EXPECT_TRUE(report) << (report ? "" : report.error());
  return report ? *report : ProbeReport{};
}

std::string answer(const ProbeReport& report, const std::string& topic) {
  for (const ProbeFinding& finding : report.findings)
    if (finding.topic == topic) return finding.answer;
  return "no such topic";
}

TEST(Probe, FindsWhatAPlainKernelServesAndNothingElse) {
  const ProbeReport report = probed(nullptr);
  const Declaration& d = report.declaration;
  EXPECT_EQ(d.dtypes, std::vector<DType>{DType::f32});
  EXPECT_EQ(d.head_dims, (DimSet{{8, 256, 8}}));
  EXPECT_FALSE(d.v_head_dims);
  for (const Feature feature :
       {Feature::causal, Feature::align_bottom_right, Feature::align_top_left, Feature::window_left,
        Feature::mask, Feature::gqa, Feature::sink, Feature::lse, Feature::scale})
    EXPECT_TRUE(d.has(feature)) << name(feature);
  for (const Feature feature : {Feature::softcap, Feature::bias, Feature::window_right,
                                Feature::seqlens_k, Feature::packed, Feature::rope_half})
    EXPECT_FALSE(d.has(feature)) << name(feature);
  EXPECT_EQ(d.lse_base, LseBase::e);
  EXPECT_EQ(d.mask_polarity, MaskPolarity::keep);
  EXPECT_EQ(d.window_bound, WindowBound::inclusive);
  EXPECT_EQ(d.empty_output, EmptyOutput::zero);
  EXPECT_TRUE(d.deterministic);
  // Ready to paste.
  EXPECT_TRUE(parse_declaration(print_declaration(d)));
}

TEST(Probe, LseBase2) {
  const ProbeReport report = probed([](Variant& v) {
    v.finish = [](const RowAt&, RowOutput& out) { out.lse *= 1.44269504088896340736; };
  });
  EXPECT_EQ(report.declaration.lse_base, LseBase::two);
  EXPECT_TRUE(report.declaration.has(Feature::causal));
}

TEST(Probe, MaskTrueMeansDrop) {
  const ProbeReport report = probed([](Variant& v) {
    for (auto& x : v.inputs.mask.values) x = x == 0;
  });
  EXPECT_TRUE(report.declaration.has(Feature::mask));
  EXPECT_EQ(report.declaration.mask_polarity, MaskPolarity::drop);
}

TEST(Probe, WindowBoundExclusive) {
  const ProbeReport report = probed([](Variant& v) {
    v.sees = [&v](const PairAt& at) {
      return at.seen &&
             (v.problem.window_left < 0 || at.row.qpos - at.kpos < v.problem.window_left);
    };
  });
  EXPECT_TRUE(report.declaration.has(Feature::window_left));
  EXPECT_EQ(report.declaration.window_bound, WindowBound::exclusive);
}

TEST(Probe, AlignmentIsTopLeftWhateverIsAsked) {
  const ProbeReport report = probed([](Variant& v) { v.problem.align = Align::top_left; });
  EXPECT_TRUE(report.declaration.has(Feature::align_top_left));
  EXPECT_FALSE(report.declaration.has(Feature::align_bottom_right));
  EXPECT_EQ(answer(report, "feature align_bottom_right"), "acts as: top_left");
}

TEST(Probe, HeadsModulo) {
  const ProbeReport report = probed(
      [](Variant& v) { v.kv_head = [&v](std::int64_t h) { return h % v.problem.num_kv_heads; }; });
  EXPECT_FALSE(report.declaration.has(Feature::gqa));
  EXPECT_EQ(answer(report, "feature gqa"), "acts as: h mod Hkv");
}

TEST(Probe, EmptyRowsAreNaNWithLsePlusInf) {
  const ProbeReport report = probed([](Variant& v) {
    v.finish = [](const RowAt&, RowOutput& out) {
      if (out.outcome != RowOutcome::empty || std::isfinite(out.lse)) return;
      std::fill(out.o.begin(), out.o.end(), std::numeric_limits<double>::quiet_NaN());
      out.lse = std::numeric_limits<double>::infinity();
    };
  });
  EXPECT_EQ(report.declaration.empty_lse, EmptyLse::pos_inf);
  EXPECT_EQ(answer(report, "empty row, lse"), "pos_inf");
}

TEST(Probe, SinkLeftOutOfLseIsSaid) {
  const ProbeReport report = probed([](Variant& v) {
    v.finish = [&v](const RowAt& at, RowOutput& out) {
      if (!v.inputs.sink.present || out.outcome != RowOutcome::ordinary) return;
      out.lse = out.max + std::log(out.sum - std::exp(v.inputs.sink.at(0, at.h, 0, 0) - out.max));
    };
  });
  EXPECT_FALSE(report.declaration.has(Feature::sink));
  EXPECT_EQ(answer(report, "feature sink"), "acts as: in o, not in lse");
}

TEST(Probe, GivenScaleIgnored) {
  const ProbeReport report = probed([](Variant& v) { v.problem.scale.reset(); });
  EXPECT_FALSE(report.declaration.has(Feature::scale));
  EXPECT_EQ(answer(report, "feature scale"), "acts as: ignored");
}

TEST(Probe, SaysThatBackwardAndDecodeAreNotOffered) {
  const ProbeReport report = probed(nullptr);
  EXPECT_EQ(answer(report, "backward"), "not offered");
  EXPECT_EQ(answer(report, "decode"), "not offered");
  EXPECT_EQ(report.declaration.backward, BackwardScope{});
  EXPECT_FALSE(report.declaration.cache.served());
}

TEST(Probe, FindsTheGradientsThatAreGiven) {
  const ProbeReport report = probed(nullptr, [](BackwardVariant&) {});
  EXPECT_EQ(answer(report, "backward"), "right");
  EXPECT_EQ(answer(report, "backward, dSink"), "right");
  EXPECT_EQ(answer(report, "backward, gradient of lse"), "right");
  EXPECT_EQ(answer(report, "backward, dBias"), "no such topic") << "bias is not served";
  const BackwardScope expected{.served = true, .sink = true, .lse = true};
  EXPECT_EQ(report.declaration.backward, expected);
  EXPECT_NE(print_declaration(report.declaration).find(" backward=sink,lse"), std::string::npos);
}

TEST(Probe, DeclaresNoGradientThatIsWrong) {
  const ProbeReport wrong = probed(nullptr, [](BackwardVariant& v) {
    v.delta = [](const BackwardRow&, double) { return 0.0; };
  });
  EXPECT_EQ(answer(wrong, "backward"), "accepted and wrong");
  EXPECT_FALSE(wrong.declaration.backward.served);
  const ProbeReport in_part = probed(
      nullptr, [](BackwardVariant& v) { v.d_lse = [](const RowAt&, double) { return 0.0; }; });
  EXPECT_EQ(answer(in_part, "backward, gradient of lse"), "accepted and wrong");
  const BackwardScope expected{.served = true, .sink = true};
  EXPECT_EQ(in_part.declaration.backward, expected);
}

TEST(Probe, RefusesAKernelThatComputesSomethingElse) {
  const Result<ProbeReport> report = probe([](const std::string& declaration, OpenError&) {
    return std::make_unique<ConventionSubject>(declaration, [](Variant& v) {
      v.finish = [](const RowAt&, RowOutput& out) {
        for (double& x : out.o) x = 2 * x + 1;
      };
    });
  });
  ASSERT_FALSE(report);
  EXPECT_NE(report.error().find("is wrong on plain attention"), std::string::npos);
}

}  // namespace
}  // namespace attest
