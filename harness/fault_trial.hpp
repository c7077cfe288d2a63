// SPDX-License-Identifier: Apache-2.0
// One kernel of a selftest.
#pragma once

#include <optional>
#include <string>

#include "harness/selftest.hpp"

namespace attest {

/// Follows the list of the suite until every requirement has caught the fault, or enough problems
/// lie behind the first catch. Then the smallest case (where asked for), and whether the honest
/// base can be told apart. nullopt: interrupted, or `error` says what went wrong.
std::optional<Detection> test_fault(const SelftestOptions& options, const CatalogueEntry& entry,
                                    DType dtype, bool minimise, RunError& error);

/// A run of the suite: any failure that stays accuses. `kernel` has id, kind, sentence and dtype.
std::optional<Detection> test_honest(const SelftestOptions& options, Detection kernel,
                                     const SubjectSpec& spec, const std::string& subject_text,
                                     RunError& error);

/// A kernel of the library, by its name (kernel_of(), or the id of an entry that is whole).
SubjectSpec spec_of(const Catalogue& catalogue, const std::string& kernel);
/// What there is to say of an entry before its trial; `dtype` "all": of the kernel of all its
/// types.
Detection described(const CatalogueEntry& entry, std::string dtype);

}  // namespace attest
