// SPDX-License-Identifier: Apache-2.0
#include "tools/arguments.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sstream>

#include "attest/case_line.hpp"
#include "attest/text.hpp"
#include "harness/unit.hpp"
#include "reports/text.hpp"
#include "tools/program_subject.hpp"

namespace attest {

std::string Arguments::value(const std::string& option, const std::string& otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? otherwise : found->second;
}

std::string Arguments::positional(const std::string& name) const {
  const auto found = positionals.find(name);
  return found == positionals.end() || found->second.empty() ? "" : found->second.front();
}

namespace {

template <class T>
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::uint64_t read_unsigned(const Arguments& arguments, const std::string& option,
                            std::uint64_t otherwise, std::uint64_t least, std::uint64_t most) {
  if (!arguments.has(option)) return otherwise;
  const std::string text = arguments.value(option);
  std::uint64_t value = 0;
  if (!read(text, value) || value < least || value > most)
    throw CommandError(option + " wants a whole number from " + std::to_string(least) + " to " +
                       std::to_string(most) + ", got '" + text + "'");
  return value;
}

std::vector<std::string> read_list(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string_view word : split(text, ','))
    if (!word.empty()) words.emplace_back(word);
  return words;
}

Shard read_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  Shard shard;
  if (slash == std::string::npos || !read(text.substr(0, slash), shard.index) ||
      !read(text.substr(slash + 1), shard.count) || shard.index < 1 || shard.index > shard.count)
    throw CommandError("--shard wants i/n with 1 <= i <= n, got '" + text + "'");
  return shard;
}

double read_duration(const std::string& option, const std::string& text) {
  double seconds = 0, unit = 1;
  std::string number = text;
  if (!number.empty() && std::strchr("smh", number.back())) {
    unit = number.back() == 'h' ? 3600 : number.back() == 'm' ? 60 : 1;
    number.pop_back();
  }
  if (!read(number, seconds) || !std::isfinite(seconds) || !(seconds > 0))
    throw CommandError(option + " wants a time such as 60s, 10m or 2h, got '" + text + "'");
  return seconds * unit;
}

std::string read_text_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  // An empty file makes operator<< fail without anything being wrong.
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file.is_open() || file.bad() || (errno != 0 && text.str().empty()))
    throw CommandError("cannot read " + path + ": " + std::strerror(errno ? errno : EIO));
  return text.str();
}

CaseFile read_case_file(const std::string& path) {
  std::istringstream text(read_text_file(path));
  CaseFile file;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    file.lines.push_back(line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1));
    file.numbers.push_back(number);
  }
  if (file.lines.empty()) throw CommandError(path + ": holds no case");
  return file;
}

AttentionProblem read_case_argument(const std::string& line) {
  Result<AttentionProblem> problem = parse_case(line);
  if (!problem) throw CommandError(problem.error());
  if (const auto error = memory_error(*problem)) throw CommandError("case line: " + *error);
  return *problem;
}

SubjectSpec read_subject(const std::string& text) {
  if (std::optional<SubjectSpec> program = program_subject(text)) return *program;
  Result<SubjectSpec> spec = resolve_subject(text);
  if (!spec) throw CommandError(spec.error());
  return *spec;
}

std::string subject_argument(const Arguments& arguments) {
  if (arguments.has("--python")) setenv("ATTEST_PYTHON", arguments.value("--python").c_str(), 1);
  const bool named =
      arguments.positionals.contains("SUBJECT") && !arguments.positionals.at("SUBJECT").empty();
  if (!arguments.has("--cmd")) {
    if (arguments.has("--protocol")) throw CommandError("--protocol goes with --cmd");
    if (!named) throw CommandError("no kernel given: SUBJECT, or --cmd 'PROGRAM ARGS'");
    const std::string word = arguments.positional("SUBJECT");
    if (!arguments.has("--like")) return word;
    if (word.find("::") == std::string::npos)
      throw CommandError("--like goes with FILE.py::NAME or package.module::NAME");
    return word + "@" + arguments.value("--like");
  }
  if (named) throw CommandError("--cmd takes the place of SUBJECT");
  const std::string protocol = arguments.value("--protocol", "jsonl");
  if (protocol != "jsonl" && protocol != "safetensors")
    throw CommandError("--protocol: '" + plain(protocol) + "' is none of safetensors, jsonl");
  return protocol + ":" + arguments.value("--cmd");
}

std::unique_ptr<Subject> open_subject(const SubjectSpec& spec) {
  OpenError error;
  std::unique_ptr<Subject> subject = open_in_host(spec, error);
  if (!subject && error.machine) subject = open_in_host(spec, error);
  if (!subject)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  return subject;
}

bool in_ci() {
  const char* value = std::getenv("CI");
  return value && *value && std::strcmp(value, "0") != 0 && std::strcmp(value, "false") != 0;
}

namespace {

/// Levenshtein distance.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::string* best = nullptr;
  std::size_t least = 1 + word.size() / 3;
  for (const std::string& name : names)
    if (const std::size_t d = distance(word, name); d <= least) {
      least = d;
      best = &name;
    }
  return best ? "; did you mean '" + *best + "'?" : "";
}

}  // namespace attest
