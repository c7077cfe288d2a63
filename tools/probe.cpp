// SPDX-License-Identifier: Apache-2.0
// attest probe: what a kernel does that says nothing of itself, and a declaration to paste.
#include "properties/probe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/atomic_file.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/probe_subject.hpp"

namespace attest {

ProbeReport probe_subject(const SubjectSpec& spec) {
  OpenError error;
  const Result<ProbeReport> report =
      probe([&spec, &error](const std::string& declaration, OpenError& of_open) {
        SubjectSpec declared = spec;
        declared.declaration = declaration;
        auto subject = open_in_host(declared, of_open);
        if (!subject && of_open.machine) subject = open_in_host(declared, of_open);
        error = of_open;
        return subject;
      });
  if (!report)
    throw CommandError(report.error(), error.machine ? ExitCode::suite_failed : ExitCode::usage);
  return *report;
}

void assume_declaration(SubjectSpec& spec) {
  OpenError error;
  if (open_in_host(spec, error) || !error.undeclared) return;
  const ProbeReport report = probe_subject(spec);
  spec.declaration = print_declaration(report.declaration);
  fmt::print(stderr, "{} declares nothing; probed, and checked as if it declared:\n  {}\n",
             plain(report.kernel), spec.declaration);
}

namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string as_json(const ProbeReport& report) {
  std::string text = "{\n \"schema\": \"attest.probe/1\",\n";
  text += fmt::format(" \"kernel\": {},\n \"version\": {},\n \"declaration\": {},\n",
                      quoted(plain(report.kernel)), quoted(plain(report.version)),
                      quoted(print_declaration(report.declaration)));
  text += " \"findings\": [";
  const char* separator = "\n";
  for (const ProbeFinding& finding : report.findings) {
    text += fmt::format("{}  {{\"topic\": {}, \"answer\": {}, \"evidence\": {}}}", separator,
                        quoted(finding.topic), quoted(plain(finding.answer)),
                        quoted(plain(finding.evidence)));
    separator = ",\n";
  }
  return text + "\n ]\n}\n";
}

/// The words of a declaration that are no features: those are compared one by one.
std::vector<std::string> plain_words(Declaration declaration) {
  declaration.features.fill(false);
  declaration.base_full = declaration.layout_bhld = true;
  std::vector<std::string> words;
  std::string word;
  for (const char c : print_declaration(declaration) + " ") {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  return words;
}

void print_differences(const Declaration& own, const Declaration& probed) {
  bool any = false;
  const auto say = [&any](bool declared, std::string_view what) {
    if (!any) fmt::print("\nIts own declaration differs:\n");
    any = true;
    fmt::print("  {}  {}\n", declared ? "it declares    " : "the probe found", what);
  };
  for (int f = 0; f < kNumFeatures; ++f) {
    const auto feature = static_cast<Feature>(f);
    if (own.has(feature) != probed.has(feature)) say(own.has(feature), name(feature));
  }
  const std::vector<std::string> left = plain_words(own), right = plain_words(probed);
  for (const std::string& word : left)
    if (std::find(right.begin(), right.end(), word) == right.end()) say(true, plain(word));
  for (const std::string& word : right)
    if (std::find(left.begin(), left.end(), word) == left.end()) say(false, word);
  if (!any) fmt::print("\nIt declares just this.\n");
}

ExitCode run(const Arguments& arguments) {
  const std::string path = arguments.value("--json");
  if (!path.empty() && path != "-")
    if (const auto error = check_writable(path)) throw CommandError(*error);
  const SubjectSpec spec = read_subject(arguments.positional("SUBJECT"));
  OpenError error;
  const std::unique_ptr<Subject> own = open_in_host(spec, error);
  if (!own && !error.undeclared)
    throw CommandError(error.message, error.machine ? ExitCode::suite_failed : ExitCode::usage);
  const ProbeReport report = probe_subject(spec);
  const std::string declaration = print_declaration(report.declaration);
  if (path == "-") {
    fmt::print("{}", as_json(report));
    return ExitCode::conformant;
  }
  if (!path.empty())
    if (const auto trouble = write_file(path, as_json(report)))
      throw CommandError(*trouble, ExitCode::suite_failed);
  fmt::print("{} {}\n\n", plain(report.kernel), plain(report.version));
  for (const ProbeFinding& finding : report.findings) {
    fmt::print("{:<30} {}\n", finding.topic, plain(finding.answer));
    if (arguments.has("--evidence") && !finding.evidence.empty())
      fmt::print("{:<30}   {}\n", "", plain(finding.evidence));
  }
  fmt::print("\nDeclaration:\n{}\n", declaration);
  if (own) print_differences(own->declaration(), report.declaration);
  return ExitCode::conformant;
}

ATTEST_COMMAND(
    probe,
    {
        .name = "probe",
        .summary = "find out what a kernel does that says nothing of itself",
        .examples =
            "Examples:\n"
            "  attest probe ./libmine.so             what it takes and does, and a declaration\n"
            "  attest probe ./libmine.so --evidence  with the call that shows each\n"
            "A kernel's own declaration is not looked at, only compared in the end.",
        .positionals = {{"SUBJECT",
                         "a built-in name (attest list), a library, library#kernel, FILE.py::NAME, "
                         "jsonl:PROGRAM"}},
        .options = {{"--evidence", "", "show what each answer rests on"},
                    {"--json", "FILE", "write all of it there; - is stdout"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
