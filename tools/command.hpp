// SPDX-License-Identifier: Apache-2.0
// Subcommands of `attest`. Options are described as plain tables, so that the parser library is
// compiled in main.cpp alone.
//
// Adding one is adding one file to tools/: write the function, and under it
//   ATTEST_COMMAND(check, {.name = "check", .summary = "...", .run = run});
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "attest/verdict.hpp"
#include "tools/arguments.hpp"

namespace attest {

struct Option {
  std::string name;   ///< "--suite", "-x,--stop-at-first"
  std::string value;  ///< what it takes, "NAME"; "": a flag
  std::string help;
};

struct Positional {
  std::string name;  ///< "SUBJECT"
  std::string help;
  bool required = true;
  bool repeated = false;
};

struct Command {
  std::string name;
  std::string summary;   ///< one line
  std::string examples;  ///< what --help ends with
  std::vector<Positional> positionals;
  std::vector<Option> options;
  /// Options that are known only at run time; may be empty.
  std::vector<Option> (*more_options)() = nullptr;
  ExitCode (*run)(const Arguments&) = nullptr;
};

/// Sorted by name, whatever the link order.
const std::vector<Command>& commands();
bool register_command(Command command);

#define ATTEST_COMMAND(identifier, ...)                      \
  [[maybe_unused]] static const bool identifier##_is_known = \
      ::attest::register_command(::attest::Command __VA_ARGS__)

}  // namespace attest
