// SPDX-License-Identifier: Apache-2.0
// Random problems. draw() is addressed: the same (seed, stream, index) gives the same problem
// whatever else runs.
#pragma once

#include <cstdint>
#include <string_view>

#include "attest/declaration.hpp"
#include "attest/problem.hpp"

namespace attest {

/// A legal problem that the declaration covers, with one of its dtypes. Small cases are the mass
/// (median 50 (query, key) pairs over all heads, 500 (query, key, channel) triples), 5 % are large
/// (up to 129 x 129, 4.5 M triples), 1 % long (up to 4096 keys, few queries); the mean is 30,000
/// triples. Built on RapidCheck's Random.
AttentionProblem draw(const Declaration& declaration, std::uint64_t seed, std::string_view stream,
                      std::uint64_t index);

/// Takes away what the declaration does not cover, one feature at a time, and mends what then
/// contradicts itself; the conventions of empty rows become those declared. Total: also for hostile
/// field values. The result satisfies problem_error() == nullopt and not_declared() == nullopt. A
/// problem that does so already comes back unchanged, but for those conventions.
AttentionProblem make_legal(AttentionProblem problem, const Declaration& declaration);

/// The backward call of a problem, where the kernel has one: which gradients are asked for, whether
/// lse has one, and the values of dO follow from the problem's seed.
AttentionProblem to_backward(AttentionProblem problem, const Declaration& declaration);

/// A decode call of the same kind, where the kernel has one: new rows, lengths, cache, pages and
/// splits follow from the problem's seed.
AttentionProblem to_decode(AttentionProblem problem, const Declaration& declaration);

/// The rotary embedding of rows of these sizes, where the kernel has it as a component: how they
/// are turned, and to which positions, follows from the problem's seed.
AttentionProblem to_rope(AttentionProblem problem, const Declaration& declaration);

/// (query, key, channel) triples over all heads: what a call costs.
std::int64_t triples(const AttentionProblem& problem);

/// Plain full attention of the same dtype and sizes, none of them 0.
AttentionProblem sizes_alone(const AttentionProblem& problem);

}  // namespace attest
