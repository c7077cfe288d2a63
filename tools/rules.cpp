// SPDX-License-Identifier: Apache-2.0
// attest rules: how the verdict rules of other harnesses fare on kernels that are known.
#include "harness/rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "harness/machine_info.hpp"
#include "reports/atomic_file.hpp"
#include "reports/rule_table.hpp"
#include "tools/command.hpp"
#include "tools/fault_library.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

RuleOptions read_options(const Arguments& arguments) {
  RuleOptions options;
  options.catalogue = read_catalogue(arguments);
  options.more_honest = built_in_kernels();
  options.filter = arguments.value("--filter");
  options.seed = read_unsigned(arguments, "--seed", 1, 0, ~std::uint64_t{0});
  options.problems =
      static_cast<std::int64_t>(read_unsigned(arguments, "--problems", 300, 1, 1000000));
  options.jobs = read_jobs(arguments);
  return options;
}

ExitCode run(const Arguments& arguments) {
  const std::string path = arguments.value("--markdown");
  if (!path.empty())
    if (const auto error = check_writable(path)) throw CommandError(*error);
  RuleOptions options = read_options(arguments);
  RuleComparison comparison;
  comparison.tool_version = tool_version();
  comparison.commit = machine_info().commit;
  comparison.command = arguments.command_line;
  comparison.library = options.catalogue.path;
  comparison.seed = options.seed;
  comparison.problems = options.problems;
  comparison.started = utc_now();
  for (const Rule& rule : rules()) {
    comparison.rules.emplace_back(rule.name);
    comparison.texts.emplace_back(rule.text);
  }
  options.interrupted = &catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  RunError error;
  Result<std::vector<RuleScore>> scores = compare_rules(options, error);
  if (!scores)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  if (*options.interrupted) throw CommandError("interrupted", ExitCode::suite_failed);
  comparison.scores = std::move(*scores);
  comparison.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{}", rule_table(comparison));
  write_output(path, rule_markdown(comparison));
  return ExitCode::conformant;
}

ATTEST_COMMAND(
    rules,
    {
        .name = "rules",
        .summary = "compare the verdict rules of other harnesses with attest's, on known kernels",
        .examples =
            "Examples:\n"
            "  attest rules                     a table: honest kernels accused, faults missed\n"
            "  attest rules --markdown rules.md the same with what each rule asks",
        .positionals = {{"LIBRARY", "a library of faults (attest/faults.h); default: attest's own",
                         false}},
        .options = {{"--problems", "N", "for each kernel; default 300"},
                    {"--seed", "N", "which random problems; default 1"},
                    {"--jobs", "N", "kernels at once; default: one per core"},
                    {"--filter", "GLOB", "only the faults and kernels whose id matches"},
                    {"--markdown", "FILE", "write a page there"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
