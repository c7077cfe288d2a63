// SPDX-License-Identifier: Apache-2.0
#include "harness/machine_info.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <string_view>
#include <thread>

#include "attest_build_info.hpp"
#include "reference/expected.hpp"

namespace attest {

namespace {

/// The value of the first "key : value" line of a /proc or /etc file.
std::string value_in_file(const char* path, std::string_view key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    at = line.find_first_not_of(" \t\"", at + 1);
    if (at == std::string::npos) return "";
    std::string value = line.substr(at);
    while (!value.empty() && (value.back() == '"' || value.back() == ' ')) value.pop_back();
    return value;
  }
  return "";
}

}  // namespace

MachineInfo machine_info() {
  MachineInfo info;
  info.cpu = value_in_file("/proc/cpuinfo", "model name", ':');
  if (info.cpu.empty()) info.cpu = "unknown";
  info.os = value_in_file("/etc/os-release", "PRETTY_NAME", '=');
  utsname system{};
  if (::uname(&system) == 0)
    info.os += fmt::format("{}{} {} {}", info.os.empty() ? "" : ", ", system.sysname,
                           system.release, system.machine);
#if defined(__clang__)
  info.compiler = "clang " __clang_version__;
#else
  info.compiler = "g++ " __VERSION__;
#endif
  info.simd = oracle_simd_target();
  info.cores = static_cast<int>(std::thread::hardware_concurrency());
  info.memory_bytes = memory_bytes();
  info.commit = kBuildCommit;
  return info;
}

std::int64_t memory_bytes() {
  return static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

std::string tool_version() { return kBuildVersion; }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

double cpu_seconds_used() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (::getrusage(who, &usage) != 0) continue;
    for (const timeval& time : {usage.ru_utime, usage.ru_stime})
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }
  return seconds;
}

std::string file_hash(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "";
  std::uint64_t hash = 0xcbf29ce484222325u;
  char buffer[1 << 16];
  while (file.read(buffer, sizeof buffer) || file.gcount() > 0)
    for (std::streamsize i = 0; i < file.gcount(); ++i) {
      hash ^= static_cast<unsigned char>(buffer[i]);
      hash *= 0x100000001b3u;
    }
  return fmt::format("{:016x}", hash);
}

}  // namespace attest
