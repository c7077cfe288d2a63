// SPDX-License-Identifier: Apache-2.0
#include "harness/decode_loop.hpp"

#include <algorithm>

#include "harness/data.hpp"
#include "harness/requirement.hpp"
#include "harness/standing_caches.hpp"
#include "reference/expected.hpp"

namespace attest {

namespace {

/// Rows [first, last) of every head.
Dense<double> rows_between(const Dense<double>& all, std::int64_t first, std::int64_t last) {
  Dense<double> rows({all.shape[0], all.shape[1], last - first, all.shape[3]});
  for (std::int64_t b = 0; b < rows.shape[0]; ++b)
    for (std::int64_t h = 0; h < rows.shape[1]; ++h)
      for (std::int64_t i = first; i < last; ++i)
        for (std::int64_t c = 0; c < rows.shape[3]; ++c)
          rows.at(b, h, i - first, c) = all.at(b, h, i, c);
  return rows;
}

/// The call that ends with row `last`, as the oracle is asked: on sequences that end there.
AttentionProblem call_ending_at(const AttentionProblem& shape, std::int64_t last) {
  AttentionProblem p = shape;
  p.cache_rows = cache_capacity(shape);
  p.kv_len = last;
  return p;
}

/// Other queries at every call, drawn without the keys.
Dense<double> queries(const AttentionProblem& shape, std::int64_t last) {
  AttentionProblem p = call_ending_at(shape, shape.q_len);
  p.seed += static_cast<std::uint64_t>(last);
  return make_inputs(p).q;
}

CaseResult judge_rows(const AttentionProblem& problem, const AttentionInputs& inputs,
                      const Declaration& declaration, const std::vector<double>& o) {
  const Expected expected = expect(problem, inputs, declaration.profile_for(problem.dtype));
  CaseResult result = judge_values(problem, expected, Output::o, o, is_generic(problem));
  if (is_failure(result.verdict))
    result.detail = "after " + std::to_string(problem.kv_len) + " rows: " + result.detail;
  return result;
}

}  // namespace

DecodeLoopResult run_decode_loop(Subject& subject, const DecodeLoop& loop) {
  const AttentionProblem& shape = loop.shape;
  DecodeLoopResult result;
  result.judgement.verdict = Verdict::not_judged;
  result.bytes_expected = shape.batch * std::min(cache_capacity(shape), shape.kv_len) *
                          shape.num_kv_heads * (shape.head_dim + shape.v_head_dim) *
                          static_cast<std::int64_t>(size_of(shape.dtype));
  StandingCaches caches(subject, shape, loop.num_threads);
  if (const auto why = caches.lay_out()) {
    result.judgement.verdict = Verdict::error;
    result.judgement.detail = *why;
    return result;
  }
  const AttentionInputs all = make_inputs(shape);
  for (std::int64_t first = 0; first < shape.kv_len; first += shape.q_len) {
    const std::int64_t last = first + shape.q_len;
    const AttentionProblem problem = call_ending_at(shape, last);
    AttentionInputs inputs;
    inputs.q = queries(shape, last);
    Observation seen;
    seen.call = caches.call(inputs.q, rows_between(all.k, first, last),
                            rows_between(all.v, first, last), first, loop.limits);
    ++result.calls;
    if (auto failed = judge_call(seen, subject.declaration(), problem)) {
      result.judgement = *failed;
      return result;
    }
    if (loop.judge_every < 1 || (result.calls % loop.judge_every != 0 && last != shape.kv_len))
      continue;
    inputs.k = rows_between(all.k, 0, last);
    inputs.v = rows_between(all.v, 0, last);
    result.judgement = judge_rows(problem, inputs, subject.declaration(), caches.o());
    ++result.judged;
    if (is_failure(result.judgement.verdict)) return result;
  }
  result.bytes_written = caches.bytes_written();
  return result;
}

}  // namespace attest
