// SPDX-License-Identifier: Apache-2.0
// How fast a program is. Plain Python takes a thousand times what C takes: what is drawn for a
// kernel of C would keep it busy for hours.
#pragma once

#include "harness/subject.hpp"

namespace attest {

/// The size of a problem: triples of query, key and channel, of all heads together.
double triples_of(const AttentionProblem& problem);

/// How many triples it does in `seconds`, by the faster of two forward calls on 48 queries and
/// keys; infinite where it serves no such call.
double triples_within(Subject& subject, double seconds);

}  // namespace attest
