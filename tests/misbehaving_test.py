# SPDX-License-Identifier: Apache-2.0
"""Every misbehaving plug-in gets its own verdict and reason, a small case, and costs nothing else.

Each kernel of impls/broken is checked with the smoke suite; the table says what must come out.
"""
import pathlib
import re
import sys
import tempfile

from command import MODULES, expect, finish, record_of, run

# kernel: (exit code, verdict, reason, words that the detail must hold)
EXPECTED = {
    "segfault": (1, "crash", "none", "SIGSEGV"),
    "abort": (1, "crash", "none", "SIGABRT"),
    "exit": (1, "fail", "exited", "exit"),
    "hang": (1, "hang", "none", ""),
    "allocate": (1, "out_of_memory", "none", ""),
    "read_past_k": (1, "fail", "out_of_bounds_read", "0 bytes past the end of k"),
    "write_before_o": (1, "fail", "out_of_bounds_write", "before o"),
    "skip_element": (1, "fail", "unwritten", "unwritten"),
    "modify_q": (1, "fail", "input_modified", "q"),
    "leak_nan": (1, "fail", "nan_leak", ""),
    "swallow_nan": (1, "fail", "nan_lost", "NaN"),
    "junk_status": (1, "fail", "junk_status", "77"),
    "ignore_feature": (1, "fail", "wrong_accept", "does not declare"),
    "top_left": (1, "fail", "wrong_value", ""),
    "stack_overflow": (1, "crash", "none", ""),
    "null_deref_after_malloc": (1, "out_of_memory", "none", ""),
    "flaky": (1, "fail", "not_deterministic", ""),
    "prints": (0, None, None, ""),
    "refuse_all": (4, None, None, ""),
}


def size(case_line, key, fallback):
    match = re.search(rf"\b{key}=(-?\d+)", case_line)
    return int(match.group(1)) if match else fallback


def check_small(kernel, line):
    for key in ("lq", "lk"):
        expect(size(line, key, 1) <= 4, f"{kernel}: {key} is larger than 4 in: {line}")
    expect(size(line, "d", 1) <= 4, f"{kernel}: d is larger than 4 in: {line}")


def check(kernel, folder):
    code, verdict, reason, words = EXPECTED[kernel]
    subject = f"{MODULES}/broken.so#{kernel}"
    path = pathlib.Path(folder) / f"{kernel}.json"
    result = run("check", subject, "--suite", "smoke", "--json", path, check=code)
    expect(len(result.stdout.splitlines()) <= 40,
           f"{kernel}: the screen has {len(result.stdout.splitlines())} lines")
    if not path.exists():
        expect(False, f"{kernel}: no record was written: {result.stderr}")
        return
    record = record_of(path)
    if verdict is None:
        expect(not record["failures"], f"{kernel}: {len(record['failures'])} failures, none expected")
        return
    found = [(f["verdict"], f["reason"]) for f in record["failures"]]
    expect((verdict, reason) in found, f"{kernel}: wanted {(verdict, reason)}, found {found}")
    tested = sum(sum(r["counts"].values()) for r in record["requirements"])
    expect(tested > 500, f"{kernel}: only {tested} cases ran; the rest of the run must complete")
    for cause in record["causes"]:
        if (cause["verdict"], cause["reason"]) != (verdict, reason):
            continue
        failure = record["failures"][cause["smallest"]]
        expect(words in failure["detail"], f"{kernel}: detail lacks '{words}': {failure['detail']}")
        if kernel == "flaky":  # what fails now and then cannot be shrunk for certain
            expect(0 < failure["reruns_failed"] < failure["reruns"],
                   f"flaky: {failure['reruns_failed']} of {failure['reruns']} reruns failed")
            continue
        check_small(kernel, failure["case"])
        expect(failure["reruns_failed"] == failure["reruns"],
               f"{kernel}: {failure['reruns_failed']} of {failure['reruns']} reruns failed")


def check_top_left_replays(folder):
    """The shrunk case is one tiny line with literal data, and replays bit for bit."""
    record = record_of(pathlib.Path(folder) / "top_left.json")
    failure = next(f for f in record["failures"] if f["requirement"] == "ORACLE-O")
    line = failure["case"]
    expect(size(line, "lq", 1) <= 3 and size(line, "lk", 1) <= 3 and size(line, "d", 1) == 1,
           f"top_left: not minimal: {line}")
    expect("data=list" in line and "\n" not in line, f"top_left: no literal data: {line}")
    subject = f"{MODULES}/broken.so#top_left"
    first = run("replay", line, subject, check=1)
    second = run("replay", line, subject, check=1)
    expect(first.stdout == second.stdout, "top_left: two replays differ")
    expect("ORACLE-O" in first.stdout, f"top_left: the replay shows no ORACLE-O: {first.stdout}")


def main():
    chosen = sys.argv[1:] or list(EXPECTED)
    with tempfile.TemporaryDirectory() as folder:
        for kernel in chosen:
            check(kernel, folder)
        if "top_left" in chosen:
            check_top_left_replays(folder)
    finish()


main()
