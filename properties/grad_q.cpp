// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_q,
    {
        .id = "GRAD-Q",
        .sentence = "every element of dQ lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::q>,
        .applies = &asks_for<Gradient::q>,
        .check = &check_gradient<Gradient::q>,
    });

}  // namespace
}  // namespace attest
