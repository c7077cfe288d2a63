// SPDX-License-Identifier: Apache-2.0
#include "harness/unread.hpp"

#include <limits>

#include "harness/encode.hpp"

namespace attest {

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void hide_unread_rows(const AttentionProblem& problem, const TensorForm& form, Slot slot,
                      Dense<double>& tensor) {
  if (!tensor.present) return;
  const ReadableCells readable = readable_cells(problem, slot, form);
  if (readable.all()) return;
  for (std::int64_t a = 0; a < tensor.shape[0]; ++a)
    for (std::int64_t b = 0; b < tensor.shape[1]; ++b)
      for (std::int64_t c = 0; c < tensor.shape[2]; ++c)
        for (std::int64_t d = 0; d < tensor.shape[3]; ++d)
          if (!readable.at(a, c, d)) tensor.at(a, b, c, d) = kNaN;
}

}  // namespace

void tell(const Declaration& declaration, AttentionProblem& problem, AttentionInputs& inputs) {
  problem = as_told(problem, declaration);
  const CallForm form = call_form(problem, 0);
  const auto hide = [&](Slot slot, Dense<double>& tensor) {
    hide_unread_rows(problem, form[static_cast<std::size_t>(slot)], slot, tensor);
  };
  hide(Slot::q, inputs.q);
  hide(Slot::k, inputs.k);
  hide(Slot::v, inputs.v);
  hide(Slot::bias, inputs.bias);
}

}  // namespace attest
