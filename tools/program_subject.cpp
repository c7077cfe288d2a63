// SPDX-License-Identifier: Apache-2.0
#include "tools/program_subject.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "reports/message.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"
#include "tools/arguments.hpp"

namespace attest {
namespace {

constexpr std::string_view kStdio = "stdio:";

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

/// The shell makes way for the program where it has nothing else to do: then it is the program
/// whose end is seen.
std::string shell_line(const std::string& line) {
  return line.find_first_of("&;|<>()`$\n") == std::string::npos ? "exec " + line : line;
}

SubjectSpec shell_program(const std::string& word, MessageFormat format, std::string line) {
  WorkerCommand command;
  command.format = format;
  command.over_stdio = line.starts_with(kStdio);
  if (command.over_stdio) line.erase(0, kStdio.size());
  if (line.find_first_not_of(' ') == std::string::npos)
    throw CommandError(fmt::format("'{}' names no program", plain(word)));
  command.arguments = {"/bin/sh", "-c", shell_line(line)};
  SubjectSpec spec;
  spec.path = word;
  spec.program = write_worker_command(command);
  const std::string first = line.substr(0, line.find(' '));
  if (is_file(first)) spec.source = first;
  return spec;
}

SubjectSpec python_function(const std::string& word, std::size_t colons) {
  const std::string place = word.substr(0, colons), function = word.substr(colons + 2);
  if (place.empty() || function.empty())
    throw CommandError(
        fmt::format("'{}': FILE.py::NAME or package.module::NAME is wanted", plain(word)));
  const bool file = place.ends_with(".py") || place.find('/') != std::string::npos;
  if (file && !is_file(place)) throw CommandError(plain(place) + ": no such file");
  const char* const interpreter = std::getenv("ATTEST_PYTHON");
  WorkerCommand command;
  command.format = MessageFormat::safetensors;
  command.arguments = {interpreter && *interpreter ? interpreter : "python3",
                       module_dir() + "/attest.py", "serve", word};
  SubjectSpec spec;
  spec.path = word;
  spec.program = write_worker_command(command);
  if (file) spec.source = place;
  return spec;
}

}  // namespace

std::optional<SubjectSpec> program_subject(const std::string& word) {
  if (is_file(word)) return std::nullopt;
  for (const MessageFormat format : {MessageFormat::jsonl, MessageFormat::safetensors}) {
    const std::string scheme = std::string(name(format)) + ":";
    if (word.starts_with(scheme) && !word.starts_with(scheme + ":"))
      return shell_program(word, format, word.substr(scheme.size()));
  }
  const std::size_t colons = word.rfind("::");
  if (colons == std::string::npos) return std::nullopt;
  return python_function(word, colons);
}

}  // namespace attest
