# SPDX-License-Identifier: Apache-2.0
# Run at build time: writes OUTPUT with the version and the commit, and only when they changed.
#   cmake -DSOURCE=... -DOUTPUT=... -DVERSION=... -P attest_build_info.cmake
set(commit "unknown")
find_package(Git QUIET)
if(Git_FOUND AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse HEAD
                  OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit ${head})
  endif()
endif()
set(text "// Written by the build.
#pragma once
namespace attest {
inline constexpr const char* kBuildVersion = \"${VERSION}\";
inline constexpr const char* kBuildCommit = \"${commit}\";
}  // namespace attest
")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
