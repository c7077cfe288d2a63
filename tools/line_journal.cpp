// SPDX-License-Identifier: Apache-2.0
#include "tools/line_journal.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "harness/journal.hpp"
#include "tools/arguments.hpp"

namespace attest {

namespace {

/// The whole lines after the header; `valid` becomes where they end.
void read_lines(std::string_view text, std::vector<std::string>& done, std::size_t& valid) {
  for (std::size_t end = 0; (end = text.find('\n', valid)) != text.npos; valid = end + 1)
    done.emplace_back(text.substr(valid, end - valid));
}

}  // namespace

Result<std::unique_ptr<LineJournal>> LineJournal::open(const std::string& path, bool resume,
                                                       const JournalKind& kind,
                                                       const std::string& header,
                                                       std::vector<std::string>& done) {
  const auto refuse = [&](const std::string& why) { return Error{"journal " + path + ": " + why}; };
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return refuse(std::strerror(errno));
  std::unique_ptr<LineJournal> journal(new LineJournal(file, path));
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return refuse("another run is writing it");
  const std::string text = read_text_file(path);
  // All journals of a kind begin alike, whatever run they are of: {"journal":"attest.KIND/
  const std::size_t beginning = header.find('/');
  if (!text.empty() && text.compare(0, beginning, header, 0, beginning) != 0)
    return refuse("exists and is no journal of a " + kind.noun);
  std::size_t valid = 0;
  if (resume && !text.empty()) {
    if (text.compare(0, header.size() + 1, header + "\n") != 0)
      return refuse("of another " + kind.identity);
    valid = header.size() + 1;
    read_lines(text, done, valid);
  }
  if (::ftruncate(file, static_cast<off_t>(valid)) != 0) return refuse(std::strerror(errno));
  if (valid == 0 && !write_all(file, header + "\n")) return refuse(std::strerror(errno));
  return journal;
}

LineJournal::~LineJournal() { ::close(file_); }

bool LineJournal::append(const std::string& line) { return write_all(file_, line + "\n"); }

void LineJournal::discard() { ::unlink(path_.c_str()); }

}  // namespace attest
