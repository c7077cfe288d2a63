// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <system_error>

#include "harness/machine_info.hpp"
#include "harness/tune_malloc.hpp"
#include "tools/command.hpp"

namespace attest {

namespace {

std::vector<Command>& registry() {
  static std::vector<Command> all;
  return all;
}

/// "--stop-at-first" of "-x,--stop-at-first".
std::string long_name(const std::string& name) {
  const std::size_t comma = name.find(',');
  return comma == std::string::npos ? name : name.substr(comma + 1);
}

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n' || c == '\r') c = ' ';
  return text;
}

/// The parser of one subcommand and where it puts what it reads.
struct Bound {
  const Command* command = nullptr;
  CLI::App* app = nullptr;
  std::map<std::string, std::vector<std::string>> repeated;  ///< positionals
  std::map<std::string, std::string> single;                 ///< positionals
  std::map<std::string, std::string> values;
  std::map<std::string, bool> flags;
};

void bind(Bound& bound, const Command& command, CLI::App& app) {
  bound.command = &command;
  bound.app = app.add_subcommand(command.name, command.summary);
  if (!command.examples.empty()) bound.app->footer(command.examples);
  for (const Positional& positional : command.positionals) {
    // A list takes all that is left, so that a single one must be no list.
    CLI::Option* option =
        positional.repeated ? bound.app->add_option(
                                  positional.name, bound.repeated[positional.name], positional.help)
                            : bound.app->add_option(positional.name, bound.single[positional.name],
                                                    positional.help);
    option->type_name("")->required(positional.required);
  }
  std::vector<Option> options = command.options;
  if (command.more_options)
    for (Option& option : command.more_options()) options.push_back(std::move(option));
  for (const Option& option : options) {
    const std::string key = long_name(option.name);
    if (option.value.empty())
      bound.app->add_flag(option.name, bound.flags[key], option.help);
    else
      bound.app->add_option(option.name, bound.values[key], option.help)
          ->type_name(option.value)
          ->take_last();
  }
}

Arguments arguments_of(const Bound& bound, int argc, char** argv) {
  Arguments arguments;
  for (int i = 0; i < argc; ++i)
    arguments.command_line += (i > 0 ? " " : "") + std::string(i > 0 ? argv[i] : "attest");
  arguments.positionals = bound.repeated;
  for (const auto& [name, value] : bound.single)
    if (bound.app->count(name) > 0) arguments.positionals[name] = {value};
  for (const auto& [name, value] : bound.values)
    if (bound.app->count(name) > 0) arguments.options[name] = value;
  for (const auto& [name, set] : bound.flags)
    if (set) arguments.options[name] = "";
  return arguments;
}

/// Where one of the three was closed, the next file to be opened would take its number, and what is
/// printed would go there.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) (void)!::open("/dev/null", O_RDWR);
}

/// False, and said so, where a full disk or the like took less than was printed.
bool flush_output() {
  std::cout.flush();
  if (!std::ferror(stdout) && std::fflush(stdout) == 0) return true;
  std::cerr << "attest: cannot write to standard output: " << std::strerror(errno ? errno : EIO)
            << "\n";
  return false;
}

/// Whether the command line says --exit-code bisect. Read off its words, so that it holds for every
/// way out, a command line that does not parse included: an older attest, half way through a
/// bisection, may not know an option.
bool wants_bisect(int argc, char** argv) {
  bool wanted = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--exit-code" && i + 1 < argc) wanted = std::strcmp(argv[i + 1], "bisect") == 0;
    if (word.rfind("--exit-code=", 0) == 0) wanted = word == "--exit-code=bisect";
  }
  return wanted;
}

/// What `git bisect run` makes of a code: 125 is a revision that cannot be tested.
int for_bisect(int code) { return code == 0 || code == 1 ? code : 125; }

int run(int argc, char** argv) {
  CLI::App app{"attest: the conformance suite for attention kernels"};
  app.set_version_flag("--version",
                       "attest " + tool_version() + " (" + machine_info().commit + ")");
  app.require_subcommand(1);
  app.footer(
      "Start here:\n"
      "  attest check naive --suite smoke      check a built-in kernel\n"
      "  attest check ./libmine.so             check your own\n"
      "  attest list                           what there is\n"
      "Each command explains itself: attest check --help\n"
      "Exit codes: 0 conformant, 1 not, 2 usage, 3 the suite or the machine failed, 4 too little "
      "tested");
  std::vector<Bound> bound(commands().size());
  for (std::size_t i = 0; i < bound.size(); ++i) bind(bound[i], commands()[i], app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::CallForVersion& version) {
    return app.exit(version);
  } catch (const CLI::ParseError& error) {
    std::string what = one_line(error.what());
    if (argc < 2) what = "which command? `attest --help` lists them";
    std::vector<std::string> names;
    for (const Command& command : commands()) names.push_back(command.name);
    if (argc > 1 && argv[1][0] != '-' && std::count(names.begin(), names.end(), argv[1]) == 0)
      what = "no command '" + std::string(argv[1]) + "'" + suggestion(argv[1], names);
    std::cerr << "attest: " << what << "\n";
    return static_cast<int>(ExitCode::usage);
  }
  for (const Bound& one : bound)
    if (one.app->parsed()) return static_cast<int>(one.command->run(arguments_of(one, argc, argv)));
  return static_cast<int>(ExitCode::usage);
}

}  // namespace

const std::vector<Command>& commands() { return registry(); }

bool register_command(Command command) {
  auto& all = registry();
  const auto place = std::lower_bound(
      all.begin(), all.end(), command,
      [](const Command& left, const Command& right) { return left.name < right.name; });
  all.insert(place, std::move(command));
  return true;
}

}  // namespace attest

namespace {

int guarded_run(int argc, char** argv) {
  try {
    const int code = attest::run(argc, argv);
    return attest::flush_output() ? code : static_cast<int>(attest::ExitCode::suite_failed);
  } catch (const attest::CommandError& error) {
    std::cerr << "attest: " << attest::one_line(error.what()) << "\n";
    return static_cast<int>(error.code());
  } catch (const std::system_error& error) {
    // A long text fails in the middle: fmt says which error it was, but not on what.
    errno = error.code().value();
    if (!std::ferror(stdout) || attest::flush_output())
      std::cerr << "attest: " << attest::one_line(error.what()) << "\n";
    return static_cast<int>(attest::ExitCode::suite_failed);
  } catch (const std::exception& error) {
    std::cerr << "attest: " << attest::one_line(error.what()) << "\n";
    return static_cast<int>(attest::ExitCode::suite_failed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  attest::open_standard_streams();
  attest::tune_malloc();
  const int code = guarded_run(argc, argv);
  return attest::wants_bisect(argc, argv) ? attest::for_bisect(code) : code;
}
