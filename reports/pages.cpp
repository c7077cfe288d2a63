// SPDX-License-Identifier: Apache-2.0
#include "reports/pages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "attest/dtype.hpp"
#include "reports/text.hpp"

namespace attest {
namespace {

constexpr std::size_t kMostInTable = 64;     // elements of a tensor that is shown
constexpr std::size_t kMostInPage = 40'000;  // bytes of a program that stands in the page too

std::string fenced(std::string_view text, std::string_view language) {
  std::size_t longest = 2, run = 0;
  for (const char c : text) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  const std::string fence(longest + 1, '`');
  return fmt::format("{}{}\n{}\n{}\n\n", fence, language, text, fence);
}

std::string number(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.9g}", value);
}

std::int64_t count_of(const CallTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  return count;
}

/// Logical coordinates of an element.
std::vector<std::int64_t> index_of(const CallTensor& tensor, std::int64_t flat) {
  std::vector<std::int64_t> index(tensor.shape.size());
  for (std::size_t axis = index.size(); axis-- > 0;) {
    index[axis] = flat % tensor.shape[axis];
    flat /= tensor.shape[axis];
  }
  return index;
}

/// Rows of a tensor, its last axis across: "| 0,0,1 | 0.5 | -1 |".
std::string tensor_table(const FailureCall& call, const CallTensor& tensor) {
  const CallBlock& block = call.blocks[tensor.block];
  const std::int64_t count = count_of(tensor), width = tensor.shape.back();
  std::string text =
      fmt::format("`{}` [{}], {}:\n\n", tensor.name, fmt::join(tensor.shape, ", "), block.type);
  if (count == 0) return text + "no elements\n\n";
  text += "| |";
  std::string rule = "|---|";
  for (std::int64_t c = 0; c < width; ++c) {
    text += fmt::format(" {} |", c);
    rule += "---:|";
  }
  text += '\n' + rule;
  for (std::int64_t flat = 0; flat < count; ++flat) {
    std::vector<std::int64_t> index = index_of(tensor, flat);
    std::int64_t at = tensor.first;
    for (std::size_t axis = 0; axis < index.size(); ++axis)
      at += index[axis] * tensor.strides[axis];
    if (flat % width == 0) {
      index.pop_back();
      text += fmt::format("\n| {} |", fmt::join(index, ","));
    }
    text += fmt::format(" {} |", number(value_of(block, static_cast<std::size_t>(at))));
  }
  return text + "\n\n";
}

bool is_wrong(const CallOutput& output, std::size_t i) {
  if (output.tolerance[i] < 0) return false;
  const double wanted = output.expected[i], got = output.actual[i];
  if (got == wanted || (std::isnan(got) && std::isnan(wanted))) return false;
  return !(std::fabs(got - wanted) <= output.tolerance[i]);
}

std::string output_table(const FailureCall& call, const CallOutput& output) {
  const auto tensor = std::find_if(call.tensors.begin(), call.tensors.end(),
                                   [&](const CallTensor& one) { return one.name == output.name; });
  if (tensor == call.tensors.end() || output.expected.size() > kMostInTable) return "";
  const bool answered = output.actual.size() == output.expected.size();
  std::string text = answered ? "| | expected | got | tolerance | |\n|---|---:|---:|---:|---|\n"
                              : "| | expected | tolerance |\n|---|---:|---:|\n";
  for (std::size_t i = 0; i < output.expected.size(); ++i) {
    const bool judged = output.tolerance[i] >= 0;
    text += fmt::format("| {}[{}] | {} |", output.name,
                        fmt::join(index_of(*tensor, static_cast<std::int64_t>(i)), ","),
                        number(output.expected[i]));
    if (answered) text += fmt::format(" {} |", number(output.actual[i]));
    text += judged ? fmt::format(" {:.3g} |", output.tolerance[i]) : " not judged |";
    if (answered) text += is_wrong(output, i) ? " **wrong** |" : " |";
    text += '\n';
  }
  return text + '\n';
}

std::string numbers_text(const FailureCall& call) {
  std::string text;
  std::vector<std::string> hidden;
  for (const CallTensor& tensor : call.tensors) {
    const CallBlock& block = call.blocks[tensor.block];
    if (block.output) continue;
    if (count_of(tensor) <= static_cast<std::int64_t>(kMostInTable))
      text += tensor_table(call, tensor);
    else
      hidden.push_back(fmt::format("{} [{}]", tensor.name, fmt::join(tensor.shape, ", ")));
  }
  if (!hidden.empty()) text += "Too large to be shown: " + join(hidden, "; ") + ".\n\n";
  std::string wanted;
  if (call.refuse)
    wanted = "The kernel does not declare this call, and must refuse it.\n\n";
  else
    for (const CallOutput& output : call.outputs) wanted += output_table(call, output);
  return "## The call\n\n" + text + wanted;
}

std::string facts_text(const Record& record, const CauseView& view) {
  const Cause& cause = *view.cause;
  const Failure& failure = *view.smallest;
  std::string text;
  const auto item = [&text](std::string_view label, const std::string& line) {
    if (!line.empty()) text += fmt::format("- {}: {}\n", label, line);
  };
  const auto escaped = [](const std::string& line) { return markdown_escape(line); };
  item("kernel", escaped(subject_name(record)) + ", " + markdown_code(record.subject.path));
  item("run", escaped(run_sentence(record)));
  item("seen in", escaped(cause_extent(cause)));
  item("caught by", escaped(join(cause.caught_by, ", ")));
  item("what", escaped(failure.detail));
  item("where", escaped(where_sentence(failure)));
  item("worst", escaped(worst_sentence(failure)));
  item("looks like", escaped(cause.diagnosis));
  item("again", escaped(reruns_sentence(failure)) +
                    (failure.fully_shrunk ? "" : "; not fully shrunk, the budget was spent"));
  return text + '\n';
}

}  // namespace

double value_of(const CallBlock& block, std::size_t element) {
  const std::uint64_t bits = block.bits[element];
  if (block.type == "f64") return std::bit_cast<double>(bits);
  if (block.type == "f32")
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  if (block.type == "f16") return decode_f16(static_cast<std::uint16_t>(bits));
  if (block.type == "bf16") return decode_bf16(static_cast<std::uint16_t>(bits));
  if (block.type == "i32") return static_cast<std::int32_t>(bits);
  return static_cast<double>(bits);
}

std::string failure_page(const Record& record, const CauseView& view, const FailureCall* call,
                         const std::string& program, const std::string& text) {
  const Failure& failure = *view.smallest;
  std::string page =
      fmt::format("# Cause {}: {}\n\n", view.cause->id, markdown_escape(cause_sentence(view)));
  page += facts_text(record, view);
  page += "## The smallest case\n\n" + fenced(plain(failure.case_line), "");
  if (failure.found_case_line != failure.case_line)
    page += "Found as\n\n" + fenced(plain(failure.found_case_line), "");
  page += "Again, and every intermediate of it:\n\n" +
          fenced(plain(failure.replay) + "\nattest explain " +
                     shell_word(plain(failure.case_line)) + " " + subject_word(record),
                 "sh");
  if (call)
    page += numbers_text(*call);
  else if (!failure.numbers.empty())
    page += "## The numbers\n\n" + fenced(plain(join(failure.numbers, "; ")), "");
  if (program.empty()) return page + "The call is too large to be written out as a program.\n";
  page += fmt::format(
      "## Without Attest\n\n[{0}]({0}) makes this call and needs nothing but `attest/plugin.h` and "
      "the library:\n\n",
      program);
  const std::string stem = program.substr(0, program.rfind('.'));
  page += fenced(fmt::format("cc -Iinclude {} -ldl -o {} && ./{}", program, stem, stem), "sh");
  if (text.size() <= kMostInPage)
    page += "<details><summary>the program</summary>\n\n" + fenced(text, "c") + "</details>\n";
  return page;
}

std::string pages_index(const Record& record) {
  std::string text =
      fmt::format("# Attest: {}\n\n{}: {} ({})\n\n", verdict_word(record.verdict),
                  markdown_escape(subject_name(record)), markdown_escape(verdict_sentence(record)),
                  markdown_escape(run_sentence(record)));
  for (const CauseView& view : causes_by_urgency(record))
    text += fmt::format("- [cause {0}](cause-{0}.md): {1} ({2})\n", view.cause->id,
                        markdown_escape(cause_sentence(view)),
                        markdown_escape(cause_extent(*view.cause)));
  return text;
}

}  // namespace attest
