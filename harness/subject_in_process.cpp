// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "harness/arena.hpp"
#include "harness/host/plugin_call.hpp"
#include "harness/subject_load.hpp"

namespace attest {

namespace {

class InProcessSubject final : public Subject {
 public:
  explicit InProcessSubject(SubjectSpec spec, const attest_plugin* table = nullptr)
      : spec_(std::move(spec)), table_(table) {}
  ~InProcessSubject() override {
    if (loaded_.plugin.close) loaded_.plugin.close(loaded_.state);
  }
  InProcessSubject(const InProcessSubject&) = delete;
  InProcessSubject& operator=(const InProcessSubject&) = delete;

  bool open(OpenError& error) {
    if (!arena_.error().empty()) {
      error = {arena_.error(), true};
      return false;
    }
    HostHeader& header = arena_.header();
    if (!write_request(spec_, header, error)) return false;
    LoadedPlugin loaded{};
    const bool opened =
        table_ ? open_plugin(table_, header.kernel, loaded, header.load, header.stage)
               : load_plugin(header.path, header.kernel, loaded, header.load, header.stage);
    if (opened) loaded_ = loaded;
    return read_facts(spec_, header.load, facts_, error);
  }

  const std::string& kernel_name() const override { return facts_.name; }
  const std::string& version() const override { return facts_.version; }
  const Declaration& declaration() const override { return facts_.declaration; }
  int alignment() const override { return facts_.alignment; }
  Arena& arena() override { return arena_; }

  CallStatus call(const PlacedCall& call, const CallLimits& limits) override {
    HostHeader& header = arena_.header();
    header.reply.peak_bytes = kNotMeasured;
    for (;;) {
      call_kernel(loaded_, arena_.base(), arena_.slot(Slot::workspace), call, header.reply,
                  header.stage, header.cpu_before_ns);
      if (!header.reply.needs_workspace) return read_reply(header.reply);
      std::optional<std::string> why;
      if (header.reply.workspace_bytes > static_cast<std::uint64_t>(limits.memory_bytes))
        why = fmt::format("plan() asks for a workspace of {}",
                          human_bytes(header.reply.workspace_bytes));
      else
        why = arena_.reserve_workspace(header.reply.workspace_bytes);
      if (why) {
        CallStatus status;
        status.accident = Accident{Verdict::out_of_memory, Reason::none, *why};
        return status;
      }
    }
  }

 private:
  SubjectSpec spec_;
  const attest_plugin* table_;  ///< linked into this program; nullptr: spec_ names a library
  KernelFacts facts_;
  Arena arena_;
  LoadedPlugin loaded_{};
};

}  // namespace

std::unique_ptr<Subject> open_in_process(const SubjectSpec& spec, OpenError& error) {
  auto subject = std::make_unique<InProcessSubject>(spec);
  if (!subject->open(error)) return nullptr;
  return subject;
}

std::unique_ptr<Subject> open_in_process(const attest_plugin* plugin, OpenError& error) {
  if (!plugin) {
    error = {"the plug-in is NULL", false};
    return nullptr;
  }
  auto subject = std::make_unique<InProcessSubject>(SubjectSpec{.path = "plug-in"}, plugin);
  if (!subject->open(error)) return nullptr;
  return subject;
}

}  // namespace attest
