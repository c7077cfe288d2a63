// SPDX-License-Identifier: Apache-2.0
// The stepwise kernel itself.
#include "impls/faulty/catalogue.hpp"

namespace attest::faulty {
namespace {

ATTEST_PLANT(Stepwise, {.id = "stepwise",
                        .kind = "honest",
                        .sentence = "the stepwise kernel as it stands",
                        .honest = true});

}  // namespace
}  // namespace attest::faulty
