// SPDX-License-Identifier: Apache-2.0
// attest list: what there is to check with, and to check.
#include <fmt/ranges.h>

#include <algorithm>

#include "attest/names.hpp"
#include "harness/hypothesis.hpp"
#include "harness/requirement.hpp"
#include "harness/suite.hpp"
#include "reports/format.hpp"
#include "reports/reader.hpp"
#include "reports/text.hpp"
#include "reports/verdict_table.hpp"
#include "tools/command.hpp"

namespace attest {

namespace {

constexpr std::size_t kWidth = 100;

void print_indented(const std::string& text, std::size_t indent) {
  for (const std::string& line : wrap(text, kWidth - indent))
    fmt::print("{:{}}{}\n", "", indent, line);
}

void print_entry(const std::string& name, const std::string& text) {
  constexpr std::size_t kIndent = 24;
  bool first = true;
  for (const std::string& line : wrap(text, kWidth - kIndent)) {
    fmt::print("  {:<{}}{}\n", first ? name : "", kIndent - 2, line);
    first = false;
  }
}

void list_implementations() {
  fmt::print("Implementations (attest check NAME)\n");
  for (const std::string& name : built_in_names()) {
    OpenError error;
    const Result<SubjectSpec> spec = resolve_subject(name);
    const std::unique_ptr<Subject> subject = spec ? open_in_host(*spec, error) : nullptr;
    if (!subject) {
      print_entry(name, "cannot be loaded: " + plain(spec ? error.message : spec.error()));
      continue;
    }
    fmt::print("  {} {}\n", plain(subject->kernel_name()), plain(subject->version()));
    print_indented(plain(print_declaration(subject->declaration())), 4);
  }
}

void list_requirements() {
  fmt::print("Requirements\n");
  for (const Requirement& requirement : requirements())
    print_entry(requirement.id,
                requirement.sentence + (requirement.level == Level::advisory ? " (advisory)" : ""));
}

void list_hypotheses() {
  fmt::print("Hypotheses of the diagnosis (what a wrong output is compared with)\n");
  std::string family;
  for (const Hypothesis& hypothesis : hypotheses()) {
    if (family_of(hypothesis.id) == family) continue;
    family = family_of(hypothesis.id);
    print_entry(family, hypothesis.sentence);
  }
}

void list_suites() {
  fmt::print("Suites (--suite NAME)\n");
  for (const Suite& suite : suites())
    print_entry(std::string(suite.name),
                fmt::format("{}: {} problems, each for all requirements that speak of it, and more "
                            "of their own",
                            suite.purpose, grouped(suite.problems)));
}

void list_families() {
  fmt::print("Data families (data=NAME in a case line)\n");
  std::vector<std::string> names;
  for (const std::string_view family : kNamesOf<Family>) names.emplace_back(family);
  print_indented(join(names, " "), 2);
}

void list_features() {
  fmt::print("Features (what a declaration may serve, and a report counts by)\n");
  std::vector<std::string> names;
  for (int f = 0; f < kNumFeatures; ++f) names.emplace_back(name(static_cast<Feature>(f)));
  print_indented(join(names, " "), 2);
}

void list_formats() {
  fmt::print("Report formats (--NAME FILE)\n");
  for (const ReportFormat& format : report_formats())
    print_entry(std::string(format.name), std::string(format.purpose));
}

struct Section {
  const char* name;
  void (*print)();
  bool always = true;  ///< false: only where asked for, being long
};
constexpr Section kSections[] = {{"implementations", list_implementations},
                                 {"requirements", list_requirements},
                                 {"hypotheses", list_hypotheses, false},
                                 {"suites", list_suites},
                                 {"families", list_families},
                                 {"features", list_features},
                                 {"formats", list_formats}};

void print_sections(const std::vector<std::string>& wanted) {
  for (const std::string& word : wanted) {
    std::vector<std::string> names;
    for (const Section& section : kSections) names.emplace_back(section.name);
    if (std::find(names.begin(), names.end(), word) == names.end())
      throw CommandError("nothing to list of the name '" + word + "'; there are " +
                         join(names, ", "));
  }
  bool first = true;
  for (const Section& section : kSections) {
    const bool named = std::find(wanted.begin(), wanted.end(), section.name) != wanted.end();
    if (wanted.empty() ? !section.always : !named) continue;
    if (!first) fmt::print("\n");
    first = false;
    section.print();
  }
}

ExitCode run(const Arguments& arguments) {
  const std::vector<std::string>& words = arguments.positionals.at("WHAT");
  if (arguments.has("--names")) {
    if (words == std::vector<std::string>{"hypotheses"}) {
      for (const Hypothesis& hypothesis : hypotheses())
        fmt::print("{} {}\n", hypothesis.id, fmt::join(hypothesis.explains, " "));
      return ExitCode::conformant;
    }
    for (const std::string& name : built_in_names()) fmt::print("{}\n", name);
    return ExitCode::conformant;
  }
  if (!arguments.has("--records")) {
    print_sections(words);
    return ExitCode::conformant;
  }
  if (words.empty()) throw CommandError("--records wants the files of records (--json)");
  std::vector<Record> records;
  for (const std::string& path : words) {
    Result<Record> record = read_record_file(path);
    if (!record) throw CommandError(record.error());
    records.push_back(std::move(*record));
  }
  fmt::print("{}", verdict_table(records));
  return ExitCode::conformant;
}

ATTEST_COMMAND(
    list,
    {
        .name = "list",
        .summary =
            "built-in kernels, requirements, suites, data families, features, report formats",
        .examples =
            "Examples:\n"
            "  attest list                      everything\n"
            "  attest list requirements suites  only these\n"
            "  attest list --names              the built-in kernels, one a line, for scripts\n"
            "  attest list --records a.json b.json   a table of verdicts",
        .positionals = {{"WHAT",
                         "implementations, requirements, hypotheses, suites, families, features or "
                         "formats",
                         false, true}},
        .options = {{"--names", "", "only the names of the built-in kernels, or of hypotheses"},
                    {"--records", "", "the words are records: print their verdicts as a table"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
