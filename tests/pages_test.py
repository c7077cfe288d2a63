# SPDX-License-Identifier: Apache-2.0
"""Failure pages: one for each cause, and a program that shows the same without Attest."""
import os
import pathlib
import subprocess
import tempfile

from command import MODULES, expect, finish, record_of, run

BROKEN = f"{MODULES}/broken.so"
FAULTY = f"{MODULES}/../attest-faulty/faulty.so"
# kernel: how its program ends; "crash" is any signal.
PROGRAMS = {
    "top_left": "wrong",
    "skip_element": "wrong",
    "leak_nan": "wrong",
    "swallow_nan": "wrong",
    "modify_q": "wrong",
    "junk_status": "wrong",
    "ignore_feature": "wrong",
    "exit": "wrong",
    "flaky": "wrong",
    "segfault": "crash",
    "read_past_k": "crash",
    "write_before_o": "crash",
    "kill_itself": "crash",
}
# Planted faults: what needs a cache, and a component alone.
PLANTED = {
    "append_only_first_head.f32": "wrong",
    "rope_alone_angle_f32.f64": "wrong",
}


def build(program, folder):
    binary = pathlib.Path(folder) / "program"
    result = subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Iinclude",
                             str(program), "-ldl", "-o", str(binary)], capture_output=True, text=True)
    expect(result.returncode == 0, f"{program}: does not compile: {result.stderr[:500]}")
    return binary if result.returncode == 0 else None


def ends(binary, *arguments):
    result = subprocess.run([str(binary), *arguments], capture_output=True, text=True, timeout=120)
    how = {0: "right", 1: "wrong", 2: "nothing to call"}.get(result.returncode, "crash")
    return how, result.stdout


def check(library, kernel, ending, folder):
    pages, path = pathlib.Path(folder) / kernel, pathlib.Path(folder) / "record.json"
    run("check", f"{library}#{kernel}", "--suite", "smoke", "--json", path, "--pages", pages, check=1)
    record = record_of(path)
    for cause in record["causes"]:
        page = (pages / f"cause-{cause['id']}.md").read_text()
        failure = record["failures"][cause["smallest"]]
        for part in (failure["case"], failure["replay"], f"cause-{cause['id']}.c"):
            expect(part in page, f"{kernel}: the page lacks {part}")
        binary = build(pages / f"cause-{cause['id']}.c", folder)
        if not binary:
            continue
        how, said = ends(binary)
        if failure["reason"] == "law_broken":
            continue  # of several calls the first may be right
        expect(how == ending, f"{kernel}: the program is {how}: {said}")
        if kernel == "top_left":
            # The same call of a kernel that does it right; and where there is no kernel.
            expect("expected 0.693147181  got 0 " in said, f"top_left: {said}")
            how, said = ends(binary, f"{MODULES}/no_entry.so")
            expect(how == "nothing to call", f"no_entry.so: {how}: {said}")
    index = (pages / "README.md").read_text()
    expect(f"cause-{len(record['causes'])}.md" in index, f"{kernel}: README.md: {index}")
    return pages


def stale_pages(folder):
    """A folder shows one run alone: what it has of an earlier one goes, what is not its own stays."""
    pages = pathlib.Path(folder) / "top_left"
    (pages / "cause-99.md").write_text("of an earlier run")
    (pages / "cause-99.c").write_text("of an earlier run")
    (pages / "cause-and-effect.md").write_text("mine")
    run("check", "naive", "--suite", "smoke", "--filter", "ORACLE-*", "--pages", pages, check=0)
    expect(sorted(os.listdir(pages)) == ["README.md", "cause-and-effect.md"],
           f"left: {sorted(os.listdir(pages))}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for kernel, ending in PROGRAMS.items():
            check(BROKEN, kernel, ending, folder)
        for kernel, ending in PLANTED.items():
            check(FAULTY, kernel, ending, folder)
        stale_pages(folder)
    finish()


main()
