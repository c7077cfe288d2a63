# SPDX-License-Identifier: Apache-2.0
"""attest bench and attest compare, end to end. Nothing here depends on how fast this machine is."""
import json
import pathlib
import tempfile

from command import MODULES, expect, finish, run

# What readers of Google Benchmark's JSON look at.
GOOGLE_KEYS = {"name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time",
               "cpu_time", "time_unit"}
SMALL = ["--len", "32,48", "--head-dim", "16", "--samples", "5", "--sample-time", "0.001s"]


def times(folder):
    path = folder / "times.json"
    result = run("bench", "naive", "chunked", *SMALL, "--op", "forward,backward", "--json", path, check=0)
    record = json.loads(path.read_text())
    expect(record["schema"] == "attest.bench/1", "schema")
    # More where a yardstick sagged.
    expect(len(record["benchmarks"]) >= 2 * 2 * 2 * 5, f"{len(record['benchmarks'])} samples")
    expect(record["refused"] == [], record["refused"])
    for sample in record["benchmarks"]:
        expect(GOOGLE_KEYS <= sample.keys(), f"keys {sorted(sample)}")
        expect(sample["real_time"] > 0 and sample["iterations"] >= 1, sample)
    null = record["null_comparison"]
    expect(null and null["name"].startswith("naive/"), f"null comparison {null}")
    expect("naive" in result.stdout and "chunked" in result.stdout, result.stdout)
    return path


def no_time_without_a_pass(folder):
    path = folder / "wrong.json"
    wrong = f"{MODULES}/broken.so#top_left"
    # One query and two keys, aligned at the wrong end.
    result = run("bench", wrong, "naive", "--case", "attention.forward lq=8 lk=16 d=4 base=causal", "--samples", "5",
                 "--sample-time", "0.001s", "--json", path, check=1)
    record = json.loads(path.read_text())
    expect({sample["subject"] for sample in record["benchmarks"]} == {"naive"}, "a wrong kernel has a time")
    expect([refused["subject"] for refused in record["refused"]] == ["top_left"], record["refused"])
    expect("no time: top_left" in result.stdout and "expected" in result.stdout, result.stdout)


def comparison(folder, old):
    expect("faster, " in run("compare", old, old, check=0).stdout, "no summary")
    record = json.loads(old.read_text())
    for sample in record["benchmarks"]:
        # As if the machine had been quiet: 1 % of noise, and naive twice as slow.
        slower = 2 if sample["subject"] == "naive" else 1
        sample["real_time"] = slower * 1000 * (1 + 0.002 * sample["repetition_index"])
        sample["yardstick"], sample["dropped"] = 1, False
        sample["fma_f32"], sample["integer"] = (record["context"]["yardsticks"][key] for key in ("fma_f32", "integer"))
    new = folder / "new.json"
    new.write_text(json.dumps(record))
    for sample in record["benchmarks"]:
        sample["real_time"] /= 2 if sample["subject"] == "naive" else 1
    old_flat = folder / "old.json"
    old_flat.write_text(json.dumps(record))
    result = run("compare", old_flat, new, "--markdown", folder / "table.md", check=1)
    expect("4 slower, 0 faster, 4 same, 0 unclear" in result.stdout, result.stdout)
    expect("| slower |" in (folder / "table.md").read_text(), "table")
    expect("4 faster" in run("compare", new, old_flat, check=0).stdout, "not faster")
    record["benchmarks"] = [s for s in record["benchmarks"] if s["subject"] == "naive"]
    fewer = folder / "fewer.json"
    fewer.write_text(json.dumps(record))
    expect("4 benchmarks of" in run("compare", old_flat, fewer, check=1).stdout, "a lost benchmark is not named")
    expect("ratio" in run("compare", old_flat, new, fewer, check=0).stdout, "no table of three")


def caches(folder):
    path = folder / "caches.json"
    run("bench", "paged", "--op", "decode", "--cache", "paged", "--len", "40", "--head-dim", "16", "--samples", "5",
        "--sample-time", "0.001s", "--json", path, check=0)
    record = json.loads(path.read_text())
    expect({sample["case"] for sample in record["benchmarks"]} ==
           {"attention.decode hq=4 lk=40 d=16 base=causal cache=paged page_size=16"}, record["benchmarks"][:1])
    expect("contiguous, ring, paged" in run("bench", "paged", "--op", "decode", "--cache", "list", check=2).stderr,
           "an unknown cache")


def times_of(path):
    by_case = {}
    for sample in json.loads(path.read_text())["benchmarks"]:
        by_case.setdefault(sample["case"], []).append(sample["real_time"])
    return by_case


def resumed(folder):
    """What the journal has is not timed again; a journal of another run is refused."""
    journal, path = folder / "times.journal", folder / "resumed.json"
    command = ["bench", "chunked", *SMALL, "--journal", journal]
    run(*command, "--json", path, check=0)
    lines = journal.read_text().splitlines()
    expect(len(lines) == 3, f"{len(lines)} lines in the journal")
    first = times_of(path)
    journal.write_text("\n".join(lines[:2]) + "\n" + lines[2][:40])
    run(*command, "--resume", "--json", path, check=0)
    again = times_of(path)
    expect([first[name] == again[name] for name in first] == [True, False], f"{first}, then {again}")
    refused(folder, ["journal", "of another machine, build"], "bench", "chunked", "naive", *SMALL, "--journal", journal,
            "--resume")
    journal.write_text(lines[0] + '\n{"case": 1}\n')
    refused(folder, ["line 2"], *command, "--resume")
    journal.write_text("# notes\n")
    refused(folder, ["no journal of a bench"], *command)
    refused(folder, ["--journal"], "bench", "chunked", *SMALL, "--resume")


def refused(folder, words, *arguments):
    before = sorted(folder.iterdir())
    result = run(*arguments, check=2)
    lines = result.stderr.strip().splitlines()
    expect(len(lines) == 1 and lines[0].startswith("attest: "), f"{arguments}: {result.stderr}")
    for word in words:
        expect(word in result.stderr, f"{arguments}: does not say {word}: {result.stderr}")
    expect(sorted(folder.iterdir()) == before, f"{arguments}: left something")


def bad_input(folder, good):
    target = ["--json", folder / "never.json"]
    for arguments, words in [
        (["--len", "0"], ["--len", "'0'"]),
        (["--len", "a..b"], ["--len"]),
        (["--len", ","], ["--len"]),
        (["--dtype", "f8"], ["--dtype", "f8"]),
        (["--mask", "window"], ["--mask", "window"]),
        (["--op", "sideways"], ["--op", "sideways"]),
        (["--heads", "3", "--kv-heads", "2"], ["hkv"]),
        (["--case", "attention.forward lq=-1"], ["lq"]),
        (["--cases", folder / "nowhere.txt"], ["nowhere.txt"]),
        (["--samples", "0"], ["--samples"]),
        (["--sample-time", "fast"], ["--sample-time"]),
    ]:
        refused(folder, words, "bench", "naive", *arguments, *target)
    refused(folder, ["naive", "twice"], "bench", "naive", "naive", *SMALL, *target)
    refused(folder, ["no_such"], "bench", "no_such", *SMALL, *target)
    text = good.read_text()
    for name, content, words in [
        ("cut.json", text[: len(text) // 2], ["cut.json", "cut short"]),
        ("future.json", text.replace("attest.bench/1", "attest.bench/2"), ["future.json", "attest.bench/2"]),
        ("foreign.json", '{"benchmarks": []}', ["foreign.json", "schema"]),
    ]:
        (folder / name).write_text(content)
        refused(folder, words, "compare", good, folder / name)
    refused(folder, ["two"], "compare", good)
    refused(folder, ["--threshold"], "compare", good, good, "--threshold", "none")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = times(folder)
        no_time_without_a_pass(folder)
        caches(folder)
        comparison(folder, path)
        resumed(folder)
        bad_input(folder, path)
    finish()


main()
