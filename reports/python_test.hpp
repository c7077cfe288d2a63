// SPDX-License-Identifier: Apache-2.0
// Foreign readers as judges of what is written: Python's jsonschema and XML parser.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace attest {

struct Output {
  int exit_code = -1;
  std::string text;  ///< stdout and stderr
};

inline Output python(const std::string& arguments) {
  Output output;
  std::FILE* pipe = popen((std::string(ATTEST_PYTHON) + ' ' + arguments + " 2>&1").c_str(), "r");
  if (!pipe) return output;
  std::array<char, 4096> buffer;
  std::size_t count = 0;
  while ((count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0)
    output.text.append(buffer.data(), count);
  const int status = pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return output;
}

inline Output validate(const std::string& arguments) {
  return python(std::string(ATTEST_SOURCE_DIR) + "/reports/schema/validate.py " + arguments);
}

}  // namespace attest
