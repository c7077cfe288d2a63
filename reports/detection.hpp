// SPDX-License-Identifier: Apache-2.0
// The detection score as text: a screen, a page, JSON, and lines of a journal.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "attest/detection.hpp"
#include "attest/result.hpp"

namespace attest {

/// What went wrong, a line each, then the kinds, then figures; the last line is detection_score().
std::string detection_screen(const DetectionReport& report);
/// A page: the score, kinds, the matrix fault x requirement, the smallest case of every fault.
std::string detection_markdown(const DetectionReport& report);
/// Everything (schema/selftest.schema.json).
std::string detection_json(const DetectionReport& report);

/// One kernel on one line, and back.
std::string detection_line(const Detection& kernel);
Result<Detection> read_detection_line(std::string_view line);

/// What two runs must share so that their kernels can stand in one report, on one line. Begins with
/// {"journal".
std::string detection_header(const DetectionReport& report);

/// What went wrong with one kernel, as the screen says it; "" of one that is as it should be.
std::string detection_trouble(const Detection& kernel);

}  // namespace attest
