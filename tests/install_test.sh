#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A project outside the tree builds against the installed package, and its plug-ins pass its own ctest.
#   install_test.sh BUILD_DIR
set -euo pipefail
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cp -r "$root/examples" "$work/examples"
built="$work/outside"
cmake -S "$work/examples/outside" -B "$built" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$built"
ctest --test-dir "$built" --output-on-failure --no-tests=error
# The installed command stands on its own: it finds its modules and checks a built-in implementation.
"$work/prefix/bin/attest" list --names >"$work/names.txt"
grep -qx naive "$work/names.txt"
"$work/prefix/bin/attest" check naive --suite smoke --brief
