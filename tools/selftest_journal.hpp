// SPDX-License-Identifier: Apache-2.0
// Results of a selftest on disk as they come: a line of JSON each, after one that says which run
// they are of.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attest/detection.hpp"
#include "attest/result.hpp"

namespace attest {

class SelftestJournal {
 public:
  /// Starts a journal at `path`, or with `resume` goes on with the one that is there, whose kernels
  /// go to `done`. Refuses a file that is no such journal, one of another run, and one that another
  /// process writes. A torn last line is dropped.
  static Result<std::unique_ptr<SelftestJournal>> open(const std::string& path, bool resume,
                                                       const std::string& header,
                                                       std::vector<Detection>& done);
  ~SelftestJournal();
  SelftestJournal(const SelftestJournal&) = delete;
  SelftestJournal& operator=(const SelftestJournal&) = delete;

  /// False where the disk is full or the like.
  bool append(const Detection& kernel);
  /// Deletes the file: the run is complete and nobody asked to keep it.
  void discard();

 private:
  SelftestJournal(int file, std::string path) : file_(file), path_(std::move(path)) {}
  int file_;
  std::string path_;
};

}  // namespace attest
