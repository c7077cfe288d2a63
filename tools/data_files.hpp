// SPDX-License-Identifier: Apache-2.0
// The data files that come with the command: models and machines.
#pragma once

#include <string>
#include <vector>

namespace attest {

/// Names of share/attest/<kind>/*.json, sorted.
std::vector<std::string> data_names(const std::string& kind);

/// The path of a name, or of what is a path already: it holds a '/' or ends with ".json". A
/// CommandError names what there is.
std::string data_path(const std::string& kind, const std::string& name);

}  // namespace attest
