// SPDX-License-Identifier: Apache-2.0
#include "tools/selftest_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "harness/journal.hpp"
#include "reports/detection.hpp"
#include "tools/command.hpp"

namespace attest {

namespace {

/// The whole lines after the header; `valid` becomes where they end. "" or what is wrong.
std::string read_lines(std::string_view text, std::vector<Detection>& done, std::size_t& valid) {
  int number = 1;
  for (std::size_t end = 0; (end = text.find('\n', valid)) != text.npos; valid = end + 1) {
    ++number;
    Result<Detection> kernel = read_detection_line(text.substr(valid, end - valid));
    if (!kernel) return fmt::format("line {}: {}", number, kernel.error());
    done.push_back(std::move(*kernel));
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<SelftestJournal>> SelftestJournal::open(const std::string& path, bool resume,
                                                               const std::string& header,
                                                               std::vector<Detection>& done) {
  const auto refuse = [&](const std::string& why) { return Error{"journal " + path + ": " + why}; };
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return refuse(std::strerror(errno));
  std::unique_ptr<SelftestJournal> journal(new SelftestJournal(file, path));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return refuse("another run is writing it");
  const std::string text = read_text_file(path);
  // All journals begin alike, whatever run they are of.
  constexpr std::size_t kBeginning = 12;
  if (!text.empty() && text.compare(0, kBeginning, header, 0, kBeginning) != 0)
    return refuse("exists and is no journal of a selftest");
  std::size_t valid = 0;
  if (resume && !text.empty()) {
    if (text.compare(0, header.size() + 1, header + "\n") != 0)
      return refuse("of another library, suite, seed, scope or build");
    valid = header.size() + 1;
    if (const std::string error = read_lines(text, done, valid); !error.empty())
      return refuse(error);
  }
  if (::ftruncate(file, static_cast<off_t>(valid)) != 0) return refuse(std::strerror(errno));
  if (valid == 0 && !write_all(file, header + "\n")) return refuse(std::strerror(errno));
  return journal;
}

SelftestJournal::~SelftestJournal() { ::close(file_); }

bool SelftestJournal::append(const Detection& kernel) {
  return write_all(file_, detection_line(kernel) + "\n");
}

void SelftestJournal::discard() { ::unlink(path_.c_str()); }

}  // namespace attest
