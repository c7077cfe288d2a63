// SPDX-License-Identifier: Apache-2.0
// attest bench: how fast kernels are, where they are right.
#include "reports/bench.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "attest/case_line.hpp"
#include "attest/names.hpp"
#include "attest/text.hpp"
#include "bench/compare/compare.hpp"
#include "bench/timing/time_cases.hpp"
#include "bench/timing/yardstick.hpp"
#include "harness/machine_info.hpp"
#include "reports/atomic_file.hpp"
#include "reports/text.hpp"
#include "tools/command.hpp"
#include "tools/line_journal.hpp"
#include "tools/run_support.hpp"

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t read_size(const std::string& option, const std::string& word) {
  constexpr std::uint64_t kMost = 16'777'216;
  const auto value = read_unsigned(word);
  if (!value || *value < 1 || *value > kMost)
    throw CommandError(option + ": '" + plain(word) + "' is no number from 1 to 16777216");
  return static_cast<std::int64_t>(*value);
}

/// "256,512" or "256..4096", which doubles.
std::vector<std::int64_t> read_sizes(const Arguments& arguments, const std::string& option,
                                     const std::string& otherwise) {
  std::vector<std::int64_t> sizes;
  for (const std::string& word : read_list(arguments.value(option, otherwise))) {
    const std::size_t dots = word.find("..");
    if (dots == std::string::npos) {
      sizes.push_back(read_size(option, word));
      continue;
    }
    const std::int64_t last = read_size(option, word.substr(dots + 2));
    for (std::int64_t n = read_size(option, word.substr(0, dots)); n <= last; n *= 2)
      sizes.push_back(n);
  }
  if (sizes.empty()) throw CommandError(option + " names no size");
  return sizes;
}

/// full, causal, window:N (causal, N keys).
void set_mask(AttentionProblem& problem, const std::string& mask) {
  problem.base = mask == "full" ? Base::full : Base::causal;
  if (mask == "full" || mask == "causal") return;
  if (mask.rfind("window:", 0) != 0)
    throw CommandError("--mask: '" + plain(mask) + "' is none of full, causal, window:N");
  problem.window_left = read_size("--mask window:N", mask.substr(7)) - 1;
  problem.window_right = 0;
}

AttentionProblem problem_of(const std::string& operation, const std::string& dtype,
                            const std::string& mask, std::int64_t heads, std::int64_t kv_heads,
                            std::int64_t head_dim, std::int64_t length, std::int64_t batch) {
  AttentionProblem problem;
  const auto type = parse_dtype(dtype);
  if (!type) throw CommandError("--dtype: '" + plain(dtype) + "' is none of f64, f32, f16, bf16");
  problem.dtype = *type;
  problem.batch = batch;
  problem.num_heads = heads, problem.num_kv_heads = kv_heads;
  problem.head_dim = problem.v_head_dim = head_dim;
  problem.q_len = problem.kv_len = length;
  set_mask(problem, mask);
  if (operation == "backward") {
    problem.operation = Operation::backward;
  } else if (operation == "decode") {
    problem.operation = Operation::decode;
    problem.q_len = 1;
  } else if (operation != "forward") {
    throw CommandError("--op: '" + plain(operation) + "' is none of forward, backward, decode");
  }
  return problem;
}

/// A decode call once for each kind of cache; anything else once.
std::vector<AttentionProblem> on_caches(const AttentionProblem& problem, const std::string& kinds) {
  constexpr std::int64_t kPageRows = 16;  // of paged ones; other sizes by --case
  if (problem.operation != Operation::decode) return {problem};
  std::vector<AttentionProblem> problems;
  for (const std::string& word : read_list(kinds)) {
    const auto kind = parse_enum<CacheKind>(word);
    if (!kind)
      throw CommandError("--cache: '" + plain(word) + "' is none of contiguous, ring, paged");
    problems.push_back(problem);
    problems.back().cache = *kind;
    if (*kind == CacheKind::paged) problems.back().page_size = kPageRows;
  }
  return problems;
}

std::vector<AttentionProblem> swept(const Arguments& arguments) {
  std::vector<AttentionProblem> problems;
  const auto batch = static_cast<std::int64_t>(read_unsigned(arguments, "--batch", 1, 1, 65536));
  for (const std::string& operation : read_list(arguments.value("--op", "forward")))
    for (const std::string& dtype : read_list(arguments.value("--dtype", "f32")))
      for (const std::string& mask : read_list(arguments.value("--mask", "causal")))
        for (const std::int64_t head_dim : read_sizes(arguments, "--head-dim", "64"))
          for (const std::int64_t heads : read_sizes(arguments, "--heads", "4")) {
            const std::string same = std::to_string(heads);
            for (const std::int64_t kv_heads : read_sizes(arguments, "--kv-heads", same))
              for (const std::int64_t length : read_sizes(arguments, "--len", "256..4096"))
                problems.push_back(
                    problem_of(operation, dtype, mask, heads, kv_heads, head_dim, length, batch));
          }
  std::vector<AttentionProblem> placed;
  for (const AttentionProblem& problem : problems)
    for (AttentionProblem& one : on_caches(problem, arguments.value("--cache", "contiguous")))
      placed.push_back(std::move(one));
  return placed;
}

std::vector<AttentionProblem> read_problems(const Arguments& arguments) {
  std::vector<AttentionProblem> problems;
  if (arguments.has("--case")) {
    problems.push_back(read_case_argument(arguments.value("--case")));
  } else if (arguments.has("--cases")) {
    for (const std::string& line : read_case_file(arguments.value("--cases")).lines)
      problems.push_back(read_case_argument(line));
  } else {
    problems = swept(arguments);
  }
  for (const AttentionProblem& problem : problems)
    if (const auto why = problem_error(problem))
      throw CommandError(print_case(problem) + ": " + *why);
  if (problems.empty()) throw CommandError("no case to time");
  return problems;
}

std::vector<BenchSubject> open_subjects(const Arguments& arguments) {
  std::vector<BenchSubject> subjects;
  for (const std::string& word : arguments.positionals.at("SUBJECT")) {
    BenchSubject subject;
    subject.subject = open_subject(read_subject(word));
    subject.name = plain(subject.subject->kernel_name());
    for (const BenchSubject& other : subjects)
      if (other.name == subject.name) subject.name = plain(word);
    for (const BenchSubject& other : subjects)
      if (other.name == subject.name) throw CommandError("'" + plain(word) + "' is given twice");
    subjects.push_back(std::move(subject));
  }
  return subjects;
}

/// The first `threads` of the cores that this process may use: kernels and yardsticks then run on
/// the same ones.
void stay_on_cores(int threads) {
  cpu_set_t allowed, chosen;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  CPU_ZERO(&chosen);
  for (int core = 0, count = 0; core < CPU_SETSIZE && count < threads; ++core)
    if (CPU_ISSET(core, &allowed)) {
      CPU_SET(core, &chosen);
      ++count;
    }
  sched_setaffinity(0, sizeof chosen, &chosen);
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

BenchContext context_of(const Arguments& arguments, int threads) {
  BenchContext context;
  context.date = utc_now();
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  context.host_name = host;
  context.executable = "attest";
  const MachineInfo machine = machine_info();
  context.num_cpus = machine.cores;
  context.tool_version = tool_version();
  context.commit = machine.commit;
  context.command_line = arguments.command_line;
  context.cpu = machine.cpu, context.os = machine.os, context.compiler = machine.compiler;
  context.flags = "simd " + machine.simd;
  for (const char* name :
       {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
        "MKL_NUM_THREADS", "GOMP_CPU_AFFINITY", "OMP_PROC_BIND", "MALLOC_ARENA_MAX"})
    if (const char* value = std::getenv(name)) context.environment[name] = value;
  context.power_governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  Yardsticks& fast = context.yardsticks;
  fast.fma_f32 = best_of(10, [&] { return measure_fma(threads); });
  fast.integer = best_of(10, [&] { return measure_integer(threads); });
  fast.exp_f32 = best_of(10, [&] { return measure_exp(threads); });
  fast.read_bytes = best_of(5, [&] { return measure_read(threads); });
  fast.copy_bytes = best_of(5, [&] { return measure_copy(threads); });
  return context;
}

/// The first kernel beside itself on the first case that it gets a time on.
std::optional<BenchChange> null_comparison(const std::vector<BenchSubject>& subjects,
                                           const AttentionProblem& problem,
                                           const BenchOptions& options, Yardsticks& best) {
  BenchSubject again = subjects[0];
  again.name += " again";
  TimedCase timed = time_case({subjects[0], again}, problem, options, best);
  settle(timed.samples, best, options.most_sag);
  BenchRecord record;
  record.benchmarks = std::move(timed.samples);
  const std::vector<std::string> names = names_of(record);
  if (names.size() != 2) return std::nullopt;
  return compare_samples(names[0], seconds_of(record, names[0]), seconds_of(record, names[1]), {});
}

std::string progress_text(std::size_t done, std::size_t all, double seconds,
                          const std::string& now) {
  const std::string left =
      done == 0
          ? ""
          : ", " + duration(seconds / static_cast<double>(done) * static_cast<double>(all - done)) +
                " left";
  return shorten(fmt::format("{} of {} cases{}: {}", done, all, left, now), 100);
}

/// Cases that were timed before, by their line, and where further ones go.
struct Kept {
  std::unique_ptr<LineJournal> journal;
  std::map<std::string, BenchLine> cases;
};

Kept open_journal(const Arguments& arguments, const BenchContext& context,
                  const std::vector<BenchSubject>& subjects, const BenchOptions& options) {
  Kept kept;
  const std::string path = arguments.value("--journal");
  if (path.empty()) {
    if (arguments.has("--resume")) throw CommandError("--resume wants --journal FILE");
    return kept;
  }
  std::vector<std::string> what{
      fmt::format("threads {} samples {} sample {} case {} cold {}", options.threads,
                  options.samples, options.sample_seconds, options.case_seconds, options.cold)};
  for (const BenchSubject& subject : subjects)
    what.push_back(subject.name + " " + plain(subject.subject->version()));
  std::vector<std::string> lines;
  auto journal = LineJournal::open(path, arguments.has("--resume"),
                                   {"bench", "machine, build, list of kernels or set of options"},
                                   bench_header(context, what), lines);
  if (!journal) throw CommandError(journal.error());
  for (std::size_t n = 0; n < lines.size(); ++n) {
    Result<BenchLine> line = read_bench_line(lines[n]);
    if (!line)
      throw CommandError(fmt::format("journal {}: line {}: {}", path, n + 2, line.error()));
    kept.cases[line->case_line] = std::move(*line);
  }
  kept.journal = std::move(*journal);
  return kept;
}

BenchOptions read_options(const Arguments& arguments) {
  BenchOptions options;
  options.threads = static_cast<int>(read_unsigned(arguments, "--threads", 1, 1, 1024));
  options.samples = static_cast<int>(read_unsigned(arguments, "--samples", 100, 5, 10000));
  options.case_seconds = read_duration("--case-time", arguments.value("--case-time", "15s"));
  options.sample_seconds =
      read_duration("--sample-time", arguments.value("--sample-time", "0.01s"));
  options.cold = arguments.has("--cold");
  options.interrupted = &catch_interrupts();
  return options;
}

ExitCode run(const Arguments& arguments) {
  const std::string path = arguments.value("--json");
  if (!path.empty())
    if (const auto error = check_writable(path)) throw CommandError(*error);
  const BenchOptions options = read_options(arguments);
  const std::vector<AttentionProblem> problems = read_problems(arguments);
  stay_on_cores(options.threads);
  const std::vector<BenchSubject> subjects = open_subjects(arguments);

  BenchRecord record;
  record.context = context_of(arguments, options.threads);
  const Kept kept = open_journal(arguments, record.context, subjects, options);
  Yardsticks& best = record.context.yardsticks;
  if (subjects.size() > 1 && !arguments.has("--no-null"))
    record.null_comparison = null_comparison(subjects, problems[0], options, best);
  RewrittenLine progress;
  const auto start = Clock::now();
  for (std::size_t n = 0; n < problems.size() && !*options.interrupted; ++n) {
    BenchLine line;
    line.case_line = print_case(problems[n]);
    progress.show(
        progress_text(n, problems.size(),
                      std::chrono::duration<double>(Clock::now() - start).count(), line.case_line),
        true);
    if (const auto known = kept.cases.find(line.case_line); known != kept.cases.end()) {
      line = known->second;
    } else {
      TimedCase timed = time_case(subjects, problems[n], options, best);
      if (*options.interrupted) break;
      line.benchmarks = std::move(timed.samples);
      line.refused = std::move(timed.refused);
      if (kept.journal && !kept.journal->append(bench_line(line)))
        throw CommandError(std::string("journal: ") + std::strerror(errno), ExitCode::suite_failed);
    }
    for (BenchSample& sample : line.benchmarks) {
      sample.family_index = static_cast<std::int64_t>(n);
      best.fma_f32 = std::max(best.fma_f32, sample.fma_f32);
      best.integer = std::max(best.integer, sample.integer);
      record.benchmarks.push_back(std::move(sample));
    }
    for (BenchRecord::Refused& refused : line.refused) record.refused.push_back(std::move(refused));
  }
  progress.clear();
  settle(record.benchmarks, best, options.most_sag);
  if (*options.interrupted)
    throw CommandError(
        kept.journal ? "interrupted; the same command with --resume goes on" : "interrupted",
        ExitCode::suite_failed);
  fmt::print("{}", bench_screen(record));
  write_output(path, bench_json(record));
  return record.refused.empty() ? ExitCode::conformant : ExitCode::failed;
}

ATTEST_COMMAND(
    bench,
    {
        .name = "bench",
        .summary = "times of kernels, each checked against the oracle before and after",
        .examples =
            "Examples:\n"
            "  attest bench naive chunked --len 256..4096 --json new.json\n"
            "  attest bench ./libmine.so chunked --op forward,backward --dtype f32,bf16\n"
            "  attest bench contiguous concat --op decode --len 4096 --heads 32 --kv-heads 8\n"
            "Kernels take turns, each sample between two runs of loops of FMAs and of integers; "
            "one "
            "whose loops are slow is dropped.\nA kernel that the oracle does not agree with gets "
            "no time. "
            "Exit codes: 0 all got a time, 1 not all, 2 usage.",
        .positionals = {{"SUBJECT", "built-in kernels or libraries; ratios are to the first", true,
                         true}},
        .options = {{"--len", "SIZES",
                     "queries and keys, \"256,512\" or \"256..4096\" (the default)"},
                    {"--heads", "SIZES", "query heads; default 4"},
                    {"--kv-heads", "SIZES", "key/value heads; default: as many"},
                    {"--head-dim", "SIZES", "default 64"},
                    {"--batch", "N", "sequences; default 1"},
                    {"--dtype", "LIST", "default f32"},
                    {"--mask", "LIST", "full, causal (the default), window:N"},
                    {"--op", "LIST", "forward (the default), backward, decode"},
                    {"--cache", "LIST",
                     "decode: contiguous (the default), ring, paged (pages of 16 rows)"},
                    {"--case", "LINE", "this case alone"},
                    {"--cases", "FILE", "the cases of a file, one a line"},
                    {"--threads", "N", "of a kernel; default 1"},
                    {"--samples", "N", "of each kernel and case; default 100"},
                    {"--sample-time", "TIME", "calls are repeated until then; default 0.01s"},
                    {"--case-time", "TIME",
                     "of a kernel: slow ones get fewer samples, at least 5; default 15s"},
                    {"--cold", "", "one call a sample, its tensors in no cache"},
                    {"--no-null", "", "do not time the first kernel against itself"},
                    {"--journal", "FILE", "keep what is timed there as it comes"},
                    {"--resume", "", "skip the cases that the journal has already"},
                    {"--json", "FILE", "write all samples there (bench.schema.json)"}},
        .run = run,
    });

}  // namespace
}  // namespace attest
