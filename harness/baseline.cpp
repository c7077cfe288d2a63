// SPDX-License-Identifier: Apache-2.0
#include "harness/baseline.hpp"

#include <algorithm>

namespace attest {

namespace {

const Cause* cause_of(const Record& record, const Failure& failure) {
  const auto index = static_cast<std::size_t>(failure.cause);
  return index >= 1 && index <= record.causes.size() ? &record.causes[index - 1] : nullptr;
}

bool alike(const Record& left, const Failure& a, const Record& right, const Failure& b) {
  if (a.verdict != b.verdict || a.reason != b.reason) return false;
  if (a.case_line == b.case_line) return true;
  if (a.requirement != b.requirement) return false;
  const Cause *cause_a = cause_of(left, a), *cause_b = cause_of(right, b);
  if (!cause_a || !cause_b) return false;
  return cause_a->sentence == cause_b->sentence ||
         (!cause_a->features.empty() && cause_a->features == cause_b->features);
}

/// A failure of this cause stands in the other record.
bool stands_in(const Record& record, const Cause& cause, const Record& other) {
  return std::any_of(record.failures.begin(), record.failures.end(), [&](const Failure& failure) {
    return failure.cause == cause.id &&
           std::any_of(other.failures.begin(), other.failures.end(),
                       [&](const Failure& one) { return alike(record, failure, other, one); });
  });
}

}  // namespace

void hold_against(const Record& baseline, const std::string& path, bool comparable,
                  Record& record) {
  BaselineResult result;
  result.path = path;
  for (Cause& cause : record.causes) {
    if (!is_failure(cause.verdict)) continue;
    cause.known = stands_in(record, cause, baseline);
    ++(cause.known ? result.known : result.fresh);
  }
  for (const Cause& cause : baseline.causes)
    if (comparable && is_failure(cause.verdict) && !stands_in(baseline, cause, record))
      result.gone.push_back(cause.sentence);
  record.baseline = std::move(result);
}

bool is_known(const Record& record, const Failure& failure) {
  if (failure.expected) return true;
  const Cause* cause = cause_of(record, failure);
  return cause && cause->known;
}

}  // namespace attest
