// SPDX-License-Identifier: Apache-2.0
#include "tools/bridge/child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace attest {
namespace {

// What the program finds its pipes on, unless it was asked to take stdin and stdout.
constexpr int kRequests = 3, kAnswers = 4;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
constexpr std::size_t kBlock = std::size_t{1} << 16;

struct Pipes {
  int to_child[2] = {-1, -1}, from_child[2] = {-1, -1};
  int failure[2] = {-1, -1};  ///< errno of exec, where that fails
};

void close_all(Pipes& pipes) {
  for (int* ends : {pipes.to_child, pipes.from_child, pipes.failure})
    for (int n = 0; n < 2; ++n)
      if (ends[n] >= 0) close(ends[n]);
}

/// Ends above those that the program is given, so that moving one covers no other.
bool make_pipe(int (&ends)[2]) {
  int low[2];
  if (pipe2(low, O_CLOEXEC) != 0) return false;
  for (int n = 0; n < 2; ++n) {
    ends[n] = fcntl(low[n], F_DUPFD_CLOEXEC, 10);
    close(low[n]);
  }
  return ends[0] >= 0 && ends[1] >= 0;
}

/// In the child: nothing but what may stand between fork and exec.
[[noreturn]] void become(char* const* arguments, const Pipes& pipes, bool over_stdio) {
  const int in = over_stdio ? STDIN_FILENO : kRequests;
  const int out = over_stdio ? STDOUT_FILENO : kAnswers;
  if (dup2(pipes.to_child[0], in) >= 0 && dup2(pipes.from_child[1], out) >= 0) {
    // The memory that the runner shares with this process is none of its business.
    close_range(static_cast<unsigned>(over_stdio ? kRequests : kAnswers + 1), ~0U,
                CLOSE_RANGE_CLOEXEC);
    execvp(arguments[0], arguments);
  }
  const int error = errno;
  (void)!write(pipes.failure[1], &error, sizeof error);
  _exit(127);
}

}  // namespace

std::optional<std::string> Child::start() {
  stop();
  std::signal(SIGPIPE, SIG_IGN);
  Pipes pipes;
  if (!make_pipe(pipes.to_child) || !make_pipe(pipes.from_child) || !make_pipe(pipes.failure)) {
    const int error = errno;
    close_all(pipes);
    return fmt::format("pipe: {}", std::strerror(error));
  }
  setenv("ATTEST_READ_FD", std::to_string(command_.over_stdio ? 0 : kRequests).c_str(), 1);
  setenv("ATTEST_WRITE_FD", std::to_string(command_.over_stdio ? 1 : kAnswers).c_str(), 1);
  setenv("ATTEST_PROTOCOL", std::string(name(command_.format)).c_str(), 1);
  std::vector<char*> arguments;
  for (std::string& argument : command_.arguments) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    become(arguments.data(), pipes, command_.over_stdio);
  }
  const int fork_error = errno;
  close(std::exchange(pipes.to_child[0], -1));
  close(std::exchange(pipes.from_child[1], -1));
  close(std::exchange(pipes.failure[1], -1));
  int error = pid_ < 0 ? fork_error : 0;
  if (pid_ > 0 && read(pipes.failure[0], &error, sizeof error) != sizeof error) error = 0;
  if (error == 0) {
    to_ = std::exchange(pipes.to_child[1], -1);
    from_ = std::exchange(pipes.from_child[0], -1);
  }
  close_all(pipes);
  if (error == 0) return std::nullopt;
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  pid_ = -1;
  return fmt::format("cannot start {}: {}", command_.arguments[0], std::strerror(error));
}

void Child::stop() {
  for (int* end : {&to_, &from_})
    if (*end >= 0) close(std::exchange(*end, -1));
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

bool Child::send(const std::string& text) {
  for (std::size_t sent = 0; sent < text.size();) {
    const ssize_t now = write(to_, text.data() + sent, text.size() - sent);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<std::size_t>(now);
  }
  return true;
}

bool Child::receive(char* to, std::size_t bytes) {
  for (std::size_t got = 0; got < bytes;) {
    const ssize_t now = read(from_, to + got, bytes - got);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    got += static_cast<std::size_t>(now);
  }
  return true;
}

Child::Outcome Child::receive_line(std::string& line) {
  line.clear();
  char block[kBlock];
  for (;;) {
    const ssize_t got = read(from_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Outcome::gone;
    const char* const end = block + got;
    const char* const newline = std::find(static_cast<const char*>(block), end, '\n');
    line.append(static_cast<const char*>(block), newline);
    if (line.size() > kMostBytes) return Outcome::nonsense;
    // What stands behind the line was not asked for.
    if (newline != end) return newline + 1 == end ? Outcome::answered : Outcome::nonsense;
  }
}

Child::Outcome Child::receive_blob(std::string& blob) {
  unsigned char length[8];
  if (!receive(reinterpret_cast<char*>(length), sizeof length)) return Outcome::gone;
  std::uint64_t bytes = 0;
  for (int n = 7; n >= 0; --n) bytes = bytes << 8 | length[n];
  if (bytes > kMostBytes) return Outcome::nonsense;
  blob.clear();
  // By and by: a length that lies takes no memory.
  while (blob.size() < bytes) {
    const std::size_t before = blob.size();
    blob.resize(before + std::min<std::size_t>(bytes - before, kBlock * 16));
    if (!receive(blob.data() + before, blob.size() - before)) return Outcome::gone;
  }
  return Outcome::answered;
}

bool Child::has_spoken() const {
  pollfd wait{from_, POLLIN, 0};
  return poll(&wait, 1, 0) > 0 && (wait.revents & POLLIN) != 0;
}

Child::Outcome Child::exchange(const std::string& request, std::string& answer) {
  if (has_spoken()) return Outcome::nonsense;
  if (command_.format == MessageFormat::jsonl)
    return send(request + '\n') ? receive_line(answer) : Outcome::gone;
  std::string framed;
  framed.reserve(8 + request.size());
  for (int shift = 0; shift < 64; shift += 8)
    framed.push_back(static_cast<char>(request.size() >> shift & 0xff));
  framed += request;
  return send(framed) ? receive_blob(answer) : Outcome::gone;
}

void Child::follow() {
  // It has closed its pipe; it may be about to end, or never.
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, 0);
  if (ended == pid_ && WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    std::signal(signal, SIG_DFL);
    raise(signal);
  }
  _exit(ended == pid_ && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

std::string Child::obituary() {
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, 0);
  pid_ = -1;
  stop();
  if (ended < 0) return "ended";
  if (WIFSIGNALED(status)) {
    const char* const abbreviation = sigabbrev_np(WTERMSIG(status));
    return fmt::format("ended by signal {}{}", WTERMSIG(status),
                       abbreviation ? fmt::format(" (SIG{})", abbreviation) : "");
  }
  return fmt::format("ended with exit status {}", WEXITSTATUS(status));
}

}  // namespace attest
