// SPDX-License-Identifier: Apache-2.0
// Reports are written whole or not at all: into a new file of the same folder, flushed to the disk,
// then renamed over the old one.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attest {

/// Whether `path` could be written now, found out by trying beside it; creates and changes nothing.
/// nullopt, or one line with the path and why not ("cannot write out/r.json: No such file or
/// directory").
std::optional<std::string> check_writable(const std::string& path);

/// nullopt when `content` is at `path`; else one line as above, and `path` is as it was before.
/// Follows a symbolic link to what is there, keeps the permissions of a file that was there.
/// Devices and pipes
/// (/dev/stdout) are written straight.
std::optional<std::string> write_file(const std::string& path, std::string_view content);

}  // namespace attest
