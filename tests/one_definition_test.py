#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""No two classes of one name in one namespace: a linker takes the destructor of either for both, and says nothing.

    one_definition_test.py               checks this tree
    one_definition_test.py --self-test   sees that two are found, and two in namespaces of their own are not
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Rooms that end in one program or library. A plug-in of examples or impls is loaded apart, its symbols hidden.
ROOMS = ("include", "reference", "harness", "properties", "bench", "reports", "tools")
# The formatter writes each of these on a line of its own, and a comment behind a namespace's end.
OPEN = re.compile(r"^namespace (?:([\w:]+) )?\{$")
CLOSE = re.compile(r"^\}\s+// namespace\b")
# Neither enumerations, which have no destructor, nor templates, whose symbols carry their arguments.
TYPE = re.compile(r"^(?:struct|class) (\w+)\b(?!::)[^;]*(?:\{|$)")


def types(text):
    """Names with their namespaces, of classes that other files can see."""
    spaces, before = [], ""
    for line in text.splitlines():
        if opened := OPEN.match(line):
            spaces.append(opened.group(1) or "")
        elif CLOSE.match(line) and spaces:
            spaces.pop()
        elif (found := TYPE.match(line)) and "" not in spaces and not before.startswith("template"):
            yield "::".join([*spaces, found.group(1)])
        before = line


def repeated(files):
    places = collections.defaultdict(set)
    for name, text in files:
        for one in types(text):
            places[one].add(name)
    return {one: sorted(where) for one, where in places.items() if len(where) > 1}


def sources():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".hpp", ".h", ".cpp"):
                yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")


def self_test():
    spaced = "namespace {}{{\n{}\n}}  // namespace\n"
    one, two = spaced.format("attest ", "struct Answer {\n};"), spaced.format("attest ", "class Answer final : X {\n};")
    assert repeated([("a", one), ("b", two)]) == {"attest::Answer": ["a", "b"]}
    assert not repeated([("a", one), ("b", spaced.format("attest::json ", "struct Answer {\n};"))])
    assert not repeated([("a", one), ("b", spaced.format("", "struct Answer {\n};"))])
    assert not repeated([("a", one), ("b", spaced.format("attest ", "struct Answer;"))])
    assert not repeated([("a", one), ("b", spaced.format("attest ", "template <class T>\nstruct Answer {\n};"))])


self_test()
if "--self-test" not in sys.argv:
    found = repeated(sources())
    for one, where in found.items():
        print(f"{one}: {', '.join(where)}")
    print(f"{len(found)} classes have two definitions")
    sys.exit(1 if found else 0)
