// SPDX-License-Identifier: Apache-2.0
// A program that reads requests and writes answers on two pipes of its own.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "reports/message.hpp"

namespace attest {

class Child {
 public:
  explicit Child(WorkerCommand command) : command_(std::move(command)) {}
  ~Child() { stop(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Why it cannot; nullopt where it runs.
  std::optional<std::string> start();
  bool running() const { return pid_ > 0; }
  void stop();

  /// `gone`: it ended, or closed its pipe. `nonsense`: what it wrote is no message of a bearable
  /// size, or stood there before it was asked.
  enum class Outcome : std::uint8_t { answered, gone, nonsense };
  Outcome exchange(const std::string& request, std::string& answer);
  /// Ends this process as the program ended, so that whoever watches it sees the same accident.
  [[noreturn]] void follow();
  /// How it ended, in words; takes it away.
  std::string obituary();

 private:
  bool send(const std::string& text);
  Outcome receive_line(std::string& line);
  Outcome receive_blob(std::string& blob);
  bool receive(char* to, std::size_t bytes);
  bool has_spoken() const;

  WorkerCommand command_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
};

}  // namespace attest
