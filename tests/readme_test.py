# SPDX-License-Identifier: Apache-2.0
"""Every command that README.md shows in a ```sh block is run here, in order, in one shell per block.

tools/test is what runs this test, so it is only looked for; ATTEST_SUITE=smoke makes quickstart short.
"""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUNS_THIS_TEST = "tools/test"


def blocks(text):
    return re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(block):
    for line in block.replace("\\\n", " ").splitlines():
        line = line.split("  #")[0].strip()
        if line and not line.startswith("#"):
            yield line


def check_shown(text):
    """What a block shows of `attest cost` is what it prints: no run, no clock has a part in it."""
    shown = re.findall(r"^```\n\$ attest (cost [^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if not shown:
        sys.exit("README.md shows no cost")
    for arguments, output in shown:
        printed = subprocess.run(["bash", "-c", f"build/release/attest {arguments}"], cwd=ROOT, capture_output=True,
                                 text=True, timeout=60).stdout
        if printed != output:
            sys.exit(f"README.md: attest {arguments} prints something else:\n{printed}")


def main():
    text = (ROOT / "README.md").read_text()
    ran = 0
    for command in (c for block in blocks(text) for c in commands(block)):
        if command.split()[0] == RUNS_THIS_TEST:
            assert os.access(ROOT / RUNS_THIS_TEST, os.X_OK), command
            continue
        print("+", command, flush=True)
        result = subprocess.run(["bash", "-c", command], cwd=ROOT, stdin=subprocess.DEVNULL,
                                env={**os.environ, "ATTEST_SUITE": "smoke"}, timeout=900)
        if result.returncode != 0:
            sys.exit(f"README.md: exit {result.returncode} from: {command}")
        ran += 1
    check_shown(text)
    for path in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        if not (ROOT / path).exists():
            sys.exit(f"README.md links to {path}, which does not exist")
    if ran == 0:
        sys.exit("README.md shows no command")
    print(f"{ran} commands ran")


main()
