// SPDX-License-Identifier: Apache-2.0
#include "harness/demands.hpp"

#include <gtest/gtest.h>

#include "attest/text.hpp"
#include "harness/outcome.hpp"

namespace attest {
namespace {

const std::vector<std::string> kRequirements{"MASK-NOLEAK", "ORACLE-O"};

Record covering() {
  Record record;
  record.verdict = SuiteVerdict::conformant;
  record.counts.pass = 990;
  record.counts.warn = 5;
  record.counts.fail = 5;
  record.counts.unsupported = 5000;
  record.scope.dtypes = {"f32"};
  record.scope.features = {"causal", "gqa"};
  record.scope.head_dims = {"1-63", "64", "128"};
  record.scope.not_tested = {"bf16: not declared", "softcap: refused in 3 of 3 cases"};
  record.scope.refused_share = 0.25;
  RequirementResult tested{.id = "ORACLE-O", .level = "required"};
  tested.counts.pass = 1;
  record.requirements = {tested};
  return record;
}

const Declaration kDeclaration =
    *parse_declaration("dtype=f32,bf16 base=full,causal gqa deterministic precision=f32");

/// What the line comes to: "met", or why not.
std::string outcome(const std::string& line, Record record = covering()) {
  const auto demands = parse_demands(line, kRequirements);
  if (!demands) return demands.error();
  check_demands(*demands, kDeclaration, record);
  const DemandResult& result = record.demands.at(0);
  EXPECT_EQ(result.met, result.detail.empty());
  EXPECT_EQ(exit_code(record), result.met ? ExitCode::conformant : ExitCode::failed);
  return result.met ? "met" : result.detail;
}

TEST(Demands, OfEachKindMetAndLost) {
  const struct {
    const char *line, *outcome;
  } kTable[] = {
      {"dtype f32", "met"},
      {"dtype bf16", "not declared"},
      {"dtype f64", "not tested"},
      {"feature gqa", "met"},
      {"feature softcap", "refused in 3 of 3 cases"},
      {"head_dim 64", "met"},
      {"head_dim 1-64", "met"},
      {"head_dim 60-128", "no case has head_dim 65"},
      {"head_dim 129", "no case has head_dim 129"},
      {"promise deterministic", "met"},
      {"promise batch_invariant", "not promised"},
      {"promise memory=linear", "not promised"},
      {"precision f32=f32", "met"},
      {"precision f32=f32_tf32", "met"},  // f32 is tighter
      {"precision bf16=f32", "bf16 is not declared"},
      {"requirement ORACLE-O", "met"},
      {"requirement MASK-NOLEAK", "it is no part of this run"},
      {"cases >= 1000", "met"},
      {"cases >= 1001", "1000 cases were judged"},
      {"refused <= 0.25", "met"},
      {"refused <= 0.1", "0.25 of the declared cases were refused"},
  };
  for (const auto& row : kTable) EXPECT_EQ(outcome(row.line), row.outcome) << row.line;
}

TEST(Demands, ARequirementMustHaveJudgedSomething) {
  Record record = covering();
  record.requirements[0].counts = {};
  record.requirements[0].counts.unsupported = 7;
  EXPECT_EQ(outcome("requirement ORACLE-O", record), "no case of it was judged");
  record.requirements[0].skipped = "not promised: masked_nan_safe";
  EXPECT_EQ(outcome("requirement ORACLE-O", record), "not promised: masked_nan_safe");
}

TEST(Demands, ALooserPrecisionIsLost) {
  Record record = covering();
  record.scope.dtypes = {"f32", "bf16"};
  const auto demands =
      parse_demands("precision f32=f32\nprecision bf16=mma_f32acc_f32p\nprecision bf16=mma_f32acc",
                    kRequirements);
  ASSERT_TRUE(demands) << demands.error();
  const auto check = [&](const std::string& declaration) {
    record.demands.clear();
    check_demands(*demands, *parse_declaration(declaration), record);
    std::string met;
    for (const DemandResult& demand : record.demands) met += demand.met ? "+" : "-";
    return met;
  };
  EXPECT_EQ(check("dtype=f32,bf16 precision=f32"), "+++");
  EXPECT_EQ(check("dtype=f32,bf16 precision=mma_f32acc_f32p"), "+++");
  EXPECT_EQ(check("dtype=f32,bf16 precision=mma_f32acc"), "+-+");
  EXPECT_EQ(check("dtype=f32,bf16 precision=f32_tf32"), "--+");
}

TEST(Demands, APresetWithLooserNumbersIsNotThePreset) {
  Record record = covering();
  const auto demands = parse_demands("precision f32=f32", kRequirements);
  ASSERT_TRUE(demands);
  const auto loosened = parse_declaration("dtype=f32 precision=f32 profile.u_acc=0x1p-12");
  ASSERT_TRUE(loosened) << loosened.error();
  check_demands(*demands, *loosened, record);
  EXPECT_FALSE(record.demands[0].met);
  EXPECT_EQ(record.demands[0].detail, "f32 is declared with other numbers");
}

TEST(Demands, CommentsBlanksAndLineNumbers) {
  const auto demands =
      parse_demands("# scope\n\n  dtype \t f32  # always\r\ncases >= 5\n", kRequirements);
  ASSERT_TRUE(demands) << demands.error();
  ASSERT_EQ(demands->size(), 2u);
  EXPECT_EQ((*demands)[0].line, "dtype f32");
  EXPECT_EQ((*demands)[0].line_number, 3);
  EXPECT_EQ((*demands)[1].line_number, 4);
  EXPECT_EQ((*demands)[1].first, 5);
}

TEST(Demands, ErrorsNameLineColumnAndWord) {
  const struct {
    std::string text, error;
  } kTable[] = {
      {"", "requires nothing"},
      {"# nothing\n", "requires nothing"},
      {"speed 9",
       "line 1, column 1: 'speed' cannot be required; dtype, feature, head_dim, promise, "
       "precision, requirement, cases, refused can"},
      {"dtype", "line 1, column 1: dtype wants one word, got 0"},
      {"dtype f32 bf16", "line 1, column 1: dtype wants one word, got 2"},
      {"dtype f33", "line 1, column 7: 'f33' is no dtype"},
      {"feature speed", "line 1, column 9: 'speed' is no feature"},
      {"promise much", "line 1, column 9: 'much' is no promise"},
      {"\n requirement ORACLE-Q", "line 2, column 14: 'ORACLE-Q' is no requirement"},
      {"head_dim 0", "line 1, column 10: '0' is no head dim and no range of them, such as 64-128"},
      {"head_dim 9-8",
       "line 1, column 10: '9-8' is no head dim and no range of them, such as 64-128"},
      {"head_dim 1-99999999",
       "line 1, column 10: '1-99999999' is no head dim and no range of them, such as 64-128"},
      {"precision bf16", "line 1, column 11: 'bf16' is not of the form bf16=mma_f32acc"},
      {"precision bf16=good", "line 1, column 11: 'good' is no precision"},
      {"cases 1000", "line 1, column 1: cases wants >= and a number"},
      {"cases <= 5", "line 1, column 1: cases wants >= and a number"},
      {"cases >= 0", "line 1, column 10: '0' is no number of cases"},
      {"refused <= 2", "line 1, column 12: '2' is no share from 0 to 1"},
      {"refused <= nan", "line 1, column 12: 'nan' is no share from 0 to 1"},
      {"dtype f\x01", "line 1, column 8: a byte that is not printable ASCII"},
  };
  for (const auto& row : kTable) {
    const auto demands = parse_demands(row.text, kRequirements);
    ASSERT_FALSE(demands) << row.text;
    EXPECT_EQ(demands.error(), row.error);
  }
  EXPECT_FALSE(parse_demands(std::string(kMostTextBytes + 1, '\n'), kRequirements));
}

}  // namespace
}  // namespace attest
