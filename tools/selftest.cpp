// SPDX-License-Identifier: Apache-2.0
// attest selftest: how many known mistakes the suite catches, and whom it accuses.
#include "harness/selftest.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "attest/names.hpp"
#include "harness/machine_info.hpp"
#include "reports/atomic_file.hpp"
#include "reports/detection.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/fault_library.hpp"
#include "tools/line_journal.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

std::string read_suite(const Arguments& arguments, const std::string& option,
                       const std::string& otherwise) {
  const std::string wanted = arguments.value(option, otherwise);
  if (find_suite(wanted)) return wanted;
  std::vector<std::string> names;
  for (const Suite& suite : suites()) names.emplace_back(suite.name);
  throw CommandError(
      fmt::format("{}: no suite '{}'; there are {}", option, wanted, join(names, ", ")));
}

SelftestOptions read_options(const Arguments& arguments) {
  SelftestOptions options;
  options.catalogue = read_catalogue(arguments);
  options.library_text = arguments.positional("LIBRARY");
  if (options.library_text.empty()) options.library_text = options.catalogue.path;
  options.suite = read_suite(arguments, "--suite", "quick");
  options.honest_suite = read_suite(arguments, "--honest-suite", "smoke");
  options.seed = read_unsigned(arguments, "--seed", 1, 0, ~std::uint64_t{0});
  options.jobs = read_jobs(arguments);
  options.filter = arguments.value("--filter");
  options.honest_only = arguments.has("--honest-only");
  if (arguments.has("--dtype")) {
    options.dtype = parse_dtype(arguments.value("--dtype"));
    if (!options.dtype)
      throw CommandError("--dtype: '" + arguments.value("--dtype") +
                         "' is none of f64, f32, f16, bf16");
  }
  if (arguments.has("--within")) {
    Result<Declaration> scope = parse_declaration(arguments.value("--within"));
    if (!scope) throw CommandError("--within: " + scope.error());
    options.within = *scope;
  }
  options.more_honest = built_in_kernels();
  return options;
}

DetectionReport begin_report(const Arguments& arguments, const SelftestOptions& options) {
  DetectionReport report;
  report.tool_version = tool_version();
  report.commit = machine_info().commit;
  report.command = arguments.command_line;
  report.library = options.catalogue.path;
  report.library_hash = file_hash(options.catalogue.path);
  report.suite = options.suite;
  report.honest_suite = options.honest_suite;
  report.seed = options.seed;
  if (options.within) report.within = print_declaration(*options.within);
  for (const Requirement* one : select_requirements({}, find_suite(options.suite), ""))
    report.requirements.push_back(one->id);
  report.started = utc_now();
  return report;
}

/// The journal that was named, or one that the same command with --resume finds; nullptr where
/// nobody asked and there is no place.
std::unique_ptr<LineJournal> open_journal(const Arguments& arguments, const DetectionReport& report,
                                          std::vector<Detection>& done) {
  const bool asked = arguments.has("--journal") || arguments.has("--resume");
  std::string path = arguments.value("--journal");
  const std::string header = detection_header(report);
  if (path.empty()) {
    const std::string folder = cache_folder();
    if (folder.empty() && asked)
      throw CommandError(
          "--resume: no folder for journals (HOME is not set); name one by "
          "--journal");
    if (folder.empty()) return nullptr;
    const auto hash = static_cast<std::uint32_t>(
        std::hash<std::string>{}(fmt::format("{} {} {} {} {}", report.library, report.suite,
                                             report.honest_suite, report.seed, report.within)));
    path = fmt::format("{}/selftest-{:08x}.journal", folder, hash);
  }
  std::vector<std::string> lines;
  auto journal =
      LineJournal::open(path, arguments.has("--resume"),
                        {"selftest", "library, suite, seed, scope or build"}, header, lines);
  if (!journal) {
    if (asked) throw CommandError(journal.error());
    return nullptr;
  }
  for (std::size_t n = 0; n < lines.size(); ++n) {
    Result<Detection> kernel = read_detection_line(lines[n]);
    // The header is line 1.
    if (!kernel)
      throw CommandError(fmt::format("journal {}: line {}: {}", path, n + 2, kernel.error()));
    done.push_back(std::move(*kernel));
  }
  return std::move(*journal);
}

std::string progress_text(const SelftestProgress& progress) {
  std::string line = fmt::format("{} of {} kernels", progress.done, progress.total);
  if (progress.escaped > 0) line += fmt::format(", {} escaped", progress.escaped);
  if (progress.accused > 0) line += fmt::format(", {} accused", progress.accused);
  if (progress.seconds > 5 && progress.done > 0)
    line += ", " +
            duration(progress.seconds * static_cast<double>(progress.total - progress.done) /
                     static_cast<double>(progress.done)) +
            " left";
  return line;
}

void check_files(const Arguments& arguments) {
  for (const char* option : {"--json", "--markdown"})
    if (arguments.has(option))
      if (const auto error = check_writable(arguments.value(option))) throw CommandError(*error);
}

/// False, and said so, where a report could not be written.
bool write_files(const Arguments& arguments, const DetectionReport& report) {
  bool written = true;
  const auto write = [&](const char* option, std::string (*text_of)(const DetectionReport&)) {
    if (!arguments.has(option)) return;
    const auto error = write_file(arguments.value(option), text_of(report));
    if (error) fmt::print(stderr, "attest: {}\n", *error);
    written &= !error;
  };
  write("--json", detection_json);
  write("--markdown", detection_markdown);
  return written;
}

ExitCode run(const Arguments& arguments) {
  check_files(arguments);
  SelftestOptions options = read_options(arguments);
  DetectionReport report = begin_report(arguments, options);
  std::unique_ptr<LineJournal> journal = open_journal(arguments, report, options.done);
  std::string journal_trouble;
  options.on_result = [&](const Detection& kernel) {
    if (journal && journal_trouble.empty() && !journal->append(detection_line(kernel)))
      journal_trouble = std::strerror(errno);
  };
  options.interrupted = &catch_interrupts();
  const auto start = std::chrono::steady_clock::now();
  RewrittenLine line;
  RunError error;
  Result<std::vector<Detection>> kernels = run_selftest(
      options,
      [&](const SelftestProgress& progress) {
        line.show(progress_text(progress), progress.done == progress.total);
      },
      error);
  line.clear();
  const bool interrupted = *options.interrupted;
  if (!kernels)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  report.kernels = std::move(*kernels);
  report.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.cpu_seconds = cpu_seconds_used();
  if (interrupted) report.incomplete = "interrupted";
  const bool written = write_files(arguments, report);
  if (!journal_trouble.empty()) fmt::print(stderr, "attest: journal: {}\n", journal_trouble);
  fmt::print("{}", detection_screen(report));
  if (interrupted) {
    if (journal)
      fmt::print(stderr, "attest: interrupted; the same command with --resume goes on\n");
    return ExitCode::suite_failed;
  }
  if (journal && !arguments.has("--journal")) journal->discard();
  if (!written) return ExitCode::suite_failed;
  return detection_totals(report).perfect() ? ExitCode::conformant : ExitCode::failed;
}

ATTEST_COMMAND(
    selftest,
    {
        .name = "selftest",
        .summary =
            "how many known mistakes the suite catches, and whether it accuses honest kernels",
        .examples =
            "Examples:\n"
            "  attest selftest                            every planted fault, minutes\n"
            "  attest selftest --filter 'causal_*'        these alone\n"
            "  attest selftest --within 'dtype=f32 base=causal align=top_left'\n"
            "                                             only what shows in that scope\n"
            "  attest selftest --markdown detection.md    a page with the matrix\n"
            "The last line is the score. Exit codes: 0 every fault is caught and nobody honest "
            "accused, 1 not so, 2 usage, 3 the suite or the machine failed",
        .positionals = {{"LIBRARY", "a library of faults (attest/faults.h); default: attest's own",
                         false}},
        .options = {{"--suite", "NAME", "what the faults meet: smoke, quick (the default) or full"},
                    {"--honest-suite", "NAME", "what honest kernels meet; default smoke"},
                    {"--seed", "N", "which random problems; default 1"},
                    {"--jobs", "N", "kernels at once; default: one per core"},
                    {"--filter", "GLOB", "only the faults and kernels whose id matches"},
                    {"--dtype", "NAME", "only this dtype"},
                    {"--honest-only", "", "only honest kernels, no faults"},
                    {"--within", "DECLARATION", "only faults that show in this scope"},
                    {"--journal", "FILE",
                     "keep results there as they come; default: a file in "
                     "~/.cache/attest that is deleted at the end"},
                    {"--resume", "", "skip what the journal has already"},
                    {"--json", "FILE", "write everything there (selftest.schema.json)"},
                    {"--markdown", "FILE", "write a page there"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
