// SPDX-License-Identifier: Apache-2.0
#include "reports/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <system_error>

#include "reports/text.hpp"

namespace attest {
namespace {

std::string failure(const std::string& path, int error) {
  return fmt::format("cannot write {}: {}", path.empty() ? "''" : plain(path),
                     std::generic_category().message(error));
}

struct Closer {
  int descriptor;
  ~Closer() { close(descriptor); }
};

/// Where the content goes in the end: the path with symbolic links followed, or the path itself
/// where nothing is there yet.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

struct Target {
  std::string path;
  bool exists = false;
  bool regular = true;
  mode_t mode = 0;
};

/// 0 or an errno.
int look_at(const std::string& path, Target& target) {
  target.path = resolved(path);
  struct stat status {};
  if (stat(target.path.c_str(), &status) != 0) {
    if (errno != ENOENT) return errno;
    // A name that ends in a slash asks for a folder.
    return path.empty() ? ENOENT : path.back() == '/' ? EISDIR : 0;
  }
  target.exists = true;
  target.regular = S_ISREG(status.st_mode);
  target.mode = status.st_mode & 07777;
  if (S_ISDIR(status.st_mode)) return EISDIR;
  return access(target.path.c_str(), W_OK) == 0 ? 0 : errno;
}

/// A new empty file in the folder of `path`; -1 with errno set. The mode obeys the umask, which
/// mkstemp's does not.
int create_beside(const std::string& path, std::string& temporary) {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary = fmt::format("{}/.attest-{}-{}.tmp", folder_of(path), getpid(), ++counter);
    const int descriptor =
        open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor >= 0 || errno != EEXIST) return descriptor;
  }
  return -1;
}

int write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_straight(const std::string& path, std::string_view content) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const Closer closer{descriptor};
  return write_all(descriptor, content);
}

int fill(int descriptor, const Target& target, std::string_view content) {
  if (const int error = write_all(descriptor, content)) return error;
  if (target.exists && fchmod(descriptor, target.mode) != 0) return errno;
  return fsync(descriptor) == 0 ? 0 : errno;
}

int replace(const Target& target, std::string_view content) {
  std::string temporary;
  const int descriptor = create_beside(target.path, temporary);
  if (descriptor < 0) return errno;
  int error = 0;
  {
    const Closer closer{descriptor};
    error = fill(descriptor, target, content);
  }
  if (error == 0 && rename(temporary.c_str(), target.path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return error;
  }
  // The rename itself must reach the disk too. Not every file system can flush a folder; the
  // content is in place either way.
  const int folder = open(folder_of(target.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    const Closer closer{folder};
    fsync(folder);
  }
  return 0;
}

}  // namespace

std::optional<std::string> check_writable(const std::string& path) {
  Target target;
  if (const int error = look_at(path, target)) return failure(path, error);
  if (!target.regular) return std::nullopt;
  const std::size_t slash = target.path.rfind('/');
  const std::size_t length = target.path.size() - (slash == target.path.npos ? 0 : slash + 1);
  const long limit = pathconf(folder_of(target.path).c_str(), _PC_NAME_MAX);
  if (limit > 0 && length > static_cast<std::size_t>(limit)) return failure(path, ENAMETOOLONG);
  std::string temporary;
  const int descriptor = create_beside(target.path, temporary);
  if (descriptor < 0) return failure(path, errno);
  const Closer closer{descriptor};
  unlink(temporary.c_str());
  return std::nullopt;
}

std::optional<std::string> write_file(const std::string& path, std::string_view content) {
  Target target;
  int error = look_at(path, target);
  if (error == 0)
    error = target.regular ? replace(target, content) : write_straight(target.path, content);
  if (error != 0) return failure(path, error);
  return std::nullopt;
}

}  // namespace attest
