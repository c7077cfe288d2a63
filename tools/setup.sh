# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts beside it: installs what a build needs, configures and builds.
# Works on a fresh Debian 12 or Ubuntu 24.04; elsewhere it names what is missing.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 3

# What each package is for: docs/dependencies.md.
packages=(g++ cmake ninja-build libfmt-dev libhwy-dev librapidcheck-dev libboost-dev libmpfr-dev libgmp-dev
  nlohmann-json3-dev libcli11-dev libdlpack-dev libopenblas-dev libgtest-dev libbenchmark-dev python3 python3-jsonschema
  python3-numpy)

say() { printf '==> %s\n' "$*" >&2; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 3
}

missing_packages() {
  local package
  for package in "${packages[@]}" "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

# Where there is no apt, the tools and headers themselves are looked for.
missing_parts() {
  local pair
  for pair in g++ cmake ninja python3; do
    command -v "$pair" >/dev/null || printf '%s ' "$pair"
  done
  command -v g++ >/dev/null || return 0
  for pair in fmt/core.h hwy/highway.h rapidcheck.h boost/multiprecision/mpfr.hpp mpfr.h gmp.h nlohmann/json.hpp \
    CLI/CLI.hpp gtest/gtest.h benchmark/benchmark.h; do
    printf '#include <%s>\n' "$pair" | g++ -E -x c++ - -o /dev/null 2>/dev/null || printf '%s ' "$pair"
  done
}

# install_packages [more...]: nothing to do is quick and needs neither network nor rights.
install_packages() {
  local missing as_root=()
  if ! command -v apt-get >/dev/null; then
    missing=$(missing_parts)
    [ -z "$missing" ] || die "this machine has no apt-get; please install: $missing(docs/dependencies.md)"
    return
  fi
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "not root and no sudo; please install: $missing"
    as_root=(sudo)
  fi
  say "installing $missing"
  local log
  log=$(mktemp)
  # shellcheck disable=SC2086  # the list is meant to split
  if ! { "${as_root[@]}" apt-get update && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
    tail -5 "$log" >&2
    rm -f "$log"
    die "apt-get could not install: $missing"
  fi
  rm -f "$log"
}

# build PRESET [target...]
build() {
  local preset=$1
  shift
  say "building build/$preset"
  # A configured tree reconfigures itself when a build file changes.
  [ -f "build/$preset/build.ninja" ] || cmake --preset "$preset" >"/tmp/attest-configure-$$" 2>&1 || {
    cat "/tmp/attest-configure-$$" >&2
    rm -f "/tmp/attest-configure-$$"
    die "cmake could not configure the preset $preset"
  }
  rm -f "/tmp/attest-configure-$$"
  cmake --build --preset "$preset" ${1:+--target "$@"} -- --quiet >&2 || die "the build of preset $preset failed"
}
