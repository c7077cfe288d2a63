// SPDX-License-Identifier: Apache-2.0
// The log-sum-exp, and the division by the sum.
#include "properties/hypotheses/common.hpp"

namespace attest {
namespace {

void change_lse(Variant& v, double (*lse)(const RowOutput&)) {
  v.finish = [lse](const RowAt&, RowOutput& out) {
    if (out.outcome == RowOutcome::ordinary || std::isfinite(out.lse)) out.lse = lse(out);
  };
}
constexpr double kLn2 = 0.69314718055994530942;
ATTEST_HYPOTHESIS(lse_base_2, {.id = "lse_base_2",
                               .sentence = "lse to base 2; declared natural",
                               .applies = always,
                               .change = [](Variant& v) {
                                 change_lse(v, [](const RowOutput& out) { return out.lse / kLn2; });
                               }});
ATTEST_HYPOTHESIS(lse_times_ln2,
                  {.id = "lse_times_ln2",
                   .sentence = "lse is multiplied by ln 2: natural, where base 2 was converted",
                   .explains = {"lse_base_e"},
                   .applies = always,
                   .change = [](Variant& v) {
                     change_lse(v, [](const RowOutput& out) { return out.lse * kLn2; });
                   }});
ATTEST_HYPOTHESIS(lse_without_max,
                  {.id = "lse_without_max",
                   .sentence = "lse misses the maximum: log of the sum alone",
                   .applies = always,
                   .change = [](Variant& v) {
                     change_lse(v, [](const RowOutput& out) {
                       return out.outcome == RowOutcome::ordinary ? std::log(out.sum) : out.lse;
                     });
                   }});
ATTEST_HYPOTHESIS(lse_is_max, {.id = "lse_is_max",
                               .sentence = "lse is the maximum alone, without log of the sum",
                               .applies = always,
                               .change = [](Variant& v) {
                                 change_lse(v, [](const RowOutput& out) {
                                   return out.outcome == RowOutcome::ordinary ? out.max : out.lse;
                                 });
                               }});
ATTEST_HYPOTHESIS(lse_log_twice, {.id = "lse_without_log",
                                  .sentence = "lse is the maximum plus the sum, without its log",
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    change_lse(v, [](const RowOutput& out) {
                                      return out.outcome == RowOutcome::ordinary ? out.max + out.sum
                                                                                 : out.lse;
                                    });
                                  }});
ATTEST_HYPOTHESIS(lse_negated, {.id = "lse_sign_flipped",
                                .sentence = "lse has the wrong sign",
                                .applies = always,
                                .change = [](Variant& v) {
                                  change_lse(v, [](const RowOutput& out) { return -out.lse; });
                                }});
ATTEST_HYPOTHESIS(lse_log2_mixed, {.id = "lse_log2_of_sum",
                                   .sentence = "lse mixes bases: the maximum plus log2 of the sum",
                                   .explains = {"lse_base_2"},
                                   .applies = always,
                                   .change = [](Variant& v) {
                                     change_lse(v, [](const RowOutput& out) {
                                       return out.outcome == RowOutcome::ordinary
                                                  ? out.max + std::log2(out.sum)
                                                  : out.lse;
                                     });
                                   }});
ATTEST_HYPOTHESIS(lse_not_written, {.id = "lse_unwritten",
                                    .sentence = "lse is not written",
                                    .applies = always,
                                    .change = [](Variant& v) {
                                      v.finish = [](const RowAt&, RowOutput& out) {
                                        out.lse_unwritten = true;
                                      };
                                    }});
void scale_o(Variant& v, double (*factor)(const RowOutput&)) {
  v.finish = [factor](const RowAt&, RowOutput& out) {
    if (out.outcome != RowOutcome::ordinary) return;
    for (double& x : out.o) x *= factor(out);
  };
}
ATTEST_HYPOTHESIS(o_not_divided, {.id = "o_not_divided",
                                  .sentence = "o is not divided by the sum of the weights",
                                  .explains = {"sum_not_divided"},
                                  .applies = always,
                                  .change = [](Variant& v) {
                                    scale_o(v, [](const RowOutput& out) { return out.sum; });
                                  }});
ATTEST_HYPOTHESIS(o_divided_twice, {.id = "o_divided_twice",
                                    .sentence = "o is divided by the sum of the weights twice",
                                    .applies = always,
                                    .change = [](Variant& v) {
                                      scale_o(v, [](const RowOutput& out) { return 1 / out.sum; });
                                    }});

}  // namespace
}  // namespace attest
