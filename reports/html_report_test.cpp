// SPDX-License-Identifier: Apache-2.0
#include "reports/html_report.hpp"

#include <gtest/gtest.h>

#include "reports/atomic_file.hpp"
#include "reports/bench.hpp"
#include "reports/cost.hpp"
#include "reports/format.hpp"
#include "reports/python_test.hpp"
#include "reports/sample_records_test.hpp"
#include "reports/text_search_test.hpp"

namespace attest {
namespace {

/// Whatever a kernel says stays text: two scripts, one style, and what the page itself has.
TEST(HtmlReport, LetsNoForeignTextOutOfItsPlace) {
  const std::string page = html_report({{hostile_sample(), failing_sample()}, {}, {}});
  EXPECT_EQ(count(page, "<script"), 2u);
  EXPECT_EQ(count(page, "</script>"), 2u);
  EXPECT_EQ(count(page, "<style"), 1u);
  EXPECT_EQ(count(page, "<img"), 0u);
  EXPECT_EQ(count(page, "http"),
            count(page, "http-equiv") + count(page, "http://www.w3.org/2000/svg"));
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

/// Python's parser finds the documents in it, each as it was.
TEST(HtmlReport, HoldsTheDocumentsAsTheyAre) {
  const std::string path = testing::TempDir() + "attest-report.html";
  ASSERT_EQ(write_file(path, html_report({{failing_sample()}, {BenchRecord{}}, {}})), std::nullopt);
  const Output output =
      python("-c \"import json,re,sys; t=open('" + path +
             "',encoding='utf-8').read(); "
             "d=json.loads(re.search(r'id=.documents.>(.*?)</script>',t,re.S)[1]); "
             "print([x['schema'] for x in d], len(d[0]['failures']))\"");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_EQ(output.text, "['attest.record/1', 'attest.bench/1'] " +
                             std::to_string(failing_sample().failures.size()) + "\n");
}

TEST(HtmlReport, OfARunWithTenThousandFailuresStaysBelowTwoMegabytes) {
  Record record = failing_sample();
  const Failure failure = record.failures[0];
  record.failures.assign(10'000, failure);
  record.causes[0].smallest = 9'999;
  const std::string page = html_report({{record}, {}, {}});
  EXPECT_LT(page.size(), std::size_t{2} << 20);
  EXPECT_NE(page.find("201 of 10000 failures are on this page"), std::string::npos);
  EXPECT_NE(page.find("\"smallest\":200"), std::string::npos);
}

TEST(HtmlReport, IsAReportFormatToo) {
  const ReportFormat* html = find_report_format("html");
  ASSERT_TRUE(html);
  EXPECT_EQ(html->write(failing_sample()), html_report({{failing_sample()}, {}, {}}));
}

TEST(Documents, AreToldByTheirSchema) {
  const auto file = [](const char* name, const std::string& text) {
    const std::string path = testing::TempDir() + "attest-" + name;
    EXPECT_EQ(write_file(path, text), std::nullopt);
    return path;
  };
  CostRecord cost;
  cost.phase = "prefill";
  cost.variants.emplace_back();
  ReportDocuments documents;
  for (const std::string& path :
       {file("a.json", find_report_format("json")->write(failing_sample())),
        file("b.json", bench_json(BenchRecord{})), file("c.json", cost_json(cost))}) {
    const auto added = add_document_file(path, documents);
    EXPECT_TRUE(added) << added.error();
  }
  EXPECT_EQ(documents.records.size(), 1u);
  EXPECT_EQ(documents.benches.size(), 1u);
  EXPECT_EQ(documents.costs.size(), 1u);
  EXPECT_FALSE(html_report(documents).empty());
  EXPECT_FALSE(markdown_report(documents).empty());
  const auto future =
      add_document_file(file("d.json", "{\"schema\": \"attest.bench/7\"}"), documents);
  EXPECT_NE(future.error().find("'attest.bench/7' is not the one read here"), std::string::npos);
  const auto foreign = add_document_file(file("e.json", "[1, 2]"), documents);
  EXPECT_NE(foreign.error().find("not a record of attest"), std::string::npos);
}

TEST(Badge, IsAnSvgThatSaysTheVerdict) {
  const std::string path = testing::TempDir() + "attest-badge.svg";
  for (const Record& record : {conformant_sample(), hostile_sample()}) {
    ASSERT_EQ(write_file(path, badge_svg(record)), std::nullopt);
    const Output output = python("-c \"import xml.dom.minidom as m; print(m.parse('" + path +
                                 "').documentElement.getAttribute('aria-label'))\"");
    EXPECT_EQ(output.exit_code, 0) << output.text;
    EXPECT_EQ(output.text.rfind("attest: ", 0), 0u) << output.text;
  }
}

}  // namespace
}  // namespace attest
