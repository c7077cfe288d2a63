# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: running the command and reading its records."""
import json
import os
import pathlib
import subprocess
import sys

ATTEST = os.environ.get("ATTEST_COMMAND", "build/release/attest")
MODULES = os.environ.get("ATTEST_BROKEN_DIR", "build/release/lib/attest-broken")


def run(*arguments, check=None, env=None, timeout=600):
    """Runs `attest ARGUMENTS`; `check` is the exit code that must come out."""
    result = subprocess.run([ATTEST, *map(str, arguments)], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=timeout,
                            env={**os.environ, **(env or {})})
    if check is not None and result.returncode != check:
        fail(f"attest {' '.join(map(str, arguments))}: exit {result.returncode}, not {check}\n"
             f"{result.stdout}\n{result.stderr}")
    return result


def record_of(path):
    return json.loads(pathlib.Path(path).read_text())


def without_times(record):
    """A record as two runs of the same seed and build must both give it."""
    return {key: value for key, value in record.items() if key not in ("times", "command")}


_failures = []


def fail(message):
    _failures.append(message)
    print("FAIL:", message, flush=True)


def expect(condition, message):
    if not condition:
        fail(message)


def finish():
    print(f"{len(_failures)} failures", flush=True)
    sys.exit(1 if _failures else 0)
