// SPDX-License-Identifier: Apache-2.0
// Results on disk as they come: a line each, after one that says which run they are of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attest/result.hpp"

namespace attest {

/// What a journal says of its runs.
struct JournalKind {
  std::string noun;      ///< "selftest"
  std::string identity;  ///< what two runs must share: "library, suite, seed, scope or build"
};

class LineJournal {
 public:
  /// Starts a journal at `path`, or with `resume` goes on with the one that is there, whose lines
  /// go to `done`. Refuses a file that is no such journal (its first bytes are not those of
  /// `header`), one of another run, and one that another process writes. A torn last line is
  /// dropped.
  static Result<std::unique_ptr<LineJournal>> open(const std::string& path, bool resume,
                                                   const JournalKind& kind,
                                                   const std::string& header,
                                                   std::vector<std::string>& done);
  ~LineJournal();
  LineJournal(const LineJournal&) = delete;
  LineJournal& operator=(const LineJournal&) = delete;

  /// `line` has no line break. False, with errno set, where the disk is full or the like.
  bool append(const std::string& line);
  /// Deletes the file: the run is complete and nobody asked to keep it.
  void discard();

 private:
  LineJournal(int file, std::string path) : file_(file), path_(std::move(path)) {}
  int file_;
  std::string path_;
};

}  // namespace attest
