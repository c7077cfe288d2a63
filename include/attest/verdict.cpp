// SPDX-License-Identifier: Apache-2.0
#include "attest/verdict.hpp"

#include <array>
#include <cstddef>

#include "attest/record.hpp"

namespace attest {
namespace {

constexpr std::array<std::string_view, 9> kVerdicts{
    "pass", "warn", "fail", "crash", "hang", "out_of_memory", "unsupported", "not_judged", "error"};
constexpr std::array<std::string_view, 16> kReasons{"none",
                                                    "wrong_value",
                                                    "biased",
                                                    "unwritten",
                                                    "nan_leak",
                                                    "nan_lost",
                                                    "out_of_bounds_read",
                                                    "out_of_bounds_write",
                                                    "input_modified",
                                                    "law_broken",
                                                    "not_deterministic",
                                                    "wrong_reject",
                                                    "wrong_accept",
                                                    "junk_status",
                                                    "exited",
                                                    "flaky"};
constexpr std::array<std::string_view, 4> kSuiteVerdicts{"conformant", "not_conformant",
                                                         "too_little_tested", "incomplete"};
static_assert(kVerdicts.size() == static_cast<std::size_t>(Verdict::error) + 1);
static_assert(kReasons.size() == static_cast<std::size_t>(Reason::flaky) + 1);
static_assert(kSuiteVerdicts.size() == static_cast<std::size_t>(SuiteVerdict::incomplete) + 1);

template <class E, std::size_t kSize>
std::string_view name_in(const std::array<std::string_view, kSize>& names, E value) {
  const auto index = static_cast<std::size_t>(value);
  return index < kSize ? names[index] : "?";
}

template <class E, std::size_t kSize>
std::optional<E> find_in(const std::array<std::string_view, kSize>& names, std::string_view text) {
  for (std::size_t i = 0; i < kSize; ++i)
    if (names[i] == text) return static_cast<E>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name(Verdict verdict) { return name_in(kVerdicts, verdict); }
std::string_view name(Reason reason) { return name_in(kReasons, reason); }
std::string_view name(SuiteVerdict verdict) { return name_in(kSuiteVerdicts, verdict); }

std::optional<Verdict> parse_verdict(std::string_view text) {
  return find_in<Verdict>(kVerdicts, text);
}
std::optional<Reason> parse_reason(std::string_view text) {
  return find_in<Reason>(kReasons, text);
}
std::optional<SuiteVerdict> parse_suite_verdict(std::string_view text) {
  return find_in<SuiteVerdict>(kSuiteVerdicts, text);
}

std::int64_t& Counts::of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass: return pass;
    case Verdict::warn: return warn;
    case Verdict::fail: return fail;
    case Verdict::crash: return crash;
    case Verdict::hang: return hang;
    case Verdict::out_of_memory: return out_of_memory;
    case Verdict::unsupported: return unsupported;
    case Verdict::not_judged: return not_judged;
    case Verdict::error: return error;
  }
  return error;
}

std::int64_t Counts::total() const {
  return pass + warn + fail + crash + hang + out_of_memory + unsupported + not_judged + error;
}

}  // namespace attest
