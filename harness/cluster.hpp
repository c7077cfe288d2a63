// SPDX-License-Identifier: Apache-2.0
// From findings to causes: findings that look like one mistake are shown as one, in plain words.
#pragma once

#include <string>
#include <vector>

#include "attest/record.hpp"
#include "harness/findings.hpp"

namespace attest {

/// Findings are of one cause where one took over the minimal case of the other, or where verdict,
/// reason and what happened are the same, and they need the same features or one explains the
/// other's minimal case. Sets
/// Failure::cause and fills Record::causes; failures[i] belongs to findings[i].
void cluster(const WorkList& work, const std::vector<UnitResult>& results,
             const std::vector<Finding>& findings, Record& record);

/// Causes that the diagnosis explains by the same mistakes become one, under the first of them.
void merge_causes_of_one_diagnosis(Record& record);

/// What a kernel did, without where: "reads past the end of k", "wrong o". From the finding's
/// verdict, reason and detail.
std::string what_happened(const Finding& finding);

/// A feature as a condition: "base=causal", "softcap", "dv != d".
std::string condition(Feature feature);

}  // namespace attest
