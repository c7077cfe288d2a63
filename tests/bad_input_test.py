# SPDX-License-Identifier: Apache-2.0
"""Bad input: one line on stderr that says what and where, exit 2, nothing written."""
import os
import pathlib
import tempfile

from command import MODULES, expect, finish, run


def refused(words, *arguments, code=2, folder=None, env=None):
    before = sorted(os.listdir(folder)) if folder else None
    result = run(*arguments, check=code, env=env)
    lines = result.stderr.strip().splitlines()
    what = "attest " + " ".join(map(str, arguments))
    expect(len(lines) == 1 and lines[0].startswith("attest: "), f"{what}: stderr {lines}")
    expect(result.stdout == "", f"{what}: wrote to stdout: {result.stdout[:200]}")
    for word in words:
        expect(word in result.stderr, f"{what}: does not say '{word}': {result.stderr}")
    if folder:
        expect(sorted(os.listdir(folder)) == before, f"{what}: left something in {folder}")


def libraries(folder):
    report = pathlib.Path(folder) / "report.json"
    text = pathlib.Path(folder) / "text.so"
    text.write_text("no library\n")
    for subject, words in [
        ("./does-not-exist.so", ["does-not-exist.so"]),
        ("no_such_kernel", ["no_such_kernel"]),
        (str(text), ["text.so"]),
        (f"{MODULES}/no_entry.so", ["attest_plugin_entry"]),
        (f"{MODULES}/null_entry.so", ["NULL"]),
        (f"{MODULES}/wrong_abi.so", ["ABI version"]),
        (f"{MODULES}/bad_declaration.so", ["declaration"]),
        (f"{MODULES}/broken.so#no_such", ["no_such"]),
        (f"{MODULES}/crash_on_load.so", ["crash_on_load.so"]),
        (f"{MODULES}/exit_on_load.so", ["exit_on_load.so"]),
    ]:
        refused(words, "check", subject, "--suite", "smoke", "--json", report, folder=folder)


def costs():
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "model.json"
        broken.write_text('{"schema": "attest.model/2"}')
        report = pathlib.Path(folder) / "cost.json"
        model = ["--model", "llama-3-8b"]
        for arguments, words in [
            ([], ["--model", "--case", "llama-3-8b"]),
            (["--model", "llama-3-8"], ["llama-3-8", "did you mean 'llama-3-8b'"]),
            (["--model", "./nowhere.json"], ["nowhere.json"]),
            (["--model", str(broken)], ["model.json", "attest.model/2", "attest.model/1"]),
            (model + ["--impl", "flahs"], ["--impl", "flahs", "flash"]),
            (model + ["--impl", ","], ["--impl"]),
            (model + ["--compare", "mla"], ["--compare", "mla"]),
            (model + ["--phase", "predict"], ["--phase", "predict"]),
            (model + ["--dtype", "int8"], ["--dtype", "int8"]),
            (model + ["--cache-dtype", "int3"], ["--cache-dtype", "int3"]),
            (model + ["--seq", "0"], ["--seq"]),
            (model + ["--seq", "1e9"], ["--seq"]),
            (model + ["--machine", "h1000"], ["h1000", "h100"]),
            (model + ["--case", "attention.forward"], ["--model", "--case"]),
            (["--model", "gpt-2-small", "--seq", "2000"], ["1024 positions"]),
            (["--case", "attention.forward lq=-1"], ["--case", "lq"]),
            (["--case", "attention.rope d=2 rope=half"], ["--case", "rotary"]),
            (["--case", "attention.forward lq=65536 lk=65536 mask=random"], ["pairs"]),
        ]:
            refused(words, "cost", *arguments, "--json", report, folder=folder)


def case_lines():
    for line, words in [
        ("attention.forward hq=3 hkv=2", ["hkv"]),
        ("attention.forward lq=-1", ["lq"]),
        ("attention.forward b=4000000000 hq=4000000000 lq=4000000000 d=64", []),
        ("attention.forward colour=red", ["colour"]),
        ("attention.forward lq=2 lq=3", ["lq"]),
        ("attention.forward lq=two", ["lq"]),
        ("attention.encode", []),
        ("attention.forward d_lse=1", ["d_lse"]),
        ("attention.backward lse=0 d_lse=1", ["d_lse"]),
        ("attention.backward no_gradient=o", ["no_gradient"]),
        ("attention.forward scale=nan", ["scale"]),
        ("attention.forward softcap=-1", ["softcap"]),
        ("attention.forward dropout=1", ["dropout"]),
        ("attention.forward window=-2,0", ["window"]),
        ("attention.forward seqlens_k=9", ["seqlens_k"]),
        ("attention.forward left_pad_k=2 seqlens_k=1 lk=4", ["left_pad_k"]),
        ("attention.forward q_offset=1", ["q_offset"]),
        ("attention.forward global_tokens=1", ["global_tokens"]),
        ("attention.forward cu_seqlens_q=0,1", ["cu_seqlens"]),
        ("attention.forward data=list lk=2 q=0 k=0 v=0,1", ["k"]),
        ("", []),
    ]:
        refused(words, "replay", line, "naive")
    # Legal, but more than this machine has: the bytes that it would need are named.
    refused(["bytes"], "replay", "attention.forward hq=64 lq=1000000 lk=1000000 d=128", "naive")


def options(folder):
    known = pathlib.Path(folder) / "known.txt"
    known.write_text("fail NO-SUCH-REQUIREMENT * wrong_value - because\n")
    cases = pathlib.Path(folder) / "cases.txt"
    cases.write_text("# a comment\nattention.forward lq=2\nattention.forward hq=3 hkv=2\n")
    missing = "/nonexistent-folder/report.json"
    scope = pathlib.Path(folder) / "scope.txt"
    scope.write_text("dtype f32\nfeature of_mine\n")
    empty = pathlib.Path(folder) / "empty.txt"
    empty.write_text("# nothing\n")
    torn = pathlib.Path(folder) / "torn.json"
    torn.write_text('{"schema": "attest.record/1", "tool": ')
    foreign = pathlib.Path(folder) / "foreign.json"
    run("check", f"{MODULES}/broken.so#prints", "--suite", "smoke", "--filter", "ORACLE-O",
        "--json", foreign, check=0)
    for words, arguments in [
        (["nonexistent-folder"], ["--json", missing]),
        (["nonexistent-folder"], ["--junit", missing]),
        (["nonexistent-folder"], ["--markdown", missing]),
        (["shard"], ["--shard", "4/3"]),
        (["shard"], ["--shard", "0/3"]),
        (["shard"], ["--shard", "one"]),
        (["suite", "hasty"], ["--suite", "hasty"]),
        (["jobs"], ["--jobs", "0"]),
        (["seed"], ["--seed", "minus"]),
        (["time-budget"], ["--time-budget", "soon"]),
        (["known.txt", "NO-SUCH-REQUIREMENT"], ["--expectations", known]),
        (["cases.txt", "3"], ["--cases", cases]),
        (["missing.txt"], ["--cases", pathlib.Path(folder) / "missing.txt"]),
        (["filter"], ["--filter", "NOTHING-*"]),
        (["scope.txt", "line 2", "of_mine"], ["--require", scope]),
        (["empty.txt", "nothing"], ["--require", empty]),
        (["missing.txt"], ["--require", pathlib.Path(folder) / "missing.txt"]),
        (["torn.json", "byte"], ["--baseline", torn]),
        (["scope.txt", "JSON"], ["--baseline", scope]),
        (["missing.json"], ["--baseline", pathlib.Path(folder) / "missing.json"]),
        (["foreign.json", "prints", "naive"], ["--baseline", foreign]),
        (["last-failed", "suite"], ["--last-failed", "--suite", "smoke"]),
        (["last-failed", "cases"], ["--last-failed", "--cases", cases]),
        (["last-failed", "shard"], ["--last-failed", "--shard", "1/2"]),
        (["last-failed", "require"], ["--last-failed", "--require", scope]),
        (["exit-code", "twice"], ["--exit-code", "twice"]),
        (["nonexistent-folder"], ["--annotations", missing]),
        (["nonexistent-folder"], ["--code-quality", missing]),
        (["nonexistent-folder"], ["--pages", "/nonexistent-folder/pages"]),
        (["known.txt", "folder"], ["--pages", known]),
    ]:
        refused(words, "check", "naive", *arguments, folder=folder)
    nowhere = {"XDG_CACHE_HOME": "", "HOME": ""}
    refused(["last-failed", "HOME"], "check", "naive", "--last-failed", env=nowhere)
    cache = pathlib.Path(folder) / "cache"
    refused(["naive", "has not been checked"], "check", "naive", "--last-failed",
            env={"XDG_CACHE_HOME": str(cache)})
    run("check", "naive", "--suite", "smoke", "--filter", "ORACLE-O", check=0,
        env={"XDG_CACHE_HOME": str(cache)})
    refused(["nothing failed", "naive"], "check", "naive", "--last-failed",
            env={"XDG_CACHE_HOME": str(cache)})
    for kept in (cache / "attest").glob("last-*.json"):
        kept.write_text("torn")
        refused([kept.name, "JSON"], "check", "naive", "--last-failed",
                env={"XDG_CACHE_HOME": str(cache)})
    refused(["conquer"], "conquer")
    refused([], "check")


def main():
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        os.environ["XDG_CACHE_HOME"] = kept
        libraries(folder)
        costs()
        case_lines()
        options(folder)
    finish()


main()
