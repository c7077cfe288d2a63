#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The arrows between the rooms (docs/architecture.md), read off every #include line of the tree.

    arrows_test.py               checks this tree
    arrows_test.py --self-test   plants every forbidden include and sees that each is found

An include from the room's own folder must name the room too ("harness/judge.hpp"), so that a line says where it
points; only examples/ and the folders inside a room may include beside themselves.
"""
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Which rooms a room may include. impls and reference never see each other: an oracle that shares the mask code of a
# kernel agrees with its mistakes.
MAY_INCLUDE = {
    "include": {"include"},
    "reference": {"include", "reference"},
    "harness": {"include", "reference", "harness"},
    "properties": {"include", "reference", "harness", "properties"},
    "impls": {"include", "impls"},
    "reports": {"include", "reports"},
    "bench": {"include", "reference", "harness", "impls", "bench"},
    "tools": {"include", "reference", "harness", "properties", "impls", "bench", "reports", "tools"},
    "examples": {"include"},
}
# Headers that cost seconds in each file that includes them, or that must not spread: prefix -> where they may stand.
CONFINED = {
    "CLI/": ("tools/main.cpp",),
    "nlohmann/json.hpp": ("reports/",),
    "rapidcheck": ("harness/",),
    "boost/": ("reference/",),
}
GENERATED = {"attest_build_info.hpp", "attest_html_assets.hpp"}
SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def strip_comments(text):
    """Comments blanked, lines kept. A string that holds /* does not stand beside an #include."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)


def room_of(included):
    first = included.split("/")[0]
    if first == "attest":
        return "include"
    return first if first in MAY_INCLUDE and "/" in included else None


def violation(root, path, quote, included):
    """Why this include is wrong, or None."""
    room = path.relative_to(root).parts[0]
    for prefix, places in CONFINED.items():
        if included.startswith(prefix) and not str(path.relative_to(root)).startswith(places):
            return f"{included} may stand in {' '.join(places)} alone"
    if ".." in included.split("/"):
        return f"{included} climbs out of its folder"
    target = room_of(included)
    if target:
        return None if target in MAY_INCLUDE[room] else f"{room} must not include {target} ({included})"
    if included in GENERATED:
        return None
    nested = len(path.relative_to(root).parts) > 2
    if quote == '"' and not ((room == "examples" or nested) and (path.parent / included).exists()):
        return f'"{included}" does not name its room'
    return None


def violations(root):
    for room in MAY_INCLUDE:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            text = strip_comments(path.read_text(encoding="utf-8"))
            for match in INCLUDE.finditer(text):
                why = violation(root, path, *match.groups())
                if why:
                    yield f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {why}"


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def found(room, line):
            file = root / room / "planted.cpp"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"// a first line\n{line}\n")
            result = list(violations(root))
            file.unlink()
            assert all(text.startswith(f"{room}/planted.cpp:2: ") for text in result), result
            return bool(result)

        for room, allowed in MAY_INCLUDE.items():
            for target in MAY_INCLUDE:
                header = "attest/x.hpp" if target == "include" else f"{target}/x.hpp"
                for line in (f'#include "{header}"', f"#  include <{header}>"):
                    assert found(room, line) == (target not in allowed), (room, line)
            assert found(room, '#include "nameless.hpp"'), room
            assert found(room, '#include "harness/../impls/x.hpp"'), room
            assert not found(room, "#include <vector>"), room
            assert not found(room, '// #include "impls/x.hpp"'), room
            assert not found(room, '/* #include "impls/x.hpp" */'), room
        assert found("harness", "#include <CLI/CLI.hpp>")
        assert found("harness", "#include <boost/multiprecision/mpfr.hpp>")
        assert not found("reference", "#include <boost/multiprecision/mpfr.hpp>")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    for room in MAY_INCLUDE:
        if not any((ROOT / room).rglob("*")):
            print(f"no folder {room}: the list of rooms is out of date")
            return 1
    wrong = list(violations(ROOT))
    print("\n".join(wrong) or "every include follows the arrows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
