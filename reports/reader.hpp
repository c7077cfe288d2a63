// SPDX-License-Identifier: Apache-2.0
// Reads a record back from its JSON form.
#pragma once

#include <string>
#include <string_view>

#include "attest/record.hpp"
#include "attest/result.hpp"

namespace attest {

/// Larger files are refused: a record of 20,000 failures takes about 20 MB.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

/// Strict: every key that docs/record.md names and no other, closed lists as written there, indices
/// between causes and failures within bounds. The error is one line that names the place
/// ("failures[2].reason: ..."). Any bytes are safe to pass.
Result<Record> read_record(std::string_view json);

/// The same from a file; the error starts with the path.
Result<Record> read_record_file(const std::string& path);

}  // namespace attest
