// SPDX-License-Identifier: Apache-2.0
#include "tools/run_support.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>

#include "reports/atomic_file.hpp"

namespace attest {

namespace {

std::atomic<bool> g_interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_signal(int) { g_interrupted = true; }

bool on_terminal() { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace

const std::atomic<bool>& catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  return g_interrupted;
}

int read_jobs(const Arguments& arguments) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int>(read_unsigned(arguments, "--jobs", cores, 1, 1024));
}

void write_output(const std::string& path, std::string_view text) {
  if (path.empty()) return;
  if (const auto error = write_file(path, text)) throw CommandError(*error, ExitCode::suite_failed);
}

std::string cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache && *cache == '/')
    folder = cache;
  else if (home && *home == '/')
    folder = std::filesystem::path(home) / ".cache";
  else
    return "";
  folder /= "attest";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return ::access(folder.c_str(), W_OK) == 0 ? folder.string() : "";
}

void RewrittenLine::show(const std::string& line, bool last) {
  if (!on_terminal()) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_once_ && now - shown_ < std::chrono::milliseconds(100) && !last) return;
  shown_ = now;
  shown_once_ = true;
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
}

void RewrittenLine::clear() {
  if (!shown_once_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace attest
