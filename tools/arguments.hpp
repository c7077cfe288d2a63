// SPDX-License-Identifier: Apache-2.0
// The words of a command line, and what is read from them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attest/problem.hpp"
#include "attest/verdict.hpp"
#include "harness/subject.hpp"
#include "harness/suite.hpp"

namespace attest {

/// The one exception of the command: printed as "attest: <what>", one line, with this exit code.
class CommandError : public std::runtime_error {
 public:
  explicit CommandError(const std::string& what, ExitCode code = ExitCode::usage)
      : std::runtime_error(what), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

struct Arguments {
  std::string command_line;  ///< as typed, for the record
  std::map<std::string, std::vector<std::string>> positionals;
  std::map<std::string, std::string> options;  ///< by long name; flags hold ""

  bool has(const std::string& option) const { return options.count(option) > 0; }
  std::string value(const std::string& option, const std::string& otherwise = "") const;
  std::string positional(const std::string& name) const;
};

/// A whole number in [least, most]; the error names the option.
std::uint64_t read_unsigned(const Arguments& arguments, const std::string& option,
                            std::uint64_t otherwise, std::uint64_t least, std::uint64_t most);
/// "a,b,c": what stands between the commas, but for nothing.
std::vector<std::string> read_list(const std::string& text);
/// "i/n" with 1 <= i <= n.
Shard read_shard(const std::string& text);
/// Seconds from "60", "1.5s", "10m" or "2h".
double read_duration(const std::string& option, const std::string& text);

/// A text file, whole.
std::string read_text_file(const std::string& path);

/// The cases of a case file: one line each, '#' starts a comment.
struct CaseFile {
  std::vector<std::string> lines;
  std::vector<int> numbers;  ///< 1-based, in the file
};
CaseFile read_case_file(const std::string& path);

/// The problem of a case line given on the command line, refused where memory cannot hold it.
AttentionProblem read_case_argument(const std::string& line);

SubjectSpec read_subject(const std::string& text);
/// The word that names the kernel: SUBJECT, or --cmd with --protocol in its place
/// (tools/program_subject.hpp).
std::string subject_argument(const Arguments& arguments);
/// In a host; retried once where the machine was the reason.
std::unique_ptr<Subject> open_subject(const SubjectSpec& spec);

/// Whether this is a continuous-integration run: CI is set, and neither "", "0" nor "false".
bool in_ci();

/// The nearest of `names` to a misspelt word, as "; did you mean 'quick'?", or "".
std::string suggestion(const std::string& word, const std::vector<std::string>& names);

}  // namespace attest
