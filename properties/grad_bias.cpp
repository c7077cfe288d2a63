// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_bias,
    {
        .id = "GRAD-BIAS",
        .sentence = "every element of dBias lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::bias>,
        .applies = &asks_for<Gradient::bias>,
        .check = &check_gradient<Gradient::bias>,
    });

}  // namespace
}  // namespace attest
