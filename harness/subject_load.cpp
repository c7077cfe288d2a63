// SPDX-License-Identifier: Apache-2.0
#include "harness/subject_load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "attest/plugin.h"

namespace attest {

namespace {

/// The text up to its end or that of the array: the array may have been written over.
template <std::size_t kBytes>
std::string_view text_of(const char (&array)[kBytes]) {
  return {array, strnlen(array, kBytes)};
}

template <std::size_t kBytes>
bool put(const std::string& text, char (&array)[kBytes]) {
  if (text.size() >= kBytes) return false;
  std::memcpy(array, text.c_str(), text.size() + 1);
  return true;
}

std::string load_problem(const SubjectSpec& spec, const LoadReply& reply) {
  const std::string text = printable(text_of(reply.text));
  switch (reply.problem) {
    case LoadProblem::none: break;
    case LoadProblem::not_loadable: return fmt::format("cannot be loaded: {}", text);
    case LoadProblem::no_entry:
      return "is no Attest plug-in: it does not export attest_plugin_entry";
    case LoadProblem::null_entry:
      return fmt::format("attest_plugin_entry({}) returned NULL: it does not serve this version",
                         ATTEST_ABI_VERSION);
    case LoadProblem::wrong_abi:
      return fmt::format("has ABI version {}, this attest has {}", reply.number,
                         ATTEST_ABI_VERSION);
    case LoadProblem::short_struct:
      return fmt::format("its attest_plugin has struct_size {}, too short for a declaration",
                         reply.number);
    case LoadProblem::no_such_kernel:
      return fmt::format("has no kernel called '{}' (it has: {})", spec.kernel, text);
    case LoadProblem::no_forward: return "offers no forward()";
    case LoadProblem::bad_text: return text;
    case LoadProblem::bad_align:
      return fmt::format("its alignment is {}, not a power of two up to {}", reply.number,
                         kPageBytes);
    case LoadProblem::open_failed:
      if (!spec.program.empty()) return text;
      return fmt::format("open() returned status {}{}{}", reply.number, text.empty() ? "" : ": ",
                         text);
  }
  return "gave no answer that makes sense";
}

}  // namespace

std::string program_variable(const SubjectSpec& spec) {
  return spec.program.empty() ? "" : "ATTEST_WORKER=" + spec.program;
}

bool write_request(const SubjectSpec& spec, HostHeader& header, OpenError& error) {
  const std::string library = spec.program.empty() ? spec.path : module_dir() + "/attest-bridge";
  if (put(library, header.path) && put(spec.kernel, header.kernel)) return true;
  error = {fmt::format("{}: the path or the kernel's name is too long", spec.path), false};
  return false;
}

bool read_facts(const SubjectSpec& spec, const LoadReply& reply, KernelFacts& facts,
                OpenError& error) {
  if (reply.problem != LoadProblem::none) {
    error = {fmt::format("{}: {}", spec.path, load_problem(spec, reply)), false};
    return false;
  }
  facts.name = printable(text_of(reply.name));
  facts.version = printable(text_of(reply.version));
  facts.alignment = std::clamp<std::int32_t>(reply.alignment, 0, kPageBytes);
  const std::string_view text =
      spec.declaration.empty() ? text_of(reply.declaration) : std::string_view(spec.declaration);
  if (text.empty()) {
    error = {fmt::format("{}: {} has no declaration", spec.path, facts.name), false, true};
    return false;
  }
  Result<Declaration> declaration = parse_declaration(text);
  if (!declaration) {
    error = {fmt::format("{}: declaration of {}: {}", spec.path, facts.name, declaration.error()),
             false};
    return false;
  }
  facts.declaration = *declaration;
  return true;
}

CallStatus read_reply(const CallReply& reply) {
  CallStatus status;
  status.status = reply.status;
  status.message = printable(text_of(reply.message));
  status.cpu_seconds = 1e-9 * static_cast<double>(reply.cpu_ns);
  status.elapsed_seconds = 1e-9 * static_cast<double>(reply.elapsed_ns);
  status.workspace_bytes = reply.workspace_bytes;
  if (reply.peak_bytes != kNotMeasured)
    status.peak_bytes = reply.peak_bytes + reply.workspace_bytes;
  return status;
}

}  // namespace attest
