// SPDX-License-Identifier: Apache-2.0
// One page of HTML from any set of records, times and costs, and a badge.
#pragma once

#include <string>
#include <vector>

#include "attest/bench_record.hpp"
#include "attest/cost.hpp"
#include "attest/record.hpp"
#include "attest/result.hpp"

namespace attest {

struct ReportDocuments {
  std::vector<Record> records;
  std::vector<BenchRecord> benches;
  std::vector<CostRecord> costs;
};

/// Adds a file of any of the three kinds, told by its "schema". The error is one line.
Result<bool> add_document_file(const std::string& path, ReportDocuments& documents);

/// Self-contained: no network, no other file. Verdicts first, then each run with its matrix and
/// failures, accuracy side by side, times, costs. Of a run with more failures than a person reads,
/// the smallest of each cause and the first 200 are kept.
std::string html_report(const ReportDocuments& documents);

/// An SVG of 20 pixels height: "attest | conformant".
std::string badge_svg(const Record& record);

/// For a pull-request comment.
std::string markdown_report(const ReportDocuments& documents);

}  // namespace attest
