// SPDX-License-Identifier: Apache-2.0
// One kernel host: a child process started by posix_spawn, watched by a thread that lives as long
// as it does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "harness/accident.hpp"
#include "harness/arena.hpp"

namespace attest {

class HostProcess {
 public:
  /// The arena outlives the process. Nothing is started yet.
  explicit HostProcess(Arena& arena) : arena_(arena) {}
  ~HostProcess() { stop(); }
  HostProcess(const HostProcess&) = delete;
  HostProcess& operator=(const HostProcess&) = delete;

  /// Starts the program on the arena, with the turn given to it and `command` waiting, and with
  /// `variable` ("NAME=value") in its environment where that is not "". Returns why it cannot.
  std::optional<std::string> start(const std::string& program, Command command,
                                   const std::string& variable);
  /// Asks it to leave, then kills it. Safe where it is gone already.
  void stop();
  void kill();
  bool running() const { return watcher_.joinable(); }

  /// What of it a wait may use up.
  struct Limits {
    double cpu_seconds;
    double wall_seconds;
  };
  enum class Answer : std::uint8_t { answered, died, over_cpu, over_wall, garbled };
  /// Until it gives the turn back. `grew` is set where it was still taking memory when its time was
  /// up: at least 8 MiB since the wait began, of which 1 MiB in the last half.
  Answer wait(const Limits& limits, bool& grew);

  /// How it ended; waits for that.
  HostEnd end();
  /// The last 4 KiB of its stdout and stderr.
  std::string output();
  /// It starts a program that does the work: what that takes of CPU time counts, and what it prints
  /// goes to stderr too, each line behind "[mark]", the first 100 of all processes together.
  void has_program(const std::string& mark) { mark_ = mark; }
  /// Bytes of private memory (data and stack).
  std::uint64_t data_bytes() const;
  /// Bounds its private memory to `bytes` in all. No effect in sanitizer builds, whose shadow
  /// memory counts.
  void bound_memory(std::uint64_t bytes);

 private:
  struct Pipe {
    int read = -1, write = -1;
  };
  void watch(Pipe pipe);
  void drain(int fd);
  void pass_on(std::string_view text);
  double cpu_seconds() const;
  /// Of the program's processes; 0 without one.
  double children_cpu_seconds() const;
  struct Starvation {
    bool runnable = false;  ///< a thread has a core or waits for one
    double seconds = 0;     ///< that its threads waited for a core
  };
  Starvation starvation() const;
  bool is_starved(double wall, double starved_before, double limit) const;
  void reap();

  Arena& arena_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  HostEnd end_;
  std::thread watcher_;
  std::mutex output_mutex_;
  std::string output_;
  std::string mark_, line_;  ///< line_: what came after the last end of a line
};

}  // namespace attest
