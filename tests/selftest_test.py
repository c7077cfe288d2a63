# SPDX-License-Identifier: Apache-2.0
"""attest selftest and attest rules on a few planted faults: score, exit codes, files, and going on after an interruption."""
import json
import pathlib
import signal
import subprocess
import tempfile
import time

from command import ATTEST, MODULES, expect, finish, record_of, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A library whose honest kernels are none.
LIES = pathlib.Path(MODULES).parent / "attest-test" / "faults_plain.so"


def last_line(result):
    return result.stdout.splitlines()[-1] if result.stdout else ""


def score(folder):
    path, page = folder / "score.json", folder / "score.md"
    result = run("selftest", "--filter", "causal_top_left", "--dtype", "f32", "--suite", "smoke", "--json", path,
                 "--markdown", page, check=0)
    expect(last_line(result) == "caught 1 of 1 faults, accused 0 of 0 honest kernels", result.stdout)
    report = record_of(path)
    kernel, = report["kernels"]
    expect(kernel["outcome"] == "caught" and kernel["minimal"][0]["fails_again"], json.dumps(kernel))
    valid = subprocess.run(["/usr/bin/python3", ROOT / "reports/schema/validate.py", "--selftest", path], check=False)
    expect(valid.returncode == 0, "the JSON does not obey its schema")
    expect("| `causal_top_left` |" in page.read_text(), "the page lacks the fault")
    replay = subprocess.run(kernel["minimal"][0]["replay"].replace("attest", ATTEST, 1), shell=True,
                            capture_output=True, text=True, check=False)
    expect(replay.returncode == 1, f"{kernel['minimal'][0]['replay']}: exit {replay.returncode}\n{replay.stdout}")


def troubles():
    # Its honest base is a mean and no attention: the fault differs from it nowhere, and the suite says who is wrong.
    result = run("selftest", LIES, "--suite", "smoke", "--filter", "nothing", check=1)
    expect("accused: mean.f32, the base of nothing: " in result.stdout, result.stdout)
    expect(last_line(result) == "caught 0 of 1 faults, accused 1 of 1 honest kernels", result.stdout)


def scope():
    result = run("selftest", "--filter", "causal_top_left", "--suite", "smoke", "--within", "dtype=f32", check=0)
    expect(last_line(result) == "caught 0 of 0 planted bugs in that scope, accused 0 of 0 honest kernels", result.stdout)


def honest():
    # It leaves padding rows as they were, and declares that.
    result = run("selftest", "--honest-only", "--filter", "padding_left_as_it_was", check=0)
    expect(last_line(result) == "caught 0 of 0 faults, accused 0 of 1 honest kernels", result.stdout)


def going_on(folder):
    journal = folder / "score.journal"
    command = ["selftest", "--suite", "smoke", "--filter", "causal_*", "--journal", str(journal)]
    process = subprocess.Popen([ATTEST, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if journal.exists() and journal.read_bytes().count(b"\n") > 3:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    expect(process.returncode == 3 and "--resume" in errors, f"exit {process.returncode}: {errors}")
    expect("incomplete: interrupted\n" in output, output)
    kept = journal.read_text().splitlines()
    result = run(*command, "--resume", check=0)
    lines = journal.read_text().splitlines()
    expect(lines[:len(kept)] == kept and len(lines) > len(kept), "the journal was not continued")
    expect("accused 0 of 0 honest kernels" in last_line(result), result.stdout)
    refused = run(*command, "--resume", "--seed", "2", check=2)
    expect("of another library, suite, seed, scope or build" in refused.stderr, refused.stderr)
    expect(len(run("selftest", "--suite", "smoke", "--journal", ROOT / "README.md", check=2).stderr) > 0, "README taken")


def rules(folder):
    page = folder / "rules.md"
    result = run("rules", "--filter", "causal_top_left", "--problems", "20", "--markdown", page, check=0)
    expect(result.stdout.startswith("| rule |") and "| Attest | 0 of 0 | 0 of 4 |" in result.stdout, result.stdout)
    expect("FlashAttention" in page.read_text(), "the page does not say what the rules ask")


def bad_input(folder):
    for words, text in ((("--filter", "zebra"), "holds no kernel that was asked for"),
                        (("--suite", "zebra"), "--suite: no suite 'zebra'"),
                        (("--dtype", "f8"), "--dtype: 'f8' is none of"),
                        (("--within", "dtype=f8"), "--within: "),
                        (("--json", folder / "none" / "x.json"), "cannot write"),
                        ((folder / "none.so",), "No such file"),
                        ((ROOT / "README.md",), "cannot be loaded")):
        result = run("selftest", *words, check=2)
        expect(text in result.stderr and result.stderr.count("\n") == 1, f"{words}: {result.stderr}")


with tempfile.TemporaryDirectory() as name:
    score(pathlib.Path(name))
    troubles()
    scope()
    honest()
    going_on(pathlib.Path(name))
    rules(pathlib.Path(name))
    bad_input(pathlib.Path(name))
finish()
