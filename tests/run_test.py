# SPDX-License-Identifier: Apache-2.0
"""A run is a function of its seed: again, sharded, on more jobs, and after an interruption."""
import collections
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

from command import ATTEST, MODULES, expect, finish, record_of, run, without_times

SUBJECT = f"{MODULES}/broken.so#top_left"


def record(folder, label, *extra, check=1, subject=SUBJECT):
    path = pathlib.Path(folder) / f"{label}.json"
    run("check", subject, "--suite", "smoke", "--seed", "7", "--json", path, *extra, check=check)
    return record_of(path)


def same(left, right, what):
    left, right = without_times(left), without_times(right)
    for key in sorted(set(left) | set(right)):
        a, b = json.dumps(left.get(key)), json.dumps(right.get(key))
        expect(a == b, f"{what}: '{key}' differs:\n  {a[:400]}\n  {b[:400]}")


def cases(records):
    """Cases by requirement and verdict, over several records."""
    total = collections.Counter()
    for one in records:
        for requirement in one["requirements"]:
            for verdict, count in requirement["counts"].items():
                total[requirement["id"], verdict] += count
    return {key: count for key, count in total.items() if count}


def interrupt(folder, label, how):
    """Starts a run, stops it once the journal has a few entries, resumes it."""
    journal = pathlib.Path(folder) / f"{label}.journal"
    path = pathlib.Path(folder) / f"{label}.json"
    command = [ATTEST, "check", SUBJECT, "--suite", "smoke", "--seed", "7", "--journal",
               str(journal), "--json", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               stdin=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 20:
            break
        time.sleep(0.01)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    if how == signal.SIGINT:
        expect(process.returncode == 3, f"{label}: exit {process.returncode} after SIGINT")
        expect("--resume" in errors, f"{label}: does not say how to resume: {errors}")
    kept = journal.read_bytes().count(b"\n")
    expect(kept > 20, f"{label}: the journal kept {kept} lines")
    run("check", SUBJECT, "--suite", "smoke", "--seed", "7", "--journal", journal, "--resume",
        "--json", path, check=1)
    return record_of(path)


def main():
    with tempfile.TemporaryDirectory() as folder:
        whole = record(folder, "whole")
        same(whole, record(folder, "again"), "the same run again")
        same(whole, record(folder, "one-job", "--jobs", "1"), "--jobs 1 and the default")
        same(whole, record(folder, "two-jobs", "--jobs", "2"), "--jobs 2 and the default")
        honest = record(folder, "honest", check=0, subject="naive")
        shards = [record(folder, f"shard{i}", "--shard", f"{i}/3", check=0, subject="naive")
                  for i in (1, 2, 3)]
        expect(cases(shards) == cases([honest]), "three shards together are not the whole")
        same(whole, interrupt(folder, "sigint", signal.SIGINT), "resumed after SIGINT")
        same(whole, interrupt(folder, "sigkill", signal.SIGKILL), "resumed after SIGKILL")
    finish()


if os.environ.get("ATTEST_COMMAND") is None:
    print("ATTEST_COMMAND is not set: using", ATTEST)
main()
