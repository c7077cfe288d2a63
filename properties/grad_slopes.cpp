// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_slopes,
    {
        .id = "GRAD-SLOPES",
        .sentence = "every element of dSlope lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::slopes>,
        .applies = &asks_for<Gradient::slopes>,
        .check = &check_gradient<Gradient::slopes>,
    });

}  // namespace
}  // namespace attest
