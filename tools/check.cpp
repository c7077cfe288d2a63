// SPDX-License-Identifier: Apache-2.0
// attest check: a verdict on one kernel.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "harness/baseline.hpp"
#include "harness/demands.hpp"
#include "harness/machine_info.hpp"
#include "harness/runner.hpp"
#include "reports/atomic_file.hpp"
#include "reports/format.hpp"
#include "reports/reader.hpp"
#include "reports/terminal.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/failure_calls.hpp"
#include "tools/last_run.hpp"
#include "tools/probe_subject.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

struct Report {
  const ReportFormat* format;
  std::string path;  ///< "-": standard output
};

/// Refuses a path that cannot be written, before anything runs.
std::vector<Report> read_reports(const Arguments& arguments) {
  std::vector<Report> reports;
  bool to_stdout = false;
  for (const ReportFormat& format : report_formats()) {
    const std::string option = "--" + std::string(format.name);
    if (!arguments.has(option)) continue;
    const std::string path = arguments.value(option);
    if (path == "-") {
      if (to_stdout) throw CommandError("only one report can go to standard output");
      to_stdout = true;
    } else {
      if (const auto error = check_writable(path)) throw CommandError(*error);
      for (const Report& other : reports)
        if (other.path == path)
          throw CommandError("--" + std::string(other.format->name) + " and " + option +
                             " name the same file, " + path);
    }
    reports.push_back({&format, path});
  }
  return reports;
}

std::vector<std::string> requirement_ids() {
  std::vector<std::string> ids;
  for (const Requirement& requirement : requirements()) ids.push_back(requirement.id);
  return ids;
}

std::vector<Expectation> read_expectations(const std::string& path) {
  Result<std::vector<Expectation>> expectations =
      parse_expectations(read_text_file(path), requirement_ids());
  if (!expectations) throw CommandError(path + ": " + expectations.error());
  return *expectations;
}

/// What the run is held against once it is over.
struct Bar {
  std::vector<Demand> demands;
  std::optional<Record> baseline;
  std::string baseline_path;
};

Bar read_bar(const Arguments& arguments) {
  Bar bar;
  if (arguments.has("--require")) {
    if (arguments.has("--last-failed"))
      throw CommandError("--last-failed runs too little for what --require asks");
    const std::string path = arguments.value("--require");
    Result<std::vector<Demand>> demands = parse_demands(read_text_file(path), requirement_ids());
    if (!demands) throw CommandError(path + ": " + demands.error());
    bar.demands = std::move(*demands);
  }
  if (arguments.has("--baseline")) {
    bar.baseline_path = arguments.value("--baseline");
    Result<Record> baseline = read_record_file(bar.baseline_path);
    if (!baseline) throw CommandError(baseline.error());
    bar.baseline = std::move(*baseline);
  }
  return bar;
}

/// A baseline of another kernel would call its mistakes known.
void check_baseline(const Bar& bar, const SubjectSpec& spec) {
  if (!bar.baseline) return;
  const std::string kernel = open_subject(spec)->kernel_name();
  if (bar.baseline->subject.name != kernel)
    throw CommandError(fmt::format("{} is the record of '{}', not of '{}'", bar.baseline_path,
                                   plain(bar.baseline->subject.name), kernel));
}

void hold_against_bar(const Bar& bar, const RunOptions& options, Record& record) {
  if (bar.baseline) {
    const bool whole = record.verdict != SuiteVerdict::incomplete && record.scope.cut.empty() &&
                       options.shard.count == 1 && options.filter.empty();
    hold_against(*bar.baseline, bar.baseline_path, whole && record.suite == bar.baseline->suite,
                 record);
  }
  if (const auto declaration = parse_declaration(record.subject.declaration))
    check_demands(bar.demands, *declaration, record);
}

/// One file per kind of run, so that the same command with --resume finds it.
std::string default_journal(const RunOptions& options) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  const std::string subject = std::filesystem::path(options.subject.path).stem().string();
  std::string key = options.subject.path + "\n" + options.subject.kernel + "\n" + options.filter +
                    "\n" + options.cases_name;
  const auto hash = static_cast<std::uint32_t>(std::hash<std::string>{}(key));
  return fmt::format("{}/{}-{}-seed{}-{}of{}-{:08x}.journal", folder, subject,
                     options.cases_name.empty() ? options.suite : "cases", options.seed,
                     options.shard.index, options.shard.count, hash);
}

void read_cases(const Arguments& arguments, RunOptions& options) {
  if (arguments.has("--last-failed")) {
    for (const char* other : {"--suite", "--cases", "--shard"})
      if (arguments.has(other))
        throw CommandError("--last-failed takes the place of " + std::string(other));
    return;
  }
  if (!arguments.has("--cases")) {
    options.suite = arguments.value("--suite", "quick");
    if (find_suite(options.suite)) return;
    std::vector<std::string> names;
    for (const Suite& suite : suites()) names.emplace_back(suite.name);
    throw CommandError(
        fmt::format("no suite '{}'; there are {}", options.suite, join(names, ", ")));
  }
  if (arguments.has("--suite")) throw CommandError("--cases takes the place of --suite");
  options.cases_name = arguments.value("--cases");
  CaseFile file = read_case_file(options.cases_name);
  options.case_lines = std::move(file.lines);
  options.case_line_numbers = std::move(file.numbers);
}

/// A program may take a thousand times what a library takes. A verdict within a minute on fewer
/// cases, and the scope says so.
void be_patient_with_program(const Arguments& arguments, RunOptions& options) {
  options.most_call_seconds = 0.5;
  if (arguments.has("--time-budget") || options.suite == "full" || !options.cases_name.empty())
    return;
  options.time_budget_seconds = options.suite == "smoke" ? 10 : 40;
  options.finding_seconds = 15;
  options.cut_is_incomplete = false;  // it is a part of what was asked for
}

RunOptions read_options(const Arguments& arguments) {
  RunOptions options;
  options.command = arguments.command_line;
  options.subject_text = subject_argument(arguments);
  read_cases(arguments, options);
  options.seed = read_unsigned(arguments, "--seed", 1, 0, ~std::uint64_t{0});
  options.jobs = read_jobs(arguments);
  if (arguments.has("--shard")) options.shard = read_shard(arguments.value("--shard"));
  if (arguments.has("--time-budget"))
    options.time_budget_seconds = read_duration("--time-budget", arguments.value("--time-budget"));
  options.cut_is_incomplete = in_ci();
  options.filter = arguments.value("--filter");
  options.stop_at_first = arguments.has("--stop-at-first");
  if (arguments.has("--expectations"))
    options.expectations = read_expectations(arguments.value("--expectations"));
  options.resume = arguments.has("--resume");
  options.subject = read_subject(options.subject_text);
  assume_declaration(options.subject);
  if (!options.subject.program.empty()) be_patient_with_program(arguments, options);
  if (arguments.has("--last-failed")) only_last_failed(options);
  options.keep_journal = arguments.has("--journal");
  options.journal_path =
      options.keep_journal ? arguments.value("--journal") : default_journal(options);
  if (options.resume && options.journal_path.empty())
    throw CommandError("--resume: no folder for journals (HOME is not set); name one by --journal");
  return options;
}

/// How far a run is, and how long it will take.
class ProgressLine {
 public:
  void show(const Progress& progress) {
    if (first_ < 0) {
      first_ = progress.done;
      first_seconds_ = progress.seconds;
    }
    std::string line =
        fmt::format("{} of {} problems", grouped(progress.done), grouped(progress.total));
    if (progress.failed > 0) line += fmt::format(", {} cases failed", grouped(progress.failed));
    const double seconds = progress.seconds - first_seconds_;
    const double rate = seconds > 0 ? static_cast<double>(progress.done - first_) / seconds : 0;
    if (progress.shrinking)
      line += progress.failed > 0 ? ", looking for the smallest cases" : "";
    else if (rate > 0)
      line += fmt::format(", {:.0f}/s, {:.0f} s left", rate,
                          static_cast<double>(progress.total - progress.done) / rate);
    line_.show(line, progress.done == progress.total);
  }
  void clear() { line_.clear(); }

 private:
  RewrittenLine line_;
  std::int64_t first_ = -1;
  double first_seconds_ = 0;
};

TerminalOptions terminal_options(bool brief) {
  TerminalOptions options;
  options.brief = brief;
  const char* term = std::getenv("TERM");
  if (::isatty(STDOUT_FILENO) != 1) return options;
  const char* no_colour = std::getenv("NO_COLOR");
  options.colour = !(no_colour && *no_colour) && term && std::string(term) != "dumb";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60)
    options.width = std::min<int>(size.ws_col, 120);
  return options;
}

/// Every report whole or not at all; false where one could not be written.
bool write_reports(const std::vector<Report>& reports, const Record& record) {
  bool all_written = true;
  for (const Report& report : reports) {
    const std::string text = report.format->write(record);
    if (report.path == "-") {
      std::fwrite(text.data(), 1, text.size(), stdout);
      continue;
    }
    if (const auto error = write_file(report.path, text)) {
      fmt::print(stderr, "attest: {}\n", *error);
      all_written = false;
    }
  }
  return all_written;
}

ExitCode print_cases(const RunOptions& options) {
  RunError error;
  const Result<std::vector<std::string>> lines = list_cases(options, error);
  if (!lines)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  for (const std::string& line : *lines) fmt::print("{}\n", line);
  return ExitCode::conformant;
}

/// A run that did not come to its end left its results in the journal.
void say_how_to_resume(const Record& record, const RunOptions& options) {
  if (record.verdict != SuiteVerdict::incomplete || options.journal_path.empty() ||
      ::access(options.journal_path.c_str(), F_OK) != 0)
    return;
  fmt::print(stderr, "attest: the run is incomplete; the same command with --resume goes on\n");
}

/// The codes themselves are mapped in main.cpp, where every way out of the command ends.
void check_exit_code_option(const Arguments& arguments) {
  const std::string code = arguments.value("--exit-code", "plain");
  if (code != "plain" && code != "bisect")
    throw CommandError("--exit-code wants plain or bisect, got '" + code + "'");
}

ExitCode run(const Arguments& arguments) {
  const std::vector<Report> reports = read_reports(arguments);
  const std::string pages = arguments.value("--pages");
  if (arguments.has("--pages"))
    if (const auto error = check_pages_folder(pages)) throw CommandError(*error);
  const Bar bar = read_bar(arguments);
  check_exit_code_option(arguments);
  RunOptions options = read_options(arguments);
  check_baseline(bar, options.subject);
  if (arguments.has("--list-only")) return print_cases(options);
  options.interrupted = &catch_interrupts();
  ProgressLine line;
  RunError error;
  Result<Record> record = run_suite(
      options, [&](const Progress& progress) { line.show(progress); }, error);
  line.clear();
  if (!record)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  hold_against_bar(bar, options, *record);
  keep_last_run(*record);
  if (!pages.empty()) write_pages(pages, *record, options.subject);
  const bool screen = std::none_of(reports.begin(), reports.end(),
                                   [](const Report& report) { return report.path == "-"; });
  const bool written = write_reports(reports, *record);
  if (screen)
    fmt::print("{}", terminal_report(*record, terminal_options(arguments.has("--brief"))));
  say_how_to_resume(*record, options);
  return written ? exit_code(*record) : ExitCode::suite_failed;
}

std::vector<Option> report_options() {
  std::vector<Option> options;
  for (const ReportFormat& format : report_formats())
    options.push_back({"--" + std::string(format.name), "FILE",
                       "write the record there: " + std::string(format.purpose) + "; - is stdout"});
  return options;
}

ATTEST_COMMAND(
    check,
    {
        .name = "check",
        .summary =
            "judge a kernel: run a suite on it, show what is wrong and the smallest input that "
            "shows it",
        .examples =
            "Examples:\n"
            "  attest check naive --suite smoke            a built-in kernel, in seconds\n"
            "  attest check ./libmine.so                   the first kernel of a library, about a "
            "minute\n"
            "  attest check ./libmine.so#fast --seed 2     another kernel of it, other problems\n"
            "  attest check ./libmine.so --filter 'MASK-*' --stop-at-first\n"
            "  attest check ./libmine.so --cases known.txt only these cases, one case line per "
            "line\n"
            "  attest check ./libmine.so --shard 1/3       a third of the list; 2/3 and 3/3 are "
            "the rest\n"
            "  attest check ./libmine.so --resume          go on where an interrupted run stopped\n"
            "  attest check ./libmine.so --last-failed     what failed last time, and nothing "
            "else\n"
            "  attest check ./libmine.so --json out.json --junit out.xml --markdown out.md\n"
            "  attest check ./libmine.so --baseline main.json --require scope.txt   in CI "
            "(examples/ci)\n"
            "  git bisect run attest check ./libmine.so --last-failed --exit-code bisect\n"
            "Exit codes: 0 conformant, 1 not, 2 usage, 3 the suite or the machine failed, 4 too "
            "little "
            "tested",
        .positionals = {{"SUBJECT",
                         "a built-in name (attest list), a library, library#kernel, FILE.py::NAME, "
                         "package.module::NAME",
                         false}},
        .options = {{"--cmd", "COMMAND", "in place of SUBJECT: a program that answers calls"},
                    {"--protocol", "NAME",
                     "that it speaks: jsonl (the default), safetensors (docs/worker.md)"},
                    {"--like", "NAME",
                     "what FILE.py::NAME takes its arguments like: torch_sdpa, flash_attn; as "
                     "FILE.py::NAME@NAME"},
                    {"--python", "INTERPRETER",
                     "of FILE.py::NAME; default $ATTEST_PYTHON, python3"},
                    {"--suite", "NAME", "smoke, quick (the default) or full"},
                    {"--seed", "N", "which random problems; default 1"},
                    {"--jobs", "N", "kernel hosts at once; default: one per core"},
                    {"--shard", "I/N", "only the I-th of N parts of the list"},
                    {"--time-budget", "TIME",
                     "cut the list after 60s, 10m, ...; the report says where. Under "
                     "CI=true a cut is exit code 3"},
                    {"--filter", "GLOB", "only the requirements whose id matches"},
                    {"--cases", "FILE", "check these cases instead of a suite"},
                    {"-x,--stop-at-first", "", "stop the list at the first failure"},
                    {"--expectations", "FILE", "failures that are known (docs/expectations.md)"},
                    {"--baseline", "FILE",
                     "an earlier record (--json): only causes that it lacks end in exit code 1"},
                    {"--require", "FILE",
                     "what the run must cover, a line each (docs/require.md); what is lost ends "
                     "in exit code 1"},
                    {"--pages", "DIR",
                     "a page for each cause: its smallest case in numbers, and a program in C "
                     "that makes the call without Attest"},
                    {"--last-failed", "",
                     "only the cases that failed in the last run of this kernel"},
                    {"--exit-code", "HOW",
                     "plain (the default), or bisect: 2, 3 and 4 become 125, which `git bisect "
                     "run` takes for: cannot be tested"},
                    {"--journal", "FILE",
                     "keep results there as they come; default: a file in ~/.cache/attest "
                     "that is deleted when the run is complete"},
                    {"--resume", "", "skip what the journal of the same run has already"},
                    {"--list-only", "", "print the cases that would run, and run none"},
                    {"--brief", "", "one line instead of a screen"}},
        .more_options = report_options,
        .run = run,
    });

}  // namespace
}  // namespace attest
