// SPDX-License-Identifier: Apache-2.0
// Hand-made records for the tests of the formats: one for each verdict, and one that is hostile.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "attest/record.hpp"

namespace attest {

inline Record bare_sample() {
  Record record;
  record.tool_version = "0.1.0";
  record.command = "attest check naive --suite quick --seed 1";
  record.subject = {.name = "naive",
                    .version = "1.0",
                    .path = "/usr/lib/attest/naive.so",
                    .declaration = "dtype=f64,f32,f16,bf16 features=all layout=any",
                    .precision = "f64=f32 f32=f32 f16=mma_f32acc bf16=mma_f32acc",
                    .built_in = true};
  record.machine = {.cpu = "AMD EPYC 9B45",
                    .os = "Debian GNU/Linux 12 (bookworm)",
                    .compiler = "g++ 12.2.0",
                    .simd = "AVX3_DL",
                    .cores = 2,
                    .memory_bytes = 8'352'141'312,
                    .commit = "0123456789ab"};
  record.suite = "quick";
  record.seed = 1;
  record.shard = "1/1";
  record.started = "2026-01-31T12:00:00Z";
  record.wall_seconds = 48.21;
  record.cpu_seconds = 93.5;
  return record;
}

inline std::vector<std::string> sample_features() {
  return {"plain",
          "gqa",
          "v_head_dim",
          "causal",
          "prefix",
          "align_top_left",
          "align_bottom_right",
          "align_q_offset",
          "window_left",
          "window_right",
          "global_tokens",
          "seqlens_q",
          "seqlens_k",
          "left_pad_q",
          "left_pad_k",
          "packed",
          "mask",
          "blocks",
          "bias",
          "bias_neg_inf",
          "alibi_absolute",
          "alibi_signed",
          "alibi_key_anchored",
          "alibi_inside_softcap",
          "rope_interleaved",
          "rope_half",
          "rope_partial",
          "rope_linear",
          "rope_ntk",
          "scale",
          "scale_nonpositive",
          "softcap",
          "sink",
          "dropout",
          "lse",
          "layout_blhd",
          "layout_bhdl",
          "layout_strided",
          "layout_kv_packed",
          "layout_broadcast",
          "empty_dims"};
}

inline Record conformant_sample() {
  Record record = bare_sample();
  record.verdict = SuiteVerdict::conformant;
  record.counts = {.pass = 20'244, .warn = 6, .unsupported = 50, .not_judged = 12};
  record.scope = {.dtypes = {"f64", "f32", "f16", "bf16"},
                  .features = sample_features(),
                  .head_dims = {"1-130"},
                  .precision = record.subject.precision,
                  .not_tested = {},
                  .cut = "",
                  .refused_share = 0.0025};
  record.pairs = {.possible = 3'415,
                  .covered = 3'413,
                  .triples_possible = 1'206,
                  .triples_covered = 1'190,
                  .missing = {"prefix + layout_broadcast", "no lse + rope_ntk"},
                  .excluded = {}};
  record.requirements = {
      {.id = "AGREE-LSE",
       .sentence = "lse agrees with the oracle within the derived tolerance",
       .level = "required",
       .counts = {.pass = 10'120, .warn = 2},
       .by_dtype = {{"bf16", {.pass = 2'530, .warn = 1}},
                    {"f16", {.pass = 2'530}},
                    {"f32", {.pass = 2'530, .warn = 1}},
                    {"f64", {.pass = 2'530}}},
       .skipped = "",
       .detail = ""},
      {.id = "DETERMINISM",
       .sentence = "two runs of the same call give the same bits",
       .level = "required",
       .counts = {},
       .by_dtype = {},
       .skipped = "not promised: deterministic",
       .detail = ""},
      {.id = "MASK-NOLEAK",
       .sentence = "no finite change of an invisible key changes a bit",
       .level = "required",
       .counts = {.pass = 10'124, .warn = 4, .unsupported = 50, .not_judged = 12},
       .by_dtype = {{"f32", {.pass = 10'124, .warn = 4, .unsupported = 50, .not_judged = 12}}},
       .skipped = "",
       .detail = ""}};
  int cases = 180;
  for (const std::string& feature : sample_features())
    for (const char* dtype : {"f64", "f32", "f16", "bf16"})
      record.matrix.push_back(
          {.feature = feature, .dtype = dtype, .cases = cases += 7, .unsupported = 0});
  record.matrix.back() = {.feature = "empty_dims", .dtype = "bf16", .cases = 0, .unsupported = 50};
  record.ratios = {
      {"o", "f64", 2'530, 81'003, 0.06, 0.21, 0.40, 0.88, "attention.forward dtype=f64 lk=9"},
      {"o", "f32", 2'530, 81'003, 0.09, 0.23, 0.29, 0.43, "attention.forward lq=3 lk=65 d=31"},
      {"o", "f16", 2'530, 81'003, 0.34, 0.57, 0.99, 0.997, "attention.forward dtype=f16 lk=3"},
      {"o", "bf16", 2'530, 81'003, 0.34, 0.59, 1.0, 0.999, "attention.forward dtype=bf16 lk=2"},
      {"lse", "f64", 2'530, 9'120, 0.06, 0.15, 0.21, 0.26, "attention.forward dtype=f64"},
      {"lse", "f32", 2'530, 9'120, 0.07, 0.16, 0.21, 0.26, "attention.forward lk=4"},
      {"lse", "f16", 2'530, 9'120, 0.07, 0.17, 0.23, 0.97, "attention.forward dtype=f16"},
      {"lse", "bf16", 2'530, 9'120, 0.07, 0.16, 0.23, 0.98, "attention.forward dtype=bf16"}};
  record.audit = {.rows = 1'204,
                  .elements = 77'056,
                  .outside = 0,
                  .worst_fraction_of_radius = 0.31,
                  .worst_radius_over_tolerance = 2.1e-5,
                  .first_outside = ""};
  record.memory = {{.operation = "backward",
                    .case_line = "attention.backward lq=8192 lk=8192 d=64 base=causal",
                    .q_len = 8192,
                    .kv_len = 8192,
                    .tensor_bytes = 16'809'984,
                    .extra_bytes = 11'360'304}};
  record.kv_cache = {{.heads = "GQA",
                      .case_line = "attention.decode hq=32 hkv=8 lq=128 lk=256 d=128",
                      .num_heads = 32,
                      .num_kv_heads = 8,
                      .head_dim = 128,
                      .rows = 256,
                      .dtype = "f32",
                      .expected_bytes = 2'097'152,
                      .written_bytes = 2'097'152}};
  return record;
}

inline Record failing_sample() {
  Record record = conformant_sample();
  record.command = "attest check ./libmine.so --suite quick --seed 1";
  record.verdict = SuiteVerdict::not_conformant;
  record.subject = {.name = "mine",
                    .version = "0.3",
                    .path = "./libmine.so",
                    .declaration =
                        "dtype=f32,bf16 head_dim=1..128 base=full,causal "
                        "align=bottom_right gqa window=left lse",
                    .precision = "f32=f32 bf16=mma_f32acc",
                    .built_in = false};
  record.counts = {.pass = 19'700, .warn = 6, .fail = 540, .crash = 16, .unsupported = 50};
  record.scope.dtypes = {"f32", "bf16"};
  record.scope.features = {"gqa", "causal", "align_bottom_right", "window_left", "lse"};
  record.scope.head_dims = {"1-128"};
  record.scope.precision = record.subject.precision;
  record.scope.not_tested = {"f64 f16: not declared",
                             "mask: not declared",
                             "bias: not declared",
                             "alibi: not declared",
                             "rope: not declared",
                             "packed: not declared",
                             "MASKED-NAN: not promised: masked_nan_safe"};
  record.matrix.clear();
  const auto cell = [&record](const char* feature, const char* dtype, int cases, int failed) {
    record.matrix.push_back({.feature = feature, .dtype = dtype, .cases = cases, .failed = failed});
  };
  cell("plain", "f32", 1'412, 0);
  cell("plain", "bf16", 1'398, 16);
  cell("gqa", "f32", 1'630, 52);
  cell("gqa", "bf16", 1'611, 60);
  cell("causal", "f32", 1'702, 230);
  cell("causal", "bf16", 1'688, 221);
  cell("align_bottom_right", "f32", 404, 230);
  cell("align_bottom_right", "bf16", 398, 221);
  cell("window_left", "f32", 820, 88);
  cell("window_left", "bf16", 811, 81);
  cell("lse", "f32", 5'002, 250);
  cell("lse", "bf16", 4'991, 252);
  record.requirements = {
      {.id = "AGREE-O",
       .sentence = "o agrees with the oracle within the derived tolerance",
       .level = "required",
       .counts = {.pass = 9'800, .warn = 6, .fail = 451},
       .by_dtype = {{"bf16", {.pass = 4'900, .warn = 6, .fail = 221}},
                    {"f32", {.pass = 4'900, .fail = 230}}},
       .skipped = "",
       .detail = "o[0,0,0,0]: expected 0.5, got 0"},
      {.id = "MASKED-NAN",
       .sentence = "NaN in a masked key reaches no row that does not see it",
       .level = "required",
       .counts = {},
       .by_dtype = {},
       .skipped = "not promised: masked_nan_safe",
       .detail = ""},
      {.id = "NO-OUT-OF-BOUNDS",
       .sentence = "no byte outside the tensors is read or written",
       .level = "required",
       .counts = {.pass = 4'900, .fail = 89, .crash = 16, .unsupported = 50},
       .by_dtype = {{"bf16", {.pass = 2'450, .fail = 45, .crash = 16, .unsupported = 50}},
                    {"f32", {.pass = 2'450, .fail = 44}}},
       .skipped = "",
       .detail = "read, 0 bytes past the end of k"}};
  record.ratios = {{"o", "f32", 5'130, 81'003, 0.09, 0.23, 2.1e6,
                    std::numeric_limits<double>::infinity(), "attention.forward lq=1 lk=2"},
                   {"o", "bf16", 5'127, 81'003, 0.34, 0.59, 64, 410.5, "attention.forward lk=2"},
                   {"lse", "f32", 5'130, 9'120, 0.07, 0.16, 0.23, 0.31, "attention.forward"},
                   {"lse", "bf16", 5'127, 9'120, 0.07, 0.16, 0.23, 0.98, "attention.forward"}};

  record.causes = {{.id = 1,
                    .verdict = Verdict::fail,
                    .reason = Reason::wrong_value,
                    .sentence = "wrong o where base=causal and q_len differs from kv_len",
                    .features = {"causal", "align_bottom_right"},
                    .caught_by = {"AGREE-O", "MASK-VISIBLE", "SOFTMAX-ROWSUM", "AGREE-LSE"},
                    .dtypes = {"f32", "bf16"},
                    .diagnosis = "the causal mask is aligned top-left (cutlass#2336)",
                    .cases = 451,
                    .smallest = 0},
                   {.id = 2,
                    .verdict = Verdict::fail,
                    .reason = Reason::out_of_bounds_read,
                    .sentence = "reads past the end of k",
                    .features = {},
                    .caught_by = {"NO-OUT-OF-BOUNDS"},
                    .dtypes = {"f32", "bf16"},
                    .diagnosis = "",
                    .cases = 89,
                    .smallest = 1},
                   {.id = 3,
                    .verdict = Verdict::crash,
                    .reason = Reason::none,
                    .sentence = "signal 8 (SIGFPE) where kv_len=0",
                    .features = {"empty_dims"},
                    .caught_by = {"NO-OUT-OF-BOUNDS", "EMPTY-ROWS"},
                    .dtypes = {"bf16"},
                    .diagnosis = "",
                    .cases = 16,
                    .smallest = 2}};
  record.failures = {
      {.cause = 1,
       .requirement = "AGREE-O",
       .dtype = "f32",
       .verdict = Verdict::fail,
       .reason = Reason::wrong_value,
       .also = {Reason::law_broken},
       .case_line = "attention.forward lk=2 base=causal data=list q=1 k=0,0 v=0,1",
       .found_case_line = "attention.forward b=2 hq=4 hkv=2 lq=33 lk=65 d=64 base=causal seed=17",
       .index = 17,
       .detail = "1 of 1 elements of o is wrong",
       .worst = Element{"o", {0, 0, 0, 0}, 0.5, 0.0, 2.384185791015625e-07, 2097152.0},
       .elements_failed = 1,
       .elements_compared = 1,
       .pattern = "query row 0 of 1",
       .numbers = {"o[0,0,0,0]   expected 0.5        got 0",
                   "lse[0,0,0]   expected 0.693147   got 0"},
       .reruns = 10,
       .reruns_failed = 10,
       .fully_shrunk = true,
       .expected = false,
       .expected_why = "",
       .replay = "attest replay 'attention.forward lk=2 base=causal data=list q=1 k=0,0 v=0,1' "
                 "./libmine.so --requirement AGREE-O"},
      {.cause = 2,
       .requirement = "NO-OUT-OF-BOUNDS",
       .dtype = "f32",
       .verdict = Verdict::fail,
       .reason = Reason::out_of_bounds_read,
       .also = {},
       .case_line = "attention.forward lk=3",
       .found_case_line = "attention.forward hq=2 lq=7 lk=31 d=8 seed=4",
       .index = 4,
       .detail = "read, 0 bytes past the end of k",
       .worst = std::nullopt,
       .elements_failed = 0,
       .elements_compared = 0,
       .pattern = "",
       .numbers = {},
       .reruns = 10,
       .reruns_failed = 10,
       .fully_shrunk = true,
       .expected = false,
       .expected_why = "",
       .replay = "attest replay 'attention.forward lk=3' ./libmine.so --requirement "
                 "NO-OUT-OF-BOUNDS"},
      {.cause = 3,
       .requirement = "NO-OUT-OF-BOUNDS",
       .dtype = "bf16",
       .verdict = Verdict::crash,
       .reason = Reason::none,
       .also = {},
       .case_line = "attention.forward dtype=bf16 lk=0",
       .found_case_line = "attention.forward dtype=bf16 lq=5 lk=0 d=8 seed=90",
       .index = 90,
       .detail = "signal 8 (SIGFPE)",
       .worst = std::nullopt,
       .elements_failed = 0,
       .elements_compared = 0,
       .pattern = "",
       .numbers = {},
       .reruns = 10,
       .reruns_failed = 10,
       .fully_shrunk = false,
       .expected = false,
       .expected_why = "",
       .replay = "attest replay 'attention.forward dtype=bf16 lk=0' ./libmine.so --requirement "
                 "NO-OUT-OF-BOUNDS"}};
  return record;
}

/// The failing one, held against an earlier record and a scope file.
inline Record held_sample() {
  Record record = failing_sample();
  record.causes[1].known = true;
  record.baseline = {
      .path = "main.json", .known = 1, .fresh = 2, .gone = {"wrong lse where b > 1"}};
  record.demands = {
      {.line = "dtype bf16", .line_number = 1, .met = true, .detail = ""},
      {.line = "feature alibi_signed", .line_number = 4, .met = false, .detail = "not declared"}};
  return record;
}

inline Record too_little_sample() {
  Record record = bare_sample();
  record.command = "attest check ./librefuses.so --suite smoke --seed 1";
  record.verdict = SuiteVerdict::too_little_tested;
  record.subject = {.name = "refuses",
                    .version = "0.1",
                    .path = "./librefuses.so",
                    .declaration = "dtype=f32 causal",
                    .precision = "f32=f32",
                    .built_in = false};
  record.suite = "smoke";
  record.wall_seconds = 0.94;
  record.counts = {.unsupported = 1'980};
  record.scope = {.dtypes = {"f32"},
                  .features = {},
                  .head_dims = {},
                  .precision = "f32=f32",
                  .not_tested = {"causal: refused by the plan in 1,980 of 1,980"},
                  .cut = "",
                  .refused_share = 1};
  record.requirements = {{.id = "AGREE-O",
                          .sentence = "o agrees with the oracle within the derived tolerance",
                          .level = "required",
                          .counts = {.unsupported = 1'980},
                          .by_dtype = {{"f32", {.unsupported = 1'980}}},
                          .skipped = "",
                          .detail = ""}};
  record.matrix = {{.feature = "causal", .dtype = "f32", .cases = 0, .unsupported = 1'980}};
  return record;
}

inline Record incomplete_sample() {
  Record record = conformant_sample();
  record.verdict = SuiteVerdict::incomplete;
  record.command = "attest check naive --suite full --seed 7 --shard 2/3";
  record.suite = "full";
  record.seed = 7;
  record.shard = "2/3";
  record.wall_seconds = 312;
  record.counts = {.pass = 41'205, .error = 1};
  record.requirements[0].by_dtype["f32"].error = 1;
  record.requirements[0].detail = "the kernel host could not start: Cannot allocate memory";
  record.scope.cut = "after 5,310 of 20,000 problems";
  record.notes = {"interrupted by SIGINT; attest-journal.jsonl holds what was done"};
  record.expectations = {{"fail MASK-NOLEAK *window=* wrong_value - tile bound", 3, "stale"},
                         {"fail AGREE-O *softcap=* wrong_value - needs a better tanh", 4, "met"},
                         {"warn AGREE-O *data=huge* flaky - seen on one machine", 7, "unused"}};
  return record;
}

/// What a hostile kernel would put into its texts.
inline Record hostile_sample() {
  Record record = held_sample();
  const std::string poison =
      "\x1b[2J\x07<script>&\"']]>|`**\xc3\x28\xff\xed\xa0\x80\xe2\x80\xae\xef\xbf\xbe" +
      std::string(1, '\0') + "\r\n\tend";
  record.subject.name = poison;
  record.subject.version = poison;
  record.subject.path = "./lib'" + poison;
  record.subject.declaration = poison;
  record.notes = {poison};
  for (Cause& cause : record.causes) {
    cause.sentence = poison;
    cause.diagnosis = std::string(1'000, 'x');
    cause.caught_by = {poison};
    cause.dtypes = {poison};
  }
  for (Failure& failure : record.failures) {
    failure.detail = poison;
    failure.pattern = poison;
    failure.numbers = {poison, poison};
    failure.requirement = poison;
    failure.replay = "attest replay '" + poison + "'";
    failure.case_line = poison;
  }
  record.failures[0].worst = Element{poison,
                                     {0},
                                     std::numeric_limits<double>::quiet_NaN(),
                                     -std::numeric_limits<double>::infinity(),
                                     -0.0,
                                     5e-324};
  record.requirements[0].id = poison;
  record.requirements[0].sentence = poison;
  record.requirements[0].detail = poison;
  record.requirements[0].by_dtype[poison] = {.fail = 1};
  record.memory[0].operation = poison;
  record.memory[0].case_line = poison;
  record.kv_cache[0].heads = poison;
  record.kv_cache[0].case_line = poison;
  record.kv_cache[0].dtype = poison;
  record.baseline.path = poison;
  record.baseline.gone = {poison};
  record.demands[1].line = poison;
  record.demands[1].detail = poison;
  record.matrix[0].feature = poison;
  record.matrix[0].dtype = poison;
  return record;
}

}  // namespace attest
