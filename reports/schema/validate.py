#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Validates records against their schema, one line of output for each file.

    validate.py record.json ...      "ok FILE" or "bad FILE: where: what"; exit 1 if one is bad
    validate.py --enum reason        the words of a closed list of the schema, one a line
    validate.py --mutate record.json checks that the schema notices each missing and each extra key

With --selftest, --cost, --model, --machine or --bench before all else it is that schema instead of record.schema.json.

Needs the Debian package python3-jsonschema.
"""
import copy
import json
import pathlib
import sys

import jsonschema

KINDS = ("selftest", "cost", "model", "machine", "bench")
FREE_KEYS = ("by_dtype", "flop_per_second", "environment")  # objects whose keys are data
KIND = next((kind for kind in KINDS if sys.argv[1:2] == [f"--{kind}"]), "record")
SCHEMA = json.loads((pathlib.Path(__file__).parent / f"{KIND}.schema.json").read_text())
jsonschema.Draft202012Validator.check_schema(SCHEMA)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def first_error(record):
    error = next(VALIDATOR.iter_errors(record), None)
    return error and f"{'/'.join(map(str, error.absolute_path)) or 'record'}: {error.message}"


def objects(value, path=()):
    """Every object inside value, with its path."""
    if isinstance(value, dict):
        yield path
        for key, member in value.items():
            yield from objects(member, path + (key,))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from objects(member, path + (index,))


def at(value, path):
    for step in path:
        value = value[step]
    return value


def unnoticed(record):
    """Descriptions of the mutations that the schema lets through."""
    for path in objects(record):
        if path and path[-1] in FREE_KEYS:
            continue
        extra = copy.deepcopy(record)
        at(extra, path)["surplus"] = 1
        if not first_error(extra):
            yield f"extra key in {path}"
        for key in at(record, path):
            for what, change in (("missing", lambda o: o.pop(key)), ("wrong type", lambda o: o.update({key: {}}))):
                broken = copy.deepcopy(record)
                change(at(broken, path))
                if not first_error(broken) and key not in FREE_KEYS:
                    yield f"{what} {path + (key,)}"


def main(arguments):
    if arguments[0] == "--enum":
        print("\n".join(SCHEMA["$defs"][arguments[1]]["enum"]))
        return 0
    bad = False
    for name in arguments[1:] if arguments[0] == "--mutate" else arguments:
        record = json.loads(pathlib.Path(name).read_text())
        problem = first_error(record)
        if not problem and arguments[0] == "--mutate":
            problem = next(unnoticed(record), None)
        print(f"bad {name}: {problem}" if problem else f"ok {name}")
        bad = bad or bool(problem)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1 if KIND == "record" else 2 :]))
