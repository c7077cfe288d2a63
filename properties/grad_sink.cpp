// SPDX-License-Identifier: Apache-2.0
#include "properties/gradients.hpp"

namespace attest {
namespace {

ATTEST_REQUIREMENT(
    gradient_sink,
    {
        .id = "GRAD-SINK",
        .sentence = "every element of dSink lies within its derived tolerance of the exact value",
        .operation = Operation::backward,
        .skip = &skip_gradient<Gradient::sink>,
        .applies = &asks_for<Gradient::sink>,
        .check = &check_gradient<Gradient::sink>,
    });

}  // namespace
}  // namespace attest
