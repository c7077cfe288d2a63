# SPDX-License-Identifier: Apache-2.0
"""Each state that a CI job can meet ends as it should: in which verdict, and with which exit code."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading

from command import ATTEST, MODULES, expect, finish, record_of, run, without_times

BROKEN = f"{MODULES}/broken.so"
SMOKE = ("--suite", "smoke")


def check(folder, kernel, *arguments, code, env=None):
    """Checks a kernel of broken.so, or a built-in one; its record, and the screen in one line."""
    path = pathlib.Path(folder) / "record.json"
    path.unlink(missing_ok=True)
    subject = kernel if kernel == "naive" else f"{BROKEN}#{kernel}"
    result = run("check", subject, "--json", path, *arguments, check=code, env=env)
    # Sentences wrap on the screen.
    return record_of(path) if path.exists() else None, " ".join(result.stdout.split())


def flaky(folder):
    record, _ = check(folder, "flaky", *SMOKE, code=1)
    reasons = {f["reason"] for f in record["failures"]}
    expect("not_deterministic" in reasons, f"flaky: reasons {reasons}")
    for failure in record["failures"]:
        if failure["reason"] == "not_deterministic" and failure["reruns"]:
            expect(failure["reruns_failed"] < failure["reruns"] == 10,
                   f"flaky: {failure['reruns_failed']}/{failure['reruns']}")

    marker = pathlib.Path(folder) / "once"
    record, _ = check(folder, "wrong_once", *SMOKE, code=0, env={"ATTEST_BROKEN_ONCE": str(marker)})
    expect(marker.exists(), "wrong_once: was never wrong")
    expect(record["verdict"] == "conformant", f"wrong_once: {record['verdict']}")
    expect(record["failures"] and all(f["verdict"] == "warn" and f["reason"] == "flaky" and
                                      f["reruns_failed"] == 0 and f["reruns"] == 10
                                      for f in record["failures"]),
           f"wrong_once: {[(f['verdict'], f['reason']) for f in record['failures']]}")


def expectations(folder):
    known = pathlib.Path(folder) / "known.txt"
    known.write_text("fail ORACLE-O * wrong_value - fixed long ago\n")
    record, screen = check(folder, "naive", *SMOKE, "--expectations", known, code=1)
    expect(record["expectations"][0]["state"] == "stale", f"stale: {record['expectations']}")
    expect("stale expectation" in screen, f"stale: {screen}")


def baseline(folder):
    base = pathlib.Path(folder) / "base.json"
    record, _ = check(folder, "top_left", *SMOKE, code=1)
    base.write_text(json.dumps(record))
    record, screen = check(folder, "top_left", *SMOKE, "--jobs", "1", "--baseline", base, code=0)
    causes = len(record["causes"])
    expect(record["baseline"] == {"path": str(base), "known": causes, "new": 0, "gone": []},
           f"baseline: {record['baseline']}")
    expect(all(cause["known"] for cause in record["causes"]), "baseline: a cause is not known")
    expect(record["verdict"] == "not_conformant", "baseline: a known failure is a failure")
    expect("none new" in screen and "known from the baseline" in screen, f"baseline: {screen}")

    # A cause that the baseline lacks, and one that it alone has.
    record = json.loads(base.read_text())
    for cause in record["causes"]:
        cause["sentence"], cause["features"] = "wrong o on Fridays", ["softcap"]
    for failure in record["failures"]:
        failure["case"] = "attention.forward lk=77"
    base.write_text(json.dumps(record))
    record, screen = check(folder, "top_left", *SMOKE, "--baseline", base, code=1)
    expect(record["baseline"]["new"] == causes and record["baseline"]["known"] == 0,
           f"baseline: {record['baseline']}")
    expect(record["baseline"]["gone"] == ["wrong o on Fridays"] * causes,
           f"baseline: gone {record['baseline']['gone']}")
    expect(f"{causes} gone: wrong o on Fridays" in screen, f"baseline: {screen}")
    # The same mistake of another kernel is no excuse.
    run("check", "naive", *SMOKE, "--baseline", base, check=2)


def last_failed(folder):
    env = {"XDG_CACHE_HOME": str(pathlib.Path(folder) / "cache")}
    result = run("check", f"{BROKEN}#top_left", "--last-failed", check=2, env=env)
    expect("has not been checked here yet" in result.stderr, f"last-failed: {result.stderr}")
    first, _ = check(folder, "top_left", *SMOKE, code=1, env=env)
    wanted = {(f["requirement"], line) for f in first["failures"] for line in (f["case"], f["found_case"])}
    listed = run("check", f"{BROKEN}#top_left", "--last-failed", "--list-only", check=0, env=env)
    got = {tuple(line.split(" ", 1)) for line in listed.stdout.splitlines()}
    expect(got == wanted, f"last-failed: {got ^ wanted}")
    again, _ = check(folder, "top_left", "--last-failed", code=1, env=env)
    expect(again["suite"] == "last-failed", f"last-failed: suite {again['suite']}")
    expect(again["counts"]["fail"] == len(wanted) == sum(again["counts"].values()),
           f"last-failed: {again['counts']}, wanted {len(wanted)}")
    # Another kernel of the same library has a last run of its own.
    run("check", f"{BROKEN}#prints", "--last-failed", check=2, env=env)
    check(folder, "prints", *SMOKE, code=0, env=env)
    result = run("check", f"{BROKEN}#prints", "--last-failed", check=2, env=env)
    expect("nothing failed" in result.stderr, f"last-failed: {result.stderr}")


def require(folder):
    scope = pathlib.Path(folder) / "scope.txt"
    scope.write_text("dtype f32\nhead_dim 1-4\npromise deterministic\ncases >= 1000\n"
                     "requirement ORACLE-O\nprecision bf16=mma_f32acc\nfeature softcap\n")
    record, _ = check(folder, "naive", *SMOKE, "--require", scope, code=0)
    expect(all(demand["met"] for demand in record["demands"]), f"require: {record['demands']}")
    record, screen = check(folder, "prints", *SMOKE, "--require", scope, code=1)
    lost = {demand["line"] for demand in record["demands"] if not demand["met"]}
    expect(lost == {"precision bf16=mma_f32acc", "feature softcap"}, f"require: lost {lost}")
    expect(record["verdict"] == "conformant", f"require: {record['verdict']}")
    expect("line 7: feature softcap: not declared" in screen, f"require: {screen}")


def exit_codes():
    for arguments, plain, bisect in [
        (("naive", *SMOKE, "--filter", "ORACLE-LSE"), 0, 0),
        ((f"{BROKEN}#top_left", *SMOKE, "--filter", "ORACLE-LSE"), 1, 1),
        (("./missing.so",), 2, 125),
        (("naive", "--no-such-option"), 2, 125),
        ((f"{BROKEN}#kill_always", *SMOKE), 3, 125),
        ((f"{BROKEN}#refuse_all", *SMOKE), 4, 125),
    ]:
        run("check", *arguments, "--brief", check=plain)
        run("check", *arguments, "--brief", "--exit-code", "plain", check=plain)
        run("check", *arguments, "--brief", "--exit-code", "bisect", check=bisect)
        run("check", *arguments, "--brief", "--exit-code=bisect", check=bisect)


def hosts_of(pid):
    """The kernel hosts among the children of a process."""
    hosts = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == "attest-host":
                    hosts.append(int(child))
            except OSError:
                pass
    return hosts


def run_killing(subject, path, most, *arguments):
    """Checks a kernel while its hosts are killed, at most so many of them; how many, and the code."""
    process = subprocess.Popen([ATTEST, "check", subject, *SMOKE, "--json", str(path), *arguments],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    killed = set()

    def kill():
        while process.poll() is None and len(killed) < most:
            try:
                for host in hosts_of(process.pid):
                    if host not in killed:
                        os.kill(host, signal.SIGKILL)
                        killed.add(host)
            except OSError:
                pass

    thread = threading.Thread(target=kill)
    thread.start()
    code = process.wait(timeout=300)
    thread.join()
    return len(killed), code


def killed_from_outside(folder):
    path = pathlib.Path(folder) / "killed.json"
    whole, _ = check(folder, "prints", *SMOKE, code=0)
    killed, code = run_killing(f"{BROKEN}#prints", path, 3)
    expect(killed > 0 and code == 0, f"killed {killed} times: exit {code}")
    left, right = without_times(record_of(path)), without_times(whole)
    expect(left == right, "killed now and then: another record than without")

    path.unlink()
    killed, code = run_killing(f"{BROKEN}#slow", path, 1000, "--jobs", "1")
    expect(code == 3, f"killed in every call ({killed} times): exit {code}")
    if path.exists():  # not where it never came to load the kernel
        record = record_of(path)
        expect(not record["failures"] and record["verdict"] == "incomplete",
               f"killed in every call: {record['verdict']}, {len(record['failures'])} failures")


def killed_by_itself(folder):
    record, _ = check(folder, "kill_itself", *SMOKE, code=1)
    expect(record["verdict"] == "not_conformant" and len(record["causes"]) == 1,
           f"kill_itself: {record['verdict']}, {len(record['causes'])} causes")
    failure = record["failures"][record["causes"][0]["smallest"]]
    expect(failure["verdict"] == "crash" and "SIGKILL" in failure["detail"],
           f"kill_itself: {failure['verdict']} {failure['detail']}")
    expect(failure["reruns_failed"] == failure["reruns"] == 10, "kill_itself: not in all reruns")
    replayed = run("replay", failure["case"], f"{BROKEN}#kill_itself", "--requirement",
                   failure["requirement"], check=1)
    expect("SIGKILL" in replayed.stdout, f"kill_itself: {replayed.stdout}")

    record, _ = check(folder, "kill_always", *SMOKE, code=3)
    expect(not record["failures"], "kill_always: accused")
    expect(any("on " in note and "attention.forward" in note for note in record["notes"]),
           f"kill_always: no case in {record['notes']}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        # What is kept between two runs stays here.
        os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(folder) / "cache-of-all")
        flaky(folder)
        expectations(folder)
        baseline(folder)
        last_failed(folder)
        require(folder)
        exit_codes()
        killed_from_outside(folder)
        killed_by_itself(folder)
    finish()


main()
