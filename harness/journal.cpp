// SPDX-License-Identifier: Apache-2.0
#include "harness/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "attest/case_line.hpp"
#include "attest/names.hpp"

namespace attest {

namespace {

constexpr std::string_view kMagic = "attest-journal 1";

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\': out += "\\\\"; break;
      case '\t': out += "\\t"; break;
      case '\n': out += "\\n"; break;
      case '\0': out += "\\0"; break;
      default: out += c;
    }
  }
  return out;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    switch (text[i]) {
      case '\\': out += '\\'; break;
      case 't': out += '\t'; break;
      case 'n': out += '\n'; break;
      case '0': out += '\0'; break;
      default: return std::nullopt;
    }
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <class T>
bool read(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

std::string print_header(const JournalHeader& header) {
  std::string line(kMagic);
  for (const auto& [key, value] : header) line += "\t" + key + "=" + escape(value);
  return line;
}

/// What differs between the header of a journal and the one this run would write.
std::optional<std::string> header_difference(std::string_view line, const JournalHeader& header) {
  const std::vector<std::string_view> fields = split(line, '\t');
  std::size_t i = 1;
  for (const auto& [key, value] : header) {
    const std::string_view field = i < fields.size() ? fields[i] : std::string_view();
    ++i;
    if (field == key + "=" + escape(value)) continue;
    if (field.substr(0, key.size() + 1) != key + "=") return "written by another version of attest";
    const std::string_view theirs = field.substr(key.size() + 1);
    if (theirs.size() + value.size() > 120) return "of a run with another " + key;
    return fmt::format("of a run with {} {}, not {}", key, theirs, value);
  }
  if (i != fields.size()) return "written by another version of attest";
  return std::nullopt;
}

std::optional<std::string> read_all(int file) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
}

std::string print_audit(const Audit& audit) {
  return fmt::format("{} {} {} {} {} {}", audit.rows, audit.elements, audit.outside,
                     print_number(audit.worst_fraction_of_radius),
                     print_number(audit.worst_radius_over_tolerance), escape(audit.first_outside));
}

bool parse_audit(std::string_view text, Audit& audit) {
  // The last field may hold blanks.
  std::vector<std::string_view> parts;
  for (int i = 0; i < 5; ++i) {
    const std::size_t at = text.find(' ');
    if (at == std::string_view::npos) return false;
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  const auto first = unescape(text);
  if (!first) return false;
  audit.first_outside = *first;
  return read(parts[0], audit.rows) && read(parts[1], audit.elements) &&
         read(parts[2], audit.outside) && read(parts[3], audit.worst_fraction_of_radius) &&
         read(parts[4], audit.worst_radius_over_tolerance);
}

std::string_view ratio_name(std::optional<Output> output) { return output ? name(*output) : "-"; }

int place_of(const WorkList& work, std::string_view id) {
  for (std::size_t r = 0; r < work.requirements.size(); ++r)
    if (work.requirements[r]->id == id) return static_cast<int>(r);
  return -1;
}

bool parse_case(const WorkList& work, std::string_view text, std::string_view detail,
                CaseOutcome& outcome) {
  const std::vector<std::string_view> parts = split(text, ' ');
  if (parts.size() != 6) return false;
  outcome.requirement = place_of(work, parts[0]);
  const auto verdict = parse_verdict(parts[1]);
  const auto reason = parse_reason(parts[2]);
  const auto unescaped = unescape(detail);
  if (outcome.requirement < 0 || !verdict || !reason || !unescaped) return false;
  outcome.verdict = *verdict;
  outcome.reason = *reason;
  outcome.ratio_output = parse_output(parts[3]);
  outcome.detail = *unescaped;
  return read(parts[4], outcome.ratio) && read(parts[5], outcome.elements);
}

}  // namespace

std::string print_unit(const WorkList& work, const WorkUnit& unit, const UnitResult& result) {
  const std::string stream = unit.is_shared()
                                 ? std::string(enum_name(unit.operation()))
                                 : work.requirements[static_cast<std::size_t>(unit.stream)]->id;
  std::string line = fmt::format("unit\t{} {}\t{}", stream, unit.index, print_audit(result.audit));
  for (const CaseOutcome& outcome : result.cases)
    line +=
        fmt::format("\t{} {} {} {} {} {}\t{}",
                    work.requirements[static_cast<std::size_t>(outcome.requirement)]->id,
                    name(outcome.verdict), name(outcome.reason), ratio_name(outcome.ratio_output),
                    print_number(outcome.ratio), outcome.elements, escape(outcome.detail));
  return line;
}

std::optional<std::pair<WorkUnit, UnitResult>> parse_unit(const WorkList& work,
                                                          std::string_view line) {
  const std::vector<std::string_view> fields = split(line, '\t');
  if (fields.size() < 3 || fields.size() % 2 == 0 || fields[0] != "unit") return std::nullopt;
  WorkUnit unit;
  const std::vector<std::string_view> address = split(fields[1], ' ');
  if (address.size() != 2 || !read(address[1], unit.index)) return std::nullopt;
  if (const auto operation = parse_enum<Operation>(address[0])) {
    unit.stream = WorkUnit::shared_stream(*operation);
  } else {
    unit.stream = place_of(work, address[0]);
    if (unit.stream < 0) return std::nullopt;
  }
  UnitResult result;
  result.done = true;
  if (!parse_audit(fields[2], result.audit)) return std::nullopt;
  for (std::size_t i = 3; i < fields.size(); i += 2) {
    CaseOutcome outcome;
    if (!parse_case(work, fields[i], fields[i + 1], outcome)) return std::nullopt;
    result.cases.push_back(std::move(outcome));
  }
  return std::pair(unit, std::move(result));
}

namespace {

/// Reads the units; `valid` becomes the length of the well-formed prefix.
std::optional<std::string> read_units(std::string_view text, std::size_t start,
                                      const WorkList& work, JournalResults& results,
                                      std::size_t& valid) {
  std::map<std::pair<int, std::int64_t>, std::size_t> positions;
  for (std::size_t i = 0; i < work.units.size(); ++i)
    positions[{work.units[i].stream, work.units[i].index}] = i;
  valid = start;
  int line_number = 1;
  while (valid < text.size()) {
    ++line_number;
    const std::size_t end = text.find('\n', valid);
    if (end == std::string_view::npos) return std::nullopt;  // torn by a kill
    const auto parsed = parse_unit(work, text.substr(valid, end - valid));
    if (!parsed) {
      // A machine that lost power may leave junk at the end, but nowhere else.
      if (end + 1 == text.size()) return std::nullopt;
      return fmt::format("line {} is damaged", line_number);
    }
    const auto place = positions.find({parsed->first.stream, parsed->first.index});
    if (place == positions.end())
      return fmt::format("line {} is of a case that this run does not have", line_number);
    results[place->second] = parsed->second;
    valid = end + 1;
  }
  return std::nullopt;
}

}  // namespace

bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& path, bool resume,
                                               const JournalHeader& header, const WorkList& work,
                                               JournalResults& results) {
  const auto refuse = [&](const std::string& why) { return Error{"journal " + path + ": " + why}; };
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) return refuse(std::strerror(errno));
  std::unique_ptr<Journal> journal(new Journal(file, path));
  struct stat status {};
  if (::fstat(file, &status) != 0) return refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return refuse("is no regular file");
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return refuse("another run is writing it");
  const auto text = read_all(file);
  if (!text) return refuse(std::strerror(errno));
  const std::string_view all = *text;
  if (!all.empty() && all.substr(0, kMagic.size()) != kMagic && kMagic.substr(0, all.size()) != all)
    return refuse("exists and is no journal");
  std::size_t valid = 0;
  const std::size_t header_end = all.find('\n');
  if (resume && header_end != std::string_view::npos) {
    if (const auto difference = header_difference(all.substr(0, header_end), header))
      return refuse(*difference);
    if (const auto error = read_units(all, header_end + 1, work, results, valid))
      return refuse(*error);
  }
  if (::ftruncate(file, static_cast<off_t>(valid)) != 0) return refuse(std::strerror(errno));
  if (valid == 0 && !write_all(file, print_header(header) + "\n"))
    return refuse(std::strerror(errno));
  return journal;
}

Journal::~Journal() { ::close(file_); }

bool Journal::append(const WorkList& work, const WorkUnit& unit, const UnitResult& result) {
  // O_APPEND and a single write: lines of several threads do not mix.
  return write_all(file_, print_unit(work, unit, result) + "\n");
}

void Journal::discard() { ::unlink(path_.c_str()); }

}  // namespace attest
