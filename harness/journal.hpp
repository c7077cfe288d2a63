// SPDX-License-Identifier: Apache-2.0
// The journal: results on disk as they come, so that an interrupted or killed run keeps what it
// had. Text, one line per finished unit, each written by one write(); a torn last line is dropped.
//
//   attest-journal 1 <TAB> key=value <TAB> key=value ...
//   unit <TAB> stream index <TAB> audit <TAB> requirement verdict reason output ratio elements
//        <TAB> detail <TAB> requirement ...
//
// The header says what the run was; a journal of another run is refused.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attest/result.hpp"
#include "harness/unit.hpp"

namespace attest {

/// Key and value of everything that two runs must share to be the same run, in a fixed order.
using JournalHeader = std::vector<std::pair<std::string, std::string>>;

/// The results of a journal by position in WorkList::units.
using JournalResults = std::map<std::size_t, UnitResult>;

/// All of the text, at the file's end; false, with errno set, where that cannot be.
bool write_all(int file, std::string_view text);

class Journal {
 public:
  /// Starts a journal at `path`, or with `resume` goes on with the one that is there, whose results
  /// go to `results` (dtype, head_dim and features of a unit are left to describe_unit()). Where
  /// nothing is there, resuming starts. Refuses a file that is no journal, one of another run, one
  /// that another process writes, and units that the list does not have.
  static Result<std::unique_ptr<Journal>> open(const std::string& path, bool resume,
                                               const JournalHeader& header, const WorkList& work,
                                               JournalResults& results);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Appends one unit; safe to call from several threads. False once writing has failed (disk
  /// full).
  bool append(const WorkList& work, const WorkUnit& unit, const UnitResult& result);
  /// Deletes the file: the run is complete and nobody asked to keep it.
  void discard();

 private:
  Journal(int file, std::string path) : file_(file), path_(std::move(path)) {}
  int file_;
  std::string path_;
};

/// One line without the newline, and back; nullopt where the line is malformed or names what the
/// work list does not have.
std::string print_unit(const WorkList& work, const WorkUnit& unit, const UnitResult& result);
std::optional<std::pair<WorkUnit, UnitResult>> parse_unit(const WorkList& work,
                                                          std::string_view line);

}  // namespace attest
