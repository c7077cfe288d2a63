// SPDX-License-Identifier: Apache-2.0
#include "harness/accident.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstring>
#include <optional>

#include "harness/arena.hpp"
#include "harness/host/protocol.hpp"

namespace attest {

namespace {

// A sanitizer's report ends a sanitized host with this (harness/host/host_main.cpp).
constexpr int kSanitizerExit = 86;
constexpr std::uint64_t kNullPage = 4096;

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  return abbreviation ? fmt::format("signal {} (SIG{})", signal, abbreviation)
                      : fmt::format("signal {}", signal);
}

const char* access_name(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "access";
}

/// The tensor whose edge is nearest to the address, in words.
std::string nearest_edge(std::uint64_t address, const Death& death) {
  std::uint64_t best = UINT64_MAX;
  std::string words = "outside all tensors";
  const auto consider = [&](std::uint64_t begin, std::uint64_t end, const char* tensor) {
    if (address >= end && address - end < best) {
      best = address - end;
      words = fmt::format("{} bytes past the end of {}", best, tensor);
    } else if (address < begin && begin - address < best) {
      best = begin - address;
      words = fmt::format("{} bytes before {}", best, tensor);
    }
  };
  for (int i = 0; i < kNumSlots; ++i) {
    const PlacedTensor& tensor = death.call->tensors[i];
    if (tensor.present)
      consider(tensor.extent_begin, tensor.extent_end, name(static_cast<Slot>(i)));
  }
  if (death.workspace_end > death.workspace_begin)
    consider(death.workspace_begin, death.workspace_end, name(Slot::workspace));
  return words;
}

std::string with_output(std::string sentence, const Death& death) {
  return attest::with_output(std::move(sentence), death.output);
}

std::string fault_place(const FaultReport& fault) {
  const bool memory = fault.signal == SIGSEGV || fault.signal == SIGBUS;
  if (!memory) return "";
  // A general protection fault: the processor gives no address.
  if (fault.code == SI_KERNEL)
    return ": a misaligned vector access, or an address that no process can have";
  if (fault.code <= 0) return ": sent by a process, not by an access";
  if (fault.near_stack) return ": stack overflow";
  if (!fault.in_arena && fault.address < kNullPage)
    return fmt::format(": {} at address {}, a null pointer", access_name(fault.access),
                       fault.address);
  return fmt::format(": {} at an address that is no tensor's", access_name(fault.access));
}

std::optional<Accident> out_of_bounds(const Death& death) {
  const FaultReport& fault = *death.fault;
  if (!fault.in_arena || !death.call) return std::nullopt;
  if (fault.signal == SIGBUS && fault.code == BUS_ADRERR)
    return Accident{Verdict::error, Reason::none, "the machine has no memory left for the tensors"};
  if (fault.signal != SIGSEGV) return std::nullopt;
  const Reason reason =
      fault.access == Access::write ? Reason::out_of_bounds_write : Reason::out_of_bounds_read;
  return Accident{Verdict::fail, reason,
                  fmt::format("{}, {}{}", access_name(fault.access),
                              nearest_edge(fault.address, death), death.where)};
}

}  // namespace

std::string with_output(std::string sentence, std::string_view printed) {
  std::string output = printable(printed);
  constexpr std::size_t kMost = 300;
  if (output.empty()) return sentence;
  if (output.size() > kMost) output = printable(output.substr(output.size() - kMost));
  return fmt::format("{}; it printed: {}", sentence, output);
}

Accident describe_memory(std::uint64_t limit, std::string_view where) {
  return {Verdict::out_of_memory, Reason::none,
          fmt::format("memory grew beyond its limit of {} besides the tensors{}",
                      human_bytes(limit), where)};
}

Accident describe_hang(double cpu_seconds, bool by_wall, std::string_view where) {
  return {Verdict::hang, Reason::none,
          by_wall ? fmt::format("no answer after {:g} s{}", 10 * cpu_seconds, where)
                  : fmt::format("no answer after {:g} s of CPU time{}", cpu_seconds, where)};
}

Accident describe_death(const Death& death) {
  if (death.fault)
    if (auto accident = out_of_bounds(death)) return *accident;
  if (death.memory_exhausted) return describe_memory(death.memory_limit, death.where);
  if (death.fault)
    return {Verdict::crash, Reason::none,
            with_output(fmt::format("{}{}{}", signal_name(death.fault->signal), death.where,
                                    fault_place(*death.fault)),
                        death)};
  if (death.end.signalled && death.end.code == SIGKILL)
    // Nothing in the process can be told from the machine's memory killer here: not held against
    // the kernel.
    return {Verdict::error, Reason::none, "the kernel host was killed from outside (SIGKILL)",
            true};
  if (death.end.signalled)
    return {Verdict::crash, Reason::none,
            with_output(fmt::format("{}{}", signal_name(death.end.code), death.where), death)};
  if (death.end.code == kSanitizerExit)
    return {Verdict::crash, Reason::none,
            with_output(fmt::format("a sanitizer ended it{}", death.where), death)};
  return {Verdict::fail, Reason::exited,
          with_output(
              fmt::format("the process ended with exit status {}{}", death.end.code, death.where),
              death)};
}

}  // namespace attest
