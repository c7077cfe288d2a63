// SPDX-License-Identifier: Apache-2.0
// attest cost: FLOPs, bytes and memory before anything runs.
#include "reports/cost.hpp"

#include <fmt/format.h>

#include "attest/case_line.hpp"
#include "bench/cost/model_cost.hpp"
#include "bench/timing/yardstick.hpp"
#include "harness/machine_info.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/data_files.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

std::vector<std::string> names_of_ways() {
  std::vector<std::string> names;
  for (const AttentionCostModel& way : attention_cost_models()) names.push_back(way.name);
  return names;
}

std::vector<const AttentionCostModel*> read_ways(const Arguments& arguments) {
  std::vector<const AttentionCostModel*> ways;
  for (const std::string& word : read_list(arguments.value("--impl", "flash"))) {
    const AttentionCostModel* way = find_attention_cost_model(word);
    if (!way)
      throw CommandError("--impl: no formula for '" + plain(word) + "'" +
                         suggestion(word, names_of_ways()) + "; there are " +
                         join(names_of_ways(), ", "));
    ways.push_back(way);
  }
  if (ways.empty()) throw CommandError("--impl names no way of computing attention");
  return ways;
}

template <class T>
T read_word(const Arguments& arguments, const std::string& option, const std::string& otherwise,
            const std::vector<std::pair<std::string, T>>& words) {
  const std::string given = arguments.value(option, otherwise);
  std::vector<std::string> names;
  for (const auto& [word, value] : words) {
    if (word == given) return value;
    names.push_back(word);
  }
  throw CommandError(option + ": '" + plain(given) + "' is none of " + join(names, ", ") +
                     suggestion(given, names));
}

/// As measured now, all cores: f64 has half of the lanes of f32.
MachineShape this_machine() {
  const MachineInfo info = machine_info();
  MachineShape machine;
  machine.name = "this machine (" + plain(info.cpu) + ")";
  machine.source = "measured";
  machine.memory_bytes = static_cast<double>(info.memory_bytes);
  machine.bytes_per_second = best_of(5, [&] { return measure_read(info.cores); });
  const double fma = best_of(10, [&] { return measure_fma(info.cores); });
  machine.flop_per_second = {{"f32", fma}, {"f64", fma / 2}};
  return machine;
}

CostQuery read_query(const Arguments& arguments) {
  CostQuery query;
  query.phase = read_word<Phase>(
      arguments, "--phase", "prefill",
      {{"prefill", Phase::prefill}, {"decode", Phase::decode}, {"train", Phase::train}});
  query.dtype = read_word<DType>(
      arguments, "--dtype", "bf16",
      {{"f64", DType::f64}, {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}});
  const std::string cache = arguments.value("--cache-dtype", std::string(name(query.dtype)));
  const auto cache_type = parse_cache_type(cache);
  if (!cache_type)
    throw CommandError("--cache-dtype: '" + plain(cache) +
                       "' is none of f64, f32, f16, bf16, fp8, int8, int4");
  query.cache = *cache_type;
  query.batch = static_cast<std::int64_t>(read_unsigned(arguments, "--batch", 1, 1, 1'000'000));
  query.seq = static_cast<std::int64_t>(read_unsigned(arguments, "--seq", 8192, 1, 16'777'216));
  query.heads = read_list(arguments.value("--compare"));
  for (const std::string& word : query.heads)
    if (word != "mha" && word != "gqa" && word != "mqa")
      throw CommandError("--compare: '" + plain(word) + "' is none of mha, gqa, mqa");
  query.ways = read_ways(arguments);
  if (arguments.value("--machine") == "here") {
    query.machine = this_machine();
  } else if (arguments.has("--machine")) {
    Result<MachineShape> machine =
        read_machine_file(data_path("machines", arguments.value("--machine")));
    if (!machine) throw CommandError(machine.error());
    query.machine = *machine;
  }
  return query;
}

CostRecord cost_of(const Arguments& arguments) {
  if (arguments.has("--case") == arguments.has("--model"))
    throw CommandError("cost wants --model or --case; models: " + join(data_names("models"), ", "));
  const CostQuery query = read_query(arguments);
  if (arguments.has("--case")) {
    const Result<AttentionProblem> problem = parse_case(arguments.value("--case"));
    if (!problem) throw CommandError("--case: " + problem.error());
    const Result<CostRecord> record = call_cost(*problem, query);
    if (!record) throw CommandError("--case: " + record.error());
    return *record;
  }
  const Result<ModelShape> model = read_model_file(data_path("models", arguments.value("--model")));
  if (!model) throw CommandError(model.error());
  const Result<CostRecord> record = model_cost(*model, query);
  if (!record) throw CommandError(record.error());
  return *record;
}

ExitCode run(const Arguments& arguments) {
  const bool multiply_adds = arguments.has("--multiply-adds");
  CostRecord record = cost_of(arguments);
  record.tool_version = tool_version();
  record.commit = machine_info().commit;
  record.command_line = arguments.command_line;
  fmt::print("{}", cost_screen(record, multiply_adds));
  write_output(arguments.value("--json"), cost_json(record));
  write_output(arguments.value("--markdown"), cost_markdown(record, multiply_adds));
  write_output(arguments.value("--csv"), cost_csv(record));
  return ExitCode::conformant;
}

std::vector<Option> options_by_name() {
  return {{"--impl", "LIST",
           "ways of computing attention, of " + join(names_of_ways(), ", ") + "; default flash"},
          {"--model", "NAME", "a file's path, or of " + join(data_names("models"), ", ")},
          {"--machine", "NAME",
           "adds the time by its roofline; here (measured), a file's path, or of " +
               join(data_names("machines"), ", ")}};
}

ATTEST_COMMAND(
    cost,
    {
        .name = "cost",
        .summary = "FLOPs, bytes and memory of a model or a call, before anything runs",
        .examples = "Examples:\n"
                    "  attest cost --model llama-3-8b --seq 8192 --compare mha,gqa,mqa "
                    "--impl materialised,chunked,flash\n"
                    "  attest cost --model mixtral-8x7b --phase decode --seq 32768 --batch 8 "
                    "--machine h100\n"
                    "  attest cost --case 'attention.forward hq=8 lq=512 lk=512 d=64 window=63,0'\n"
                    "Formulas, what is counted and what is not: docs/cost.md",
        .options = {{"--case", "LINE", "instead of a model: one call"},
                    {"--seq", "N", "tokens of each sequence; default 8192"},
                    {"--batch", "N", "sequences; default 1"},
                    {"--phase", "NAME", "prefill (the default), decode or train"},
                    {"--dtype", "NAME", "of parameters and activations; default bf16"},
                    {"--cache-dtype", "NAME", "of keys and values; also fp8, int8, int4"},
                    {"--compare", "LIST", "also with the key/value heads of mha, gqa, mqa"},
                    {"--multiply-adds", "", "count a multiply-add as 1, as some texts do"},
                    {"--json", "FILE", "write everything there (cost.schema.json)"},
                    {"--markdown", "FILE", "write the tables there"},
                    {"--csv", "FILE", "write plain numbers there"}},
        .more_options = options_by_name,
        .run = run,
    });

}  // namespace
}  // namespace attest
