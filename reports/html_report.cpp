// SPDX-License-Identifier: Apache-2.0
// The page is drawn by html/report.js from the documents, which stand in it as JSON.
#include "reports/html_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attest_html_assets.hpp"
#include "reports/bench.hpp"
#include "reports/bench_fields.hpp"
#include "reports/cost.hpp"
#include "reports/cost_fields.hpp"
#include "reports/format.hpp"
#include "reports/json_document.hpp"
#include "reports/json_writer.hpp"
#include "reports/reader.hpp"
#include "reports/summary.hpp"
#include "reports/text.hpp"
#include "reports/verdict_table.hpp"

namespace attest {
namespace {

constexpr std::size_t kMostFailures = 200;  // of one run: a megabyte

/// Only what a person can look at; indices follow.
Record readable(const Record& record) {
  if (record.failures.size() <= kMostFailures) return record;
  Record kept = record;
  std::vector<bool> keep(record.failures.size());
  for (std::size_t i = 0; i < kMostFailures; ++i) keep[i] = true;
  for (const Cause& cause : record.causes)
    if (const auto at = static_cast<std::size_t>(cause.smallest); at < keep.size()) keep[at] = true;
  std::vector<int> place(record.failures.size());
  kept.failures.clear();
  for (std::size_t i = 0; i < record.failures.size(); ++i) {
    place[i] = static_cast<int>(kept.failures.size());
    if (keep[i]) kept.failures.push_back(record.failures[i]);
  }
  for (Cause& cause : kept.causes)
    if (const auto at = static_cast<std::size_t>(cause.smallest); at < place.size())
      cause.smallest = place[at];
  kept.notes.push_back(fmt::format("{} of {} failures are on this page", kept.failures.size(),
                                   record.failures.size()));
  return kept;
}

/// Nothing in it can end the element that it stands in.
std::string in_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

std::string documents_json(const ReportDocuments& documents) {
  json::OrderedJson all = json::OrderedJson::array();
  for (const Record& record : documents.records) all.push_back(json::to_json(readable(record)));
  for (const BenchRecord& bench : documents.benches) all.push_back(json::to_json(bench));
  for (const CostRecord& cost : documents.costs) all.push_back(json::to_json(cost));
  return in_script(json::line_of(all));
}

std::string page_title(const ReportDocuments& documents) {
  if (documents.records.size() == 1)
    return subject_name(documents.records[0]) + ": " +
           std::string(verdict_word(documents.records[0].verdict));
  return "Attest report";
}

/// White on it can be read.
const char* badge_colour(SuiteVerdict verdict) {
  switch (verdict) {
    case SuiteVerdict::conformant: return "#00664b";
    case SuiteVerdict::not_conformant: return "#a3320b";
    case SuiteVerdict::too_little_tested:
    case SuiteVerdict::incomplete: return "#7a5b00";
  }
  return "#555";
}

}  // namespace

Result<bool> add_document_file(const std::string& path, ReportDocuments& documents) {
  const Result<std::string> text =
      json::read_document_file(path, {"", "document", kMaxRecordBytes});
  if (!text) return Error{text.error()};
  const auto add = [&](auto document, auto& list) -> Result<bool> {
    if (!document) return Error{plain(path) + ": " + document.error()};
    list.push_back(std::move(*document));
    return true;
  };
  const std::string schema = json::schema_of(*text);
  if (schema.rfind("attest.bench/", 0) == 0) return add(read_bench(*text), documents.benches);
  if (schema.rfind("attest.cost/", 0) == 0) return add(read_cost(*text), documents.costs);
  return add(read_record(*text), documents.records);
}

std::string html_report(const ReportDocuments& documents) {
  const std::string title = xml_text(page_title(documents));
  std::string summary;
  for (const Record& record : documents.records)
    summary += "<p>" +
               xml_text(subject_name(record) + ": " + std::string(verdict_word(record.verdict)) +
                        ", " + verdict_sentence(record)) +
               "</p>\n";
  return "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n<title>" +
         title + "</title>\n<style>" + kReportCss + "</style>\n</head>\n<body>\n<h1>" + title +
         "</h1>\n<main id=\"page\"></main>\n<noscript>" + summary +
         "<p>The rest of this page is drawn by JavaScript.</p></noscript>\n"
         "<script type=\"application/json\" id=\"documents\">" +
         documents_json(documents) + "</script>\n<script>" + kReportJs +
         "</script>\n</body>\n</html>\n";
}

std::string badge_svg(const Record& record) {
  std::string word(name(record.verdict));
  std::replace(word.begin(), word.end(), '_', ' ');
  const std::size_t left = 46, right = 14 + 7 * word.size(), width = left + right;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"20\" role=\"img\" "
      "aria-label=\"attest: {1}\">\n<title>attest: {1}, {5}</title>\n"
      "<rect width=\"{2}\" height=\"20\" rx=\"3\" fill=\"#3a424b\"/>\n"
      "<rect x=\"{2}\" width=\"{3}\" height=\"20\" rx=\"3\" fill=\"{4}\"/>\n"
      "<g fill=\"#fff\" text-anchor=\"middle\" font-family=\"Verdana,sans-serif\" "
      "font-size=\"11\">\n<text x=\"{6}\" y=\"14\">attest</text>\n"
      "<text x=\"{7}\" y=\"14\">{1}</text>\n</g>\n</svg>\n",
      width, word, left, right, badge_colour(record.verdict),
      xml_escape(subject_name(record) + ", suite " + plain(record.suite)), left / 2,
      left + right / 2);
}

std::string markdown_report(const ReportDocuments& documents) {
  std::string text;
  const ReportFormat* markdown = find_report_format("markdown");
  if (documents.records.size() > 1) text += verdict_table(documents.records, TableStyle::markdown);
  if (documents.records.size() == 1) text += markdown->write(documents.records[0]);
  for (const BenchRecord& bench : documents.benches)
    text += (text.empty() ? "" : "\n") + markdown_table(bench_table(bench));
  for (const CostRecord& cost : documents.costs)
    text += (text.empty() ? "" : "\n") + cost_markdown(cost, false);
  return text;
}

namespace {

std::string write(const Record& record) { return html_report({{record}, {}, {}}); }

ATTEST_REPORT_FORMAT(html, {.name = "html",
                            .extension = "html",
                            .purpose = "a page to click through, in one file",
                            .write = write});

}  // namespace
}  // namespace attest
