// SPDX-License-Identifier: Apache-2.0
// Outputs that a known mistake would give, put in the place of a kernel's: its own hypothesis must
// be among the first guesses, and honest outputs must fit none.
#include "harness/diagnose.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>

#include "attest/case_line.hpp"
#include "harness/data.hpp"
#include "harness/generate.hpp"
#include "harness/unread.hpp"

namespace attest {
namespace {

const Declaration& all_features() {
  static const Declaration declaration = *parse_declaration(
      "dtype=f32 head_dim=1..64 v_head_dim=1..64 features=all layout=bhld deterministic");
  return declaration;
}

/// A sample whose outputs are what `mistake` predicts, rounded; honest ones without.
Sample sample_of(const AttentionProblem& problem, const Hypothesis* mistake) {
  Sample sample;
  sample.problem = problem;
  sample.inputs = make_inputs(problem);
  sample.profile = all_features().profile_for(problem.dtype);
  sample.expected = expect(problem, sample.inputs, sample.profile);
  tell(all_features(), sample.problem, sample.inputs);
  Variant variant{sample.problem, sample.problem, sample.inputs, sample.profile};
  const bool applies = mistake && (!mistake->applies || mistake->applies(sample.problem));
  if (applies) mistake->change(variant);
  const Prediction given = predict(variant);
  for (const double x : given.o)
    sample.seen.o.push_back(static_cast<double>(static_cast<float>(x)));
  for (const double x : given.lse)
    if (problem.want_lse) sample.seen.lse.push_back(static_cast<double>(static_cast<float>(x)));
  sample.seen.o_junk.assign(sample.seen.o.size(), 0);
  sample.seen.lse_junk.assign(sample.seen.lse.size(), 0);
  sample.wrong = count_wrong(sample);
  return sample;
}

/// Failing samples first, as a run has them, then passing ones.
std::vector<Sample> samples_of(const Hypothesis* mistake) {
  std::vector<Sample> failing, passing;
  for (std::uint64_t n = 0; n < 1500 && failing.size() < 20; ++n) {
    const AttentionProblem p = draw(all_features(), 3, "diagnose", n);
    if (p.batch * p.num_heads * p.q_len * p.kv_len * p.head_dim > 20'000) continue;
    Sample sample = sample_of(p, mistake);
    if (sample.wrong > 0)
      failing.push_back(std::move(sample));
    else if (passing.size() < 40)
      passing.push_back(std::move(sample));
  }
  for (Sample& sample : passing) failing.push_back(std::move(sample));
  return failing;
}

const Hypothesis& hypothesis(const std::string& id) {
  for (const Hypothesis& one : hypotheses())
    if (one.id == id) return one;
  throw std::logic_error("no hypothesis " + id);
}

class Mistake : public ::testing::TestWithParam<const char*> {};

TEST_P(Mistake, IsNamedFirst) {
  const Hypothesis& mistake = hypothesis(GetParam());
  const std::vector<Fit> fits = likely_mistakes(samples_of(&mistake));
  ASSERT_FALSE(fits.empty());
  EXPECT_EQ(fits[0].hypothesis->id, mistake.id);
  EXPECT_EQ(fits[0].fitting, fits[0].elements);
  EXPECT_NE(diagnosis_text(fits).find(mistake.sentence), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    OfEachGroup, Mistake,
    ::testing::Values("align_top_left", "causal_ignored", "causal_strict", "window_exclusive",
                      "prefix_plus_one", "seqlens_k_ignored", "segments_leak", "mask_ignored",
                      "mask_polarity_inverted", "mask_minus_1e4", "blocks_transposed",
                      "scale_missing", "user_scale_ignored", "softcap_ignored", "bias_before_scale",
                      "alibi_signed", "rope_rotates_v", "rope_sign_flipped", "sink_dropped",
                      "dropout_not_scaled", "gqa_modulo", "lse_base_2", "empty_row_nan",
                      "last_key_skipped"));

const Declaration& all_gradients() {
  static const Declaration declaration = *parse_declaration(
      "dtype=f32 head_dim=1..64 v_head_dim=1..64 features=all layout=bhld backward=all");
  return declaration;
}

/// The gradients of a backward call as a kernel with the mistake gives them; right without.
Sample gradients_of(const AttentionProblem& problem, const Hypothesis* mistake) {
  Sample sample;
  sample.problem = problem;
  sample.inputs = make_inputs(problem);
  sample.profile = all_gradients().profile_for(problem.dtype);
  sample.expected = expect(problem, sample.inputs, sample.profile);
  tell(all_gradients(), sample.problem, sample.inputs);
  sample.forward = predict(Variant{sample.problem, sample.problem, sample.inputs, sample.profile});
  BackwardVariant variant{sample.problem, sample.problem, sample.inputs, sample.profile,
                          sample.forward};
  const bool applies = mistake && (!mistake->applies || mistake->applies(sample.problem));
  if (applies) mistake->change_backward(variant);
  const GradientPrediction given = predict(variant);
  for (std::size_t n = 0; n < kNumGradients; ++n) {
    SeenTensor& seen = sample.seen.gradients[n];
    seen.junk = given.of[n].unwritten;
    for (const double x : given.of[n].value)
      seen.values.push_back(static_cast<double>(static_cast<float>(x)));
  }
  sample.wrong = count_wrong(sample);
  return sample;
}

/// Failing backward calls, then passing ones of both kinds, as a run has them.
std::vector<Sample> backward_samples_of(const Hypothesis* mistake) {
  std::vector<Sample> failing, passing;
  for (std::uint64_t n = 0; n < 1500 && failing.size() < 20; ++n) {
    const AttentionProblem p =
        to_backward(draw(all_gradients(), 3, "diagnose", n), all_gradients());
    if (p.batch * p.num_heads * p.q_len * p.kv_len * p.head_dim > 20'000) continue;
    Sample sample = gradients_of(p, mistake);
    if (sample.wrong > 0)
      failing.push_back(std::move(sample));
    else if (passing.size() < 40)
      passing.push_back(n % 4 ? std::move(sample) : sample_of(forward_of(p), nullptr));
  }
  for (Sample& sample : passing) failing.push_back(std::move(sample));
  return failing;
}

class BackwardMistake : public ::testing::TestWithParam<const char*> {};

TEST_P(BackwardMistake, IsNamedFirst) {
  const Hypothesis& mistake = hypothesis(GetParam());
  const std::vector<Fit> fits = likely_mistakes(backward_samples_of(&mistake));
  ASSERT_FALSE(fits.empty());
  EXPECT_EQ(fits[0].hypothesis->id, mistake.id);
  EXPECT_EQ(fits[0].fitting, fits[0].elements);
}

INSTANTIATE_TEST_SUITE_P(
    OfEachGroup, BackwardMistake,
    ::testing::Values("delta_dropped", "delta_of_kv_head", "d_lse_ignored", "d_sink_sign_flipped",
                      "d_sink_misses_delta", "empty_row_backward_nan", "dq_scale_missing",
                      "dk_scale_missing", "softcap_derivative_missing", "d_bias_scaled",
                      "dropout_mask_differs/next_row", "dv_from_undropped_p",
                      "causal_lost_in_backward", "window_plus_one_in_backward",
                      "window_exclusive_in_backward", "mask_ignored_in_backward",
                      "top_left_in_backward", "dk_turned_forward", "dq_turned_without_offset",
                      "d_slope_sign_flipped", "gqa_grad_not_summed/last", "gqa_grad_averaged",
                      "dbias_not_reduced/batch", "dbias_silently_zero",
                      "dv_of_unseen_keys_unwritten"));

TEST(BackwardDiagnosis, TakesTheDefinitionForRight) {
  std::int64_t judged = 0;
  for (const Sample& sample : backward_samples_of(nullptr)) {
    EXPECT_EQ(sample.wrong, 0) << print_case(sample.problem);
    judged += sample.problem.operation == Operation::backward;
  }
  EXPECT_GE(judged, 25);
  EXPECT_TRUE(likely_mistakes(backward_samples_of(nullptr)).empty());
}

TEST(BackwardDiagnosis, SaysNothingOfAMistakeThatItDoesNotKnow) {
  Hypothesis strange;
  strange.id = "strange";
  strange.change_backward = [](BackwardVariant& v) {
    v.pair = [](BackwardPair& pair) { pair.to_q *= 1 + 0.1 * static_cast<double>(pair.j + 1); };
  };
  EXPECT_TRUE(likely_mistakes(backward_samples_of(&strange)).empty());
}

TEST(BackwardDiagnosis, AWrongForwardIsNoMistakeOfBackward) {
  const Hypothesis& mistake = hypothesis("delta_dropped");
  std::vector<Sample> samples = backward_samples_of(&mistake);
  ASSERT_EQ(likely_mistakes(samples)[0].hypothesis->id, "delta_dropped");
  for (Sample& sample : samples_of(&hypothesis("scale_missing")))
    if (sample.wrong > 0) samples.push_back(std::move(sample));
  EXPECT_TRUE(likely_mistakes(samples).empty());
}

TEST(Diagnosis, SaysNothingOfHonestOutputs) {
  EXPECT_TRUE(likely_mistakes(samples_of(nullptr)).empty());
  EXPECT_EQ(diagnosis_text({}), "");
}

TEST(Diagnosis, SaysNothingOfAMistakeThatItDoesNotKnow) {
  Hypothesis strange;
  strange.id = "strange";
  strange.change = [](Variant& v) {
    v.finish = [](const RowAt& at, RowOutput& out) {
      for (double& x : out.o) x += 0.01 * static_cast<double>(at.i + 1);
    };
  };
  EXPECT_TRUE(likely_mistakes(samples_of(&strange)).empty());
}

TEST(Diagnosis, IsContradictedByCasesThatPass) {
  // Wrong where causal, on one sample; right on the others, which rules the hypothesis out.
  const Hypothesis& mistake = hypothesis("causal_ignored");
  std::vector<Sample> samples = samples_of(&mistake);
  const std::size_t failing = static_cast<std::size_t>(
      std::count_if(samples.begin(), samples.end(), [](const Sample& s) { return s.wrong > 0; }));
  ASSERT_GT(failing, 4u);
  for (std::size_t n = 1; n < failing; ++n) samples[n] = sample_of(samples[n].problem, nullptr);
  EXPECT_TRUE(likely_mistakes(samples).empty());
}

TEST(Diagnosis, SaysWhatFitsInPartWhereNothingFitsBetter) {
  // A mistake that meets a feature in a way of its own in one case of eight.
  const Hypothesis& mistake = hypothesis("causal_ignored");
  std::vector<Sample> samples = samples_of(&mistake);
  for (std::size_t n = 3; n < samples.size(); n += 8)
    samples[n] = sample_of(samples[n].problem, nullptr);
  const std::vector<Fit> fits = likely_mistakes(samples);
  ASSERT_FALSE(fits.empty());
  EXPECT_EQ(fits[0].hypothesis->id, mistake.id);
  EXPECT_LT(fits[0].share(), 0.95);
}

TEST(Hypotheses, NoneNeedsTheAddressesBetweenFarRows) {
  AttentionProblem p = *parse_case(
      "attention.forward b=2 hq=4 hkv=2 lq=3 lk=3 d=4 base=causal mask=random layout=far seed=1");
  const Sample sample = sample_of(p, nullptr);
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;  // KiB
  };
  const long before = peak();
  for (const Hypothesis& one : hypotheses()) {
    Fit fit;
    fit.hypothesis = &one;
    compare(one, sample, fit);
  }
  EXPECT_LT(peak() - before, 256 * 1024);
}

TEST(Hypotheses, HaveUniqueIdsAndSentences) {
  std::set<std::string> ids;
  for (const Hypothesis& one : hypotheses()) {
    EXPECT_TRUE(ids.insert(one.id).second) << one.id;
    EXPECT_FALSE(one.sentence.empty()) << one.id;
    EXPECT_NE(one.change != nullptr, one.change_backward != nullptr) << one.id;
  }
}

}  // namespace
}  // namespace attest
