// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "harness/host/plugin_call.hpp"
#include "harness/host_process.hpp"
#include "harness/subject_load.hpp"

namespace attest {

namespace {

constexpr int kStartTries = 3;
/// What limits on CPU time are multiplied by: they are set for kernels of C, and a program may be
/// an interpreter's. Plain Python takes 100 to 300 ns for what they take 1 ns.
constexpr double kPatience = 100;

const char* where(Stage stage, bool program) {
  if (program && (stage == Stage::loading || stage == Stage::opening))
    return " before it said hello";
  switch (stage) {
    case Stage::starting: return " while starting";
    case Stage::loading: return " while the library was loaded";
    case Stage::opening: return " in open()";
    case Stage::planning: return " in plan()";
    case Stage::closing: return " in drop()";
    case Stage::idle: return " after the call had returned";
    case Stage::mapping:
    case Stage::running: break;
  }
  return "";
}

class HostSubject final : public Subject {
 public:
  HostSubject(SubjectSpec spec, HostOptions options)
      : spec_(std::move(spec)), options_(std::move(options)), process_(arena_) {
    if (is_program()) process_.has_program(spec_.path);
    if (options_.program.empty()) options_.program = module_dir() + "/attest-host";
  }

  bool open(OpenError& error) {
    if (!arena_.error().empty()) {
      error = {arena_.error(), true};
      return false;
    }
    return load(facts_, error);
  }

  const std::string& kernel_name() const override { return facts_.name; }
  const std::string& version() const override { return facts_.version; }
  const Declaration& declaration() const override { return facts_.declaration; }
  int alignment() const override { return facts_.alignment; }
  Arena& arena() override { return arena_; }

  CallStatus call(const PlacedCall& call, const CallLimits& given) override {
    CallLimits limits = given;
    if (is_program()) limits.cpu_seconds *= kPatience;
    if (process_.running() && turn_of(arena_.header()) == Turn::dead)
      return accident(death(nullptr, limits));
    if (!process_.running()) {
      KernelFacts facts;
      OpenError error;
      // It loaded before, so that it does not now is no verdict on the call.
      if (!load(facts, error))
        return accident({Verdict::error, Reason::none,
                         fmt::format("the kernel host was lost: {}", error.message)});
    }
    bound_memory(limits.memory_bytes);
    for (;;) {
      if (auto failed = exchange(call, limits)) return accident(*failed);
      const CallReply& reply = arena_.header().reply;
      if (!reply.needs_workspace) return read_reply(reply);
      if (auto failed = grow_workspace(reply.workspace_bytes, limits)) return accident(*failed);
    }
  }

  void restart() override { process_.stop(); }

 private:
  /// Starts a host and loads the kernel in it.
  bool load(KernelFacts& facts, OpenError& error) {
    HostHeader& header = arena_.header();
    if (!write_request(spec_, header, error)) return false;
    for (int attempt = 1;; ++attempt) {
      auto failed = process_.start(options_.program, Command::load, program_variable(spec_));
      if (!failed) {
        bool grew = false;
        const auto answer =
            process_.wait({options_.load_cpu_seconds, options_.load_wall_seconds}, grew);
        if (answer == HostProcess::Answer::answered) break;
        const bool started = header.stage != Stage::starting;
        const Accident accident = load_accident(answer);
        const std::string& sentence = accident.sentence;
        // Killed from outside it says nothing of the library either.
        if (started && !accident.killed) {
          error = {fmt::format("{}: {}", spec_.path, sentence), false};
          return false;
        }
        failed = started ? fmt::format("{}: {} while it was loaded", spec_.path, sentence)
                         : fmt::format("the kernel host {} did not start: {}", options_.program,
                                       sentence);
      }
      if (attempt == kStartTries) {
        error = {*failed, true};
        return false;
      }
    }
    reply_ = header.load;
    memory_baseline_ = process_.data_bytes();
    memory_bound_ = 0;
    if (read_facts(spec_, reply_, facts, error)) return true;
    process_.stop();
    if (is_program() && !error.undeclared)
      error.message = with_output(std::move(error.message), process_.output());
    return false;
  }

  Accident load_accident(HostProcess::Answer answer) {
    const Stage stage = arena_.header().stage;
    if (answer == HostProcess::Answer::died) return death(nullptr, {});
    process_.kill();
    process_.stop();
    if (answer == HostProcess::Answer::garbled) return overwritten();
    const bool by_wall = answer == HostProcess::Answer::over_wall;
    return describe_hang(by_wall ? options_.load_wall_seconds / 10 : options_.load_cpu_seconds,
                         by_wall, where(stage, is_program()));
  }

  bool is_program() const { return !spec_.program.empty(); }

  void bound_memory(std::int64_t bytes) {
    if (bytes == memory_bound_) return;
    memory_bound_ = bytes;
    process_.bound_memory(memory_baseline_ + static_cast<std::uint64_t>(bytes));
  }

  /// Gives the call to the host and waits; an accident, or nullopt where there is a reply.
  std::optional<Accident> exchange(const PlacedCall& call, const CallLimits& limits) {
    HostHeader& header = arena_.header();
    header.call = call;
    header.command = Command::call;
    failed_allocations_ = header.failed_allocations;
    give_turn(header, Turn::host);
    bool grew = false;
    const auto answer = process_.wait({limits.cpu_seconds, 10 * limits.cpu_seconds}, grew);
    if (answer == HostProcess::Answer::answered) return std::nullopt;
    if (answer == HostProcess::Answer::died) return death(&call, limits);
    const Stage stage = header.stage;
    // At 20 us a page a kernel that allocates without end runs out of time before it runs out of
    // memory: a time-out is judged by what its memory did.
    grew |=
        header.failed_allocations != failed_allocations_ ||
        process_.data_bytes() > memory_baseline_ + static_cast<std::uint64_t>(limits.memory_bytes);
    process_.kill();
    process_.stop();
    if (answer == HostProcess::Answer::garbled) return overwritten();
    if (grew)
      return describe_memory(static_cast<std::uint64_t>(limits.memory_bytes),
                             where(stage, is_program()));
    return describe_hang(limits.cpu_seconds, answer == HostProcess::Answer::over_wall,
                         where(stage, is_program()));
  }

  /// Of a host that is dead; takes it away.
  Accident death(const PlacedCall* call, const CallLimits& limits) {
    const HostHeader& header = arena_.header();
    if (header.stage == Stage::mapping) {
      process_.stop();
      if (!arena_.header_is_intact()) return overwritten();
      return {
          arena_.is_far() ? Verdict::not_judged : Verdict::error, Reason::none,
          fmt::format("the kernel host cannot map {} of tensors", human_bytes(header.arena_bytes))};
    }
    Death death;
    death.end = process_.end();
    const std::string output = process_.output();
    death.output = output;
    death.where = where(header.stage, is_program());
    death.call = call;
    death.memory_limit = static_cast<std::uint64_t>(limits.memory_bytes);
    const FaultReport fault = header.fault;
    if (fault.valid) death.fault = &fault;
    if (call) {
      const SlotRange& slot = arena_.slot(Slot::workspace);
      const std::uint64_t bytes = header.reply.workspace_bytes;
      if (header.stage == Stage::running && bytes && bytes <= slot.bytes) {
        death.workspace_begin = workspace_offset(slot, bytes, call->workspace_at_end != 0);
        death.workspace_end = death.workspace_begin + bytes;
      }
      death.memory_exhausted =
          header.failed_allocations != failed_allocations_ ||
          (fault.valid && fault.data_bytes > memory_baseline_ + death.memory_limit / 8 * 7);
    }
    process_.stop();
    return describe_death(death);
  }

  std::optional<Accident> grow_workspace(std::uint64_t bytes, const CallLimits& limits) {
    if (bytes <= arena_.slot(Slot::workspace).bytes) {
      process_.stop();
      return overwritten();
    }
    if (bytes > static_cast<std::uint64_t>(limits.memory_bytes))
      return Accident{
          Verdict::out_of_memory, Reason::none,
          fmt::format("plan() asks for a workspace of {}, the limit is {}", human_bytes(bytes),
                      human_bytes(static_cast<std::uint64_t>(limits.memory_bytes)))};
    if (auto why = arena_.reserve_workspace(bytes))
      return Accident{Verdict::error, Reason::none, *why};
    return std::nullopt;
  }

  static Accident overwritten() {
    return {Verdict::crash, Reason::none, "the kernel wrote over the host's memory"};
  }

  static CallStatus accident(Accident accident) {
    CallStatus status;
    status.accident = std::move(accident);
    return status;
  }

  SubjectSpec spec_;
  HostOptions options_;
  KernelFacts facts_;
  LoadReply reply_{};
  Arena arena_;
  HostProcess process_;
  std::uint64_t memory_baseline_ = 0, failed_allocations_ = 0;
  std::int64_t memory_bound_ = 0;
};

}  // namespace

std::unique_ptr<Subject> open_in_host(const SubjectSpec& spec, const HostOptions& options,
                                      OpenError& error) {
  auto subject = std::make_unique<HostSubject>(spec, options);
  if (!subject->open(error)) return nullptr;
  return subject;
}

std::unique_ptr<Subject> open_in_host(const SubjectSpec& spec, OpenError& error) {
  return open_in_host(spec, HostOptions{}, error);
}

}  // namespace attest
