# SPDX-License-Identifier: Apache-2.0
# Everything comes from the system's packages (docs/dependencies.md says what each is for); nothing is downloaded.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy REQUIRED CONFIG)
find_package(rapidcheck REQUIRED CONFIG)
find_package(Boost REQUIRED)

find_path(ATTEST_NLOHMANN_JSON nlohmann/json.hpp REQUIRED)
find_path(ATTEST_CLI11 CLI/CLI.hpp REQUIRED)
find_path(ATTEST_MPFR_INCLUDE mpfr.h REQUIRED)
find_library(ATTEST_MPFR mpfr REQUIRED)
find_library(ATTEST_GMP gmp REQUIRED)
find_library(ATTEST_HWY_CONTRIB hwy_contrib REQUIRED)
# Optional: of the implementation `blas` alone.
find_library(ATTEST_OPENBLAS openblas)
find_path(ATTEST_CBLAS cblas.h)

if(ATTEST_DEVELOPER_MODE)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
  include(GoogleTest)
  enable_testing()
endif()
