// SPDX-License-Identifier: Apache-2.0
// The third part of a probe: whether the plug-in offers backward and decode, and what these take.
#pragma once

#include <vector>

#include "properties/probe.hpp"

namespace attest {

/// Of a kernel whose forward is known: the gradients that it gives, and whether lse may have one.
/// Served is what is right in all calls that forward serves.
void probe_backward(const OpenDeclared& open, Declaration& declaration,
                    std::vector<ProbeFinding>& findings);

/// The caches that it takes: kinds, keys before or after RoPE, page sizes, splits.
void probe_decode(const OpenDeclared& open, Declaration& declaration,
                  std::vector<ProbeFinding>& findings);

/// Of a kernel that decodes and serves no forward: everything, by right and wrong alone. Other
/// encodings are not told apart. nullopt where it decodes nothing.
std::optional<Declaration> probe_decode_alone(const OpenDeclared& open,
                                              std::vector<ProbeFinding>& findings);

}  // namespace attest
