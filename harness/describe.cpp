// SPDX-License-Identifier: Apache-2.0
#include "harness/describe.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <set>

#include "reference/audit.hpp"

namespace attest {

namespace {

constexpr std::size_t kMostNumbers = 12;

struct Axis {
  const char* singular;
  const char* plural;
};
constexpr std::array<Axis, 4> kAxes{{{"sequence", "sequences"},
                                     {"head", "heads"},
                                     {"query row", "query rows"},
                                     {"channel", "channels"}}};

std::array<std::int64_t, 4> shape_of(const AttentionProblem& problem, const std::string& tensor) {
  return {problem.batch, problem.num_heads, problem.q_len,
          tensor == "lse" ? 1 : problem.v_head_dim};
}

std::array<std::int64_t, 4> coordinates(std::size_t flat,
                                        const std::array<std::int64_t, 4>& shape) {
  std::array<std::int64_t, 4> index{};
  auto rest = static_cast<std::int64_t>(flat);
  for (std::size_t axis = 4; axis-- > 0;) {
    index[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return index;
}

std::string element_name(const std::string& tensor, std::size_t flat,
                         const std::array<std::int64_t, 4>& shape) {
  const auto i = coordinates(flat, shape);
  return tensor == "lse" ? fmt::format("lse[{},{},{}]", i[0], i[1], i[2])
                         : fmt::format("{}[{},{},{},{}]", tensor, i[0], i[1], i[2], i[3]);
}

bool same(double left, double right) {
  return left == right || (std::isnan(left) && std::isnan(right));
}

/// All elements of the output that failed against the oracle; false where the finding is not one of
/// the standard call against the oracle.
bool list_elements(const CaseResult& result, const AttentionProblem& problem, CaseContext& context,
                   std::vector<std::string>& numbers) {
  const Element& worst = *result.worst;
  const auto shape = shape_of(problem, worst.tensor);
  const std::size_t count = static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]);
  if (count > kMostNumbers || result.failed_elements.empty()) return false;
  const Observation& seen = context.first(problem);
  if (!seen.ok()) return false;
  const Expected& expected = context.expected(problem);
  const ExpectedTensor& tensor = worst.tensor == "lse" ? expected.lse : expected.o;
  const std::vector<double>& actual = worst.tensor == "lse" ? seen.lse : seen.o;
  if (actual.size() != count || tensor.value.size() != count) return false;
  bool is_this_call = false;
  for (const std::uint32_t flat : result.failed_elements)
    if (flat < count)
      is_this_call |= same(actual[flat], worst.actual) && same(tensor.value[flat], worst.expected);
  if (!is_this_call) return false;
  const std::set<std::size_t> failed(result.failed_elements.begin(), result.failed_elements.end());
  for (std::size_t flat = 0; flat < count; ++flat) {
    std::string line =
        fmt::format("{} expected {:.9g} got {:.9g}", element_name(worst.tensor, flat, shape),
                    tensor.value[flat], actual[flat]);
    if (flat < tensor.t_mixed.size())
      line += fmt::format(" (tolerance {:.3g})", tolerance_of(tensor, flat));
    if (failed.count(flat)) line += "  wrong";
    numbers.push_back(std::move(line));
  }
  return true;
}

}  // namespace

std::string index_ranges(const std::vector<std::int64_t>& indices, std::int64_t extent) {
  std::string text;
  for (std::size_t i = 0; i < indices.size();) {
    std::size_t end = i;
    while (end + 1 < indices.size() && indices[end + 1] == indices[end] + 1) ++end;
    if (!text.empty()) text += ", ";
    // Scattered indices say nothing one by one.
    if (text.size() > 40) {
      text += "...";
      break;
    }
    text += end == i ? std::to_string(indices[i]) : fmt::format("{}-{}", indices[i], indices[end]);
    i = end + 1;
  }
  return fmt::format("{} of {}", text, extent);
}

std::string failure_pattern(const AttentionProblem& problem, const CaseResult& result) {
  if (!result.worst || result.failed_elements.empty()) return "";
  const std::string& tensor = result.worst->tensor;
  if (tensor != "o" && tensor != "lse" && tensor != "y") return "";
  const auto shape = shape_of(problem, tensor);
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  if (elements <= 0) return "";
  std::array<std::set<std::int64_t>, 4> touched;
  for (const std::uint32_t flat : result.failed_elements) {
    const auto index = coordinates(flat, shape);
    for (std::size_t axis = 0; axis < 4; ++axis) touched[axis].insert(index[axis]);
  }
  if (static_cast<std::int64_t>(result.failed_elements.size()) == elements)
    return "every element of " + tensor;
  std::string text;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const auto count = static_cast<std::int64_t>(touched[axis].size());
    if (shape[axis] == 1) continue;
    if (!text.empty()) text += ", ";
    if (count == shape[axis]) {
      text += fmt::format("all {}", kAxes[axis].plural);
      continue;
    }
    const std::vector<std::int64_t> indices(touched[axis].begin(), touched[axis].end());
    text += fmt::format("{} {}", count == 1 ? kAxes[axis].singular : kAxes[axis].plural,
                        index_ranges(indices, shape[axis]));
  }
  return text;
}

void describe(const CaseResult& result, const AttentionProblem& problem, CaseContext& context,
              std::string& pattern, std::vector<std::string>& numbers) {
  pattern = failure_pattern(problem, result);
  if (!result.worst) return;
  const Element& worst = *result.worst;
  if ((worst.tensor == "o" || worst.tensor == "lse" || worst.tensor == "y") &&
      list_elements(result, problem, context, numbers))
    return;
  std::string index;
  for (const std::int64_t i : worst.index) {
    if (!index.empty()) index += ',';
    index += std::to_string(i);
  }
  numbers.push_back(fmt::format("{}[{}] expected {:.9g} got {:.9g}", worst.tensor, index,
                                worst.expected, worst.actual));
}

}  // namespace attest
