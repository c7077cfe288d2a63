# SPDX-License-Identifier: Apache-2.0
# Helpers that every room uses. Flags live on targets, never globally.
add_library(attest_options INTERFACE)
target_compile_features(attest_options INTERFACE cxx_std_20 c_std_11)
# Contraction would give other bits under dispatch and break error-free transformations; std::fma says where it is meant.
target_compile_options(attest_options INTERFACE -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow
                       # Designated initialisers leave fields at their defaults on purpose.
                       -Wno-missing-field-initializers
                       # g++ 12 sees overlaps in std::string concatenation that cannot be (PR 105651).
                       $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
                       $<$<BOOL:${ATTEST_WERROR}>:-Werror>)
if(ATTEST_SANITIZE)
  target_compile_options(attest_options INTERFACE -fsanitize=${ATTEST_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(attest_options INTERFACE -fsanitize=${ATTEST_SANITIZE})
  target_compile_definitions(attest_options INTERFACE ATTEST_SANITIZED=1)
endif()
if(ATTEST_COVERAGE)
  target_compile_options(attest_options INTERFACE --coverage)
  target_link_options(attest_options INTERFACE --coverage)
endif()

# attest_room(name SOURCES ... LINK ...): the static library attest_<name> of the current folder. Inside the project
# files include each other from the root ("harness/judge.hpp") and from include/ ("attest/problem.hpp").
function(attest_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;LINK" ${ARGN})
  add_library(attest_${name} STATIC ${ROOM_SOURCES})
  set_target_properties(attest_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(attest_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(attest_${name} PUBLIC ${ROOM_LINK} PRIVATE attest_options)
endfunction()

# attest_room_tests(name FOLDERS ... LINK ...): one test binary of all *_test.cpp beside the code, also in those folders.
function(attest_room_tests name)
  if(NOT ATTEST_DEVELOPER_MODE)
    return()
  endif()
  cmake_parse_arguments(ROOM "" "" "FOLDERS;LINK" ${ARGN})
  list(TRANSFORM ROOM_FOLDERS APPEND "/*_test.cpp")
  file(GLOB tests CONFIGURE_DEPENDS *_test.cpp ${ROOM_FOLDERS})
  if(NOT tests)
    return()
  endif()
  add_executable(attest_${name}_test ${tests})
  target_include_directories(attest_${name}_test PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(attest_${name}_test PRIVATE ATTEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             ATTEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  target_link_libraries(attest_${name}_test PRIVATE ${ROOM_LINK} attest_options GTest::gtest_main)
  # Tests are compiled once and run for seconds: -O3 costs three times the compile time of -O1, and gtest.h alone 2 s
  # in each of some 80 files.
  # g++ 12 sees std::filesystem::path and std::string write out of bounds at -O1, falsely.
  target_compile_options(attest_${name}_test PRIVATE $<$<CONFIG:Release>:-O1> -Wno-array-bounds -Wno-stringop-overflow)
  target_precompile_headers(attest_${name}_test PRIVATE <gtest/gtest.h> <string> <vector>)
  gtest_discover_tests(attest_${name}_test TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${name} TIMEOUT 600)
endfunction()

# Loadable modules and the kernel host lie here, so that the command finds them by its own location.
set(ATTEST_MODULE_DIR ${PROJECT_BINARY_DIR}/lib/attest)

# attest_module(name SOURCES ...): a plug-in <name>.so that knows include/ alone.
function(attest_module name)
  cmake_parse_arguments(MODULE "" "DIRECTORY" "SOURCES;LINK" ${ARGN})
  if(NOT MODULE_DIRECTORY)
    set(MODULE_DIRECTORY ${ATTEST_MODULE_DIR})
  endif()
  add_library(attest_module_${name} MODULE ${MODULE_SOURCES})
  set_target_properties(attest_module_${name} PROPERTIES OUTPUT_NAME ${name} PREFIX "" CXX_VISIBILITY_PRESET hidden
                        C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
                        LIBRARY_OUTPUT_DIRECTORY ${MODULE_DIRECTORY})
  target_include_directories(attest_module_${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(attest_module_${name} PRIVATE ${MODULE_LINK} attest_options)
endfunction()
