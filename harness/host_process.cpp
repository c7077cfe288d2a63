// SPDX-License-Identifier: Apache-2.0
#include "harness/host_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <vector>

namespace attest {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptOutput = 4096;
constexpr std::uint64_t kGrowth = 8 << 20, kLateGrowth = 1 << 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// posix_spawn with only stdin (nothing), stdout and stderr (the pipe) and the arena open, in a
/// process group of its own: Ctrl-C is for the runner.
int spawn(const std::string& program, std::string variable, int pipe_fd, int arena_fd, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, pipe_fd, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&files, arena_fd, kHostMemoryFd);
  posix_spawn_file_actions_addclosefrom_np(&files, kHostMemoryFd + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
  std::string name = "attest-host";
  char* arguments[] = {name.data(), nullptr};
  std::vector<char*> environment;
  if (!variable.empty()) environment.push_back(variable.data());
  for (char** one = environ; *one; ++one) environment.push_back(*one);
  environment.push_back(nullptr);
  const int error =
      posix_spawn(&pid, program.c_str(), &files, &attributes, arguments, environment.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error;
}

/// 0 where it is gone.
double cpu_seconds_of(pid_t pid) {
  clockid_t clock;
  timespec now{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The processes that it started, theirs, and so on.
std::vector<pid_t> descendants(pid_t root) {
  constexpr std::size_t kMost = 256;
  std::vector<pid_t> found{root};
  for (std::size_t at = 0; at < found.size() && found.size() < kMost; ++at) {
    std::error_code error;
    const std::filesystem::path tasks = fmt::format("/proc/{}/task", found[at]);
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child = 0; children >> child;) found.push_back(child);
    }
  }
  found.erase(found.begin());
  return found;
}

}  // namespace

std::optional<std::string> HostProcess::start(const std::string& program, Command command,
                                              const std::string& variable) {
  stop();
  arena_.publish();
  HostHeader& header = arena_.header();
  header.runner_pid = getpid();
  header.command = command;
  header.stage = Stage::starting;
  header.cpu_before_ns = 0;
  header.failed_allocations = 0;
  header.fault = {};
  header.host_sleeps = header.runner_sleeps = 0;
  __atomic_store_n(&header.turn, static_cast<std::uint32_t>(Turn::host), __ATOMIC_SEQ_CST);
  output_.clear();
  end_ = {};

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fmt::format("pipe: {}", std::strerror(errno));
  Pipe pipe{ends[0], fcntl(ends[1], F_DUPFD_CLOEXEC, 10)};
  close(ends[1]);
  if (pipe.write < 0) {
    close(pipe.read);
    return fmt::format("pipe: {}", std::strerror(errno));
  }
  fcntl(pipe.read, F_SETFL, O_NONBLOCK);
  // The watcher starts it too: a parent-death signal is bound to the thread that started the child,
  // and this thread ends only once the child is gone.
  std::promise<int> spawned;
  std::future<int> error = spawned.get_future();
  watcher_ = std::thread([this, program, variable, pipe, &spawned] {
    int failed = spawn(program, variable, pipe.write, arena_.fd(), pid_);
    close(pipe.write);
    if (!failed) {
      pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
      if (pidfd_ < 0) {
        failed = errno;
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
      }
    }
    spawned.set_value(failed);
    if (!failed) watch(pipe);
    close(pipe.read);
  });
  const int failed = error.get();
  if (!failed) return std::nullopt;
  watcher_.join();
  pid_ = -1;
  return fmt::format("the kernel host {} cannot start: {}", program, std::strerror(failed));
}

void HostProcess::watch(Pipe pipe) {
  pollfd waits[2] = {{pidfd_, POLLIN, 0}, {pipe.read, POLLIN, 0}};
  for (;;) {
    if (poll(waits, 2, -1) < 0) continue;  // EINTR
    if (waits[1].revents & POLLIN) {
      drain(pipe.read);
    } else if (waits[1].revents) {
      waits[1].fd = -1;  // closed by the kernel
    }
    if (waits[0].revents) break;
  }
  if (waits[1].fd >= 0) drain(pipe.read);
  siginfo_t info{};
  // WNOWAIT: until reap() the process id stays ours, for signals and /proc.
  waitid(P_PIDFD, static_cast<id_t>(pidfd_), &info, WEXITED | WNOWAIT);
  end_ = {info.si_code != CLD_EXITED, info.si_status};
  declare_dead(arena_.header());
}

void HostProcess::drain(int fd) {
  // Bounded: a process that the kernel left behind may print for ever.
  constexpr int kMostReads = 64;
  char block[4096];
  for (int i = 0; i < kMostReads; ++i) {
    const ssize_t got = read(fd, block, sizeof block);
    if (got <= 0) return;
    if (!mark_.empty()) pass_on({block, static_cast<std::size_t>(got)});
    const std::lock_guard lock(output_mutex_);
    output_.append(block, static_cast<std::size_t>(got));
    if (output_.size() > kKeptOutput) output_.erase(0, output_.size() - kKeptOutput);
  }
}

void HostProcess::pass_on(std::string_view text) {
  constexpr int kMostLines = 100;
  constexpr std::size_t kMostColumns = 1000;
  static std::atomic<int> lines{0};
  for (const char c : text) {
    if (c != '\n' && line_.size() < kMostColumns) {
      line_.push_back(c);
      continue;
    }
    const int line = lines++;
    if (line < kMostLines) fmt::print(stderr, "[{}] {}\n", mark_, printable(line_));
    if (line == kMostLines) fmt::print(stderr, "[{}] what more it prints is not shown\n", mark_);
    line_.clear();
  }
}

void HostProcess::kill() {
  if (pidfd_ < 0) return;
  // The group: what the kernel forked goes too.
  ::kill(-pid_, SIGKILL);
  syscall(SYS_pidfd_send_signal, pidfd_, SIGKILL, nullptr, 0);
}

void HostProcess::reap() {
  if (watcher_.joinable()) watcher_.join();
  if (pidfd_ < 0) return;
  ::kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  close(pidfd_);
  pidfd_ = -1;
  pid_ = -1;
}

void HostProcess::stop() {
  if (!running()) return;
  HostHeader& header = arena_.header();
  if (turn_of(header) == Turn::runner) {
    // Leaving in order lets a kernel close, and a profiler or coverage counter write its file.
    header.command = Command::quit;
    give_turn(header, Turn::host);
    bool grew = false;
    wait({1, 2}, grew);
  }
  kill();
  reap();
}

HostEnd HostProcess::end() {
  reap();
  return end_;
}

std::string HostProcess::output() {
  const std::lock_guard lock(output_mutex_);
  return output_;
}

double HostProcess::cpu_seconds() const { return cpu_seconds_of(pid_); }

double HostProcess::children_cpu_seconds() const {
  double seconds = 0;
  if (mark_.empty()) return seconds;
  for (const pid_t child : descendants(pid_)) seconds += cpu_seconds_of(child);
  return seconds;
}

HostProcess::Starvation HostProcess::starvation() const {
  Starvation found;
  std::vector<pid_t> processes{pid_};
  if (!mark_.empty())
    for (const pid_t child : descendants(pid_)) processes.push_back(child);
  for (const pid_t process : processes) {
    std::error_code error;
    const std::filesystem::path tasks = fmt::format("/proc/{}/task", process);
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
      // "123 (name) R ...": a name may hold anything, parentheses too.
      std::string stat;
      std::getline(std::ifstream(task.path() / "stat"), stat);
      const std::size_t name_end = stat.rfind(')');
      found.runnable |= name_end != std::string::npos && stat.substr(name_end).starts_with(") R");
      double ran = 0, waited = 0;  // nanoseconds
      if (std::ifstream(task.path() / "schedstat") >> ran >> waited) found.seconds += 1e-9 * waited;
    }
  }
  return found;
}

std::uint64_t HostProcess::data_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  std::uint64_t pages = 0;
  for (int field = 0; field < 6; ++field) file >> pages;
  return file ? pages * kPageBytes : 0;
}

void HostProcess::bound_memory([[maybe_unused]] std::uint64_t bytes) {
#if !defined(ATTEST_SANITIZED)
  rlimit limit{};
  if (prlimit(pid_, RLIMIT_DATA, nullptr, &limit) != 0) return;
  limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
  prlimit(pid_, RLIMIT_DATA, &limit, nullptr);
#endif
}

/// A process that a busy machine does not let run is not hung: what it waits for a core does not
/// count, and while one of its threads could run its CPU time decides. Up to a point: somebody
/// waits for an answer.
bool HostProcess::is_starved(double wall, double starved_before, double limit) const {
  constexpr double kPatience = 20;
  if (wall > kPatience * limit) return false;
  const Starvation now = starvation();
  return now.runnable || wall - std::max(0.0, now.seconds - starved_before) <= limit;
}

HostProcess::Answer HostProcess::wait(const Limits& limits, bool& grew) {
  HostHeader& header = arena_.header();
  const auto answer = [&header]() -> std::optional<Answer> {
    switch (turn_of(header)) {
      case Turn::host: return std::nullopt;
      case Turn::runner: return Answer::answered;
      case Turn::dead: return Answer::died;
    }
    return Answer::garbled;  // the kernel wrote over it
  };
  grew = false;
  const double slice = std::clamp(limits.cpu_seconds / 8, 0.002, 0.05);
  const auto slice_ns = static_cast<std::uint64_t>(slice * 1e9);
  wait_for_turn(header, Turn::runner, slice_ns);
  if (auto done = answer()) return *done;

  const auto start = Clock::now();
  const double starved_before = starvation().seconds;
  // From now on: what they used in the first slice is forgiven.
  const double children_before = children_cpu_seconds();
  const std::uint64_t data_before = data_bytes();
  std::uint64_t data_halfway = 0;
  for (;;) {
    wait_for_turn(header, Turn::runner, slice_ns);
    if (auto done = answer()) return *done;
    const double cpu = cpu_seconds() - 1e-9 * static_cast<double>(header.cpu_before_ns) +
                       std::max(0.0, children_cpu_seconds() - children_before);
    const double wall = seconds_since(start) + slice;
    const bool over_cpu = cpu > limits.cpu_seconds;
    const bool over_wall =
        wall > limits.wall_seconds && !is_starved(wall, starved_before, limits.wall_seconds);
    if (!data_halfway && (cpu > limits.cpu_seconds / 2 || wall > limits.wall_seconds / 2))
      data_halfway = data_bytes();
    if (!over_cpu && !over_wall) continue;
    const std::uint64_t data = data_bytes();
    grew = data > data_before + kGrowth && data > data_halfway + kLateGrowth;
    return over_cpu ? Answer::over_cpu : Answer::over_wall;
  }
}

}  // namespace attest
