// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_v,
    {
        .id = "GRAD-V",
        .sentence = "every element of dV lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::v>,
        .applies = &asks_for<Gradient::v>,
        .check = &check_gradient<Gradient::v>,
    });

}  // namespace
}  // namespace attest
