// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_k,
    {
        .id = "GRAD-K",
        .sentence = "every element of dK lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::k>,
        .applies = &asks_for<Gradient::k>,
        .check = &check_gradient<Gradient::k>,
    });

}  // namespace
}  // namespace attest
