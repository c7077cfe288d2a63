// SPDX-License-Identifier: Apache-2.0
// Subject: one kernel under test, however it is reached. The runner lays out memory and never runs
// foreign code itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "attest/declaration.hpp"
#include "attest/plugin.h"
#include "attest/result.hpp"
#include "harness/accident.hpp"
#include "harness/placed_call.hpp"

namespace attest {

struct CallLimits {
  double cpu_seconds = 1.0;                           ///< hang; ten times that in wall time
  std::int64_t memory_bytes = std::int64_t{1} << 30;  ///< beyond the arena
};

struct CallStatus {
  std::optional<Accident> accident;
  std::int32_t status = 0;  ///< as the kernel returned it
  std::string message;
  double cpu_seconds = 0;
  double elapsed_seconds = 0;         ///< of the operation alone, all repeats together
  std::uint64_t workspace_bytes = 0;  ///< that the kernel's plan asked for
  /// The most memory that the call had at once beyond what the kernel held before it, its workspace
  /// included. nullopt: not known, as in this process and in builds with sanitizers.
  std::optional<std::uint64_t> peak_bytes;
};

class Arena;  // harness/arena.hpp

class Subject {
 public:
  virtual ~Subject() = default;
  virtual const std::string& kernel_name() const = 0;
  virtual const std::string& version() const = 0;
  virtual const Declaration& declaration() const = 0;
  virtual int alignment() const = 0;  ///< bytes; 0 = element size
  /// The memory that calls are laid out in. Grows to at least `bytes`; addresses change when it
  /// grows.
  virtual Arena& arena() = 0;
  /// One forward or backward call on tensors already placed in arena().
  virtual CallStatus call(const PlacedCall& call, const CallLimits& limits) = 0;
  /// The next call is the first one of a fresh process: nothing is left of those before it. Without
  /// effect where the kernel has no process of its own.
  virtual void restart() {}
};

/// Where a kernel is: a path to a shared library, with `#name` for one kernel of several; or the
/// name of a built-in one, looked up as <name>.so in the module folder beside the command
/// (module_dir()); or a program.
struct SubjectSpec {
  std::string path;    ///< of a program: what the user calls it by
  std::string kernel;  ///< "" = the first
  bool built_in = false;
  /// Taken instead of the kernel's own declaration, which may then be missing; "": the kernel's
  /// own.
  std::string declaration;
  /// How to start the program that answers (reports/message.hpp), through the bridge in
  /// module_dir(); "": a library.
  std::string program = {};
  std::string source = {};  ///< of a program: the file that holds it, where that is known
};
Result<SubjectSpec> resolve_subject(const std::string& text);
std::string module_dir();
/// Names of the built-in implementations: the modules in module_dir().
std::vector<std::string> built_in_names();

/// In the kernel host, a child process that a broken kernel may kill. `error` says usage (bad
/// library, bad declaration) or machine trouble (`machine` set: the host cannot start).
struct OpenError {
  std::string message;
  bool machine = false;
  bool undeclared = false;  ///< the kernel says nothing of itself, and SubjectSpec neither
};
std::unique_ptr<Subject> open_in_host(const SubjectSpec& spec, OpenError& error);
/// In this process: for benchmarks and unit tests.
std::unique_ptr<Subject> open_in_process(const SubjectSpec& spec, OpenError& error);
/// A kernel that is linked into this program.
std::unique_ptr<Subject> open_in_process(const attest_plugin* plugin, OpenError& error);

}  // namespace attest
