// SPDX-License-Identifier: Apache-2.0
// What the two ways of reaching a kernel have in common.
#pragma once

#include <string>

#include "harness/host/protocol.hpp"
#include "harness/subject.hpp"

namespace attest {

/// What a loaded kernel says of itself.
struct KernelFacts {
  std::string name, version;
  Declaration declaration;
  int alignment = 0;
};

/// Puts path and kernel where load_plugin() finds them; the error is one line.
bool write_request(const SubjectSpec& spec, HostHeader& header, OpenError& error);
/// Where the bridge to a program finds how to start it: "NAME=value", or "" for a library.
std::string program_variable(const SubjectSpec& spec);
/// From the reply; false with one line that names the library, where something is wrong.
bool read_facts(const SubjectSpec& spec, const LoadReply& reply, KernelFacts& facts,
                OpenError& error);
/// The call's status, message and figures.
CallStatus read_reply(const CallReply& reply);

/// open_in_host() with another program or other limits on loading.
struct HostOptions {
  std::string program;           ///< "" = attest-host in module_dir()
  double load_cpu_seconds = 20;  // large libraries take seconds to bind
  double load_wall_seconds = 60;
};
std::unique_ptr<Subject> open_in_host(const SubjectSpec& spec, const HostOptions& options,
                                      OpenError& error);

}  // namespace attest
