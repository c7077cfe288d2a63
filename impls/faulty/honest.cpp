// SPDX-License-Identifier: Apache-2.0
// The stepwise kernel itself, and those of honest.hpp.
#include "impls/faulty/honest.hpp"

namespace attest::faulty {
namespace {

ATTEST_PLANT(Stepwise, {.id = "stepwise",
                        .kind = "honest",
                        .sentence = "the stepwise kernel as it stands",
                        .honest = true});
ATTEST_PLANT(Split4, {.id = "split_4",
                      .kind = "honest",
                      .sentence = "keys in four parts, merged through their lse",
                      .base = "split_4",
                      .honest = true});
ATTEST_PLANT(Block8, {.id = "block_8",
                      .kind = "honest",
                      .sentence = "blocks of 8 keys",
                      .base = "block_8",
                      .honest = true});

}  // namespace
}  // namespace attest::faulty
