// SPDX-License-Identifier: Apache-2.0
// attest report: records, times and costs as one page.
#include <fmt/format.h>

#include "reports/html_report.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

ExitCode run(const Arguments& arguments) {
  const std::string html = arguments.value("--html"), markdown = arguments.value("--markdown"),
                    badge = arguments.value("--badge");
  if (html.empty() && markdown.empty() && badge.empty())
    throw CommandError("report wants --html, --markdown or --badge FILE");
  ReportDocuments documents;
  for (const std::string& path : arguments.positionals.at("FILE"))
    if (const Result<bool> added = add_document_file(path, documents); !added)
      throw CommandError(added.error());
  if (!badge.empty() && documents.records.size() != 1)
    throw CommandError(
        fmt::format("--badge wants one record of attest check, not {}", documents.records.size()));
  if (!html.empty()) write_output(html, html_report(documents));
  if (!markdown.empty()) write_output(markdown, markdown_report(documents));
  if (!badge.empty()) write_output(badge, badge_svg(documents.records[0]));
  return ExitCode::conformant;
}

ATTEST_COMMAND(
    report,
    {
        .name = "report",
        .summary = "one page of HTML from records, times and costs",
        .examples =
            "Examples:\n"
            "  attest report naive.json chunked.json times.json --html report.html\n"
            "  attest report mine.json --markdown comment.md --badge badge.svg\n"
            "The page is one file: it needs no network, works with the keyboard, and prints.",
        .positionals = {{"FILE", "what check, bench or cost wrote by --json", true, true}},
        .options = {{"--html", "FILE", "write the page there"},
                    {"--markdown", "FILE", "write tables for a pull-request comment there"},
                    {"--badge", "FILE", "write an SVG with the verdict of one record there"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
