# SPDX-License-Identifier: Apache-2.0
"""Kernels that are no libraries: Python functions and programs of any language, end to end."""
import json
import os
import pathlib
import stat
import sys
import tempfile

from command import MODULES, expect, finish, record_of, run

PYTHON = {"ATTEST_PYTHON": sys.executable}
NUMPY, PLAIN, PERL = ("examples/python/numpy_attention.py::attention", "examples/python/plain_attention.py::attention",
                      "examples/jsonl/attention.pl")
SHORT = ["--suite", "smoke"]  # which ends after 10 s for a program
# A right program that speaks jsonl, for those that go wrong in one place: what a call is answered with.
PROGRAM = '''#!%s
import json, os, sys
asked, answers = os.fdopen(int(os.environ["ATTEST_READ_FD"])), os.fdopen(int(os.environ["ATTEST_WRITE_FD"]), "w")
def say(text):
    answers.write(text + "\\n")
    answers.flush()
for line in asked:
    request = json.loads(line)
    if request["op"] == "hello":
        say(json.dumps({"id": request["id"], "name": "mine", "version": "1", "declaration": "dtype=f32 precision=f32"}))
        continue
    shape = request["outputs"]["o"]["shape"] if "o" in request.get("outputs", {}) else [0]
    count = 1
    for extent in shape: count *= extent
    right = {"id": request["id"], "tensors": {"o": {"shape": shape, "data": [0.0] * count}}}
    %s
'''
# What each answers, and what the verdict on it says.
WRONG = {
    "exit": ("sys.exit(3)", "the process ended with exit status 3"),
    "signal": ("os.kill(os.getpid(), 11)", "signal 11 (SIGSEGV)"),
    "twice": ("say(json.dumps(right) + '\\n' + json.dumps(right))", "wrote more than one answer to one request"),
    "id": ("right['id'] += 1; say(json.dumps(right))", "answers request"),
    "shape": ("right['tensors']['o']['shape'] = [1]; say(json.dumps(right))", "'o' has shape [1] where"),
    "dtype": ("right['tensors']['o']['dtype'] = 'f64'; say(json.dumps(right))", "'o' has dtype 'f64' where f32"),
    "nan": ("right['tensors']['o']['data'] = [float('nan')] * count; say(json.dumps(right))", "not JSON"),
    "cut": ("say(json.dumps(right)[:-3])", "not JSON, or cut short"),
    "nothing": ("say('{}')", "has no 'id'"),
    "value": ("say(json.dumps(right))", "expected"),
}


def write_program(folder, name, text):
    path = pathlib.Path(folder) / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def examples():
    for subject in (NUMPY, PLAIN):
        expect("CONFORMANT" in run("check", subject, *SHORT, env=PYTHON, check=0).stdout, subject)
    expect("CONFORMANT" in run("check", "--cmd", PERL, "--protocol", "jsonl", *SHORT, check=0).stdout, PERL)


def mistakes(folder):
    """The same mistake in C and in Python: the same case, the same diagnosis."""
    source = pathlib.Path("examples/python/numpy_attention.py").read_text()
    wrong = source.replace("k.shape[-2] - q.shape[-2], dtype", "dtype")
    expect(wrong != source, "the mistake is not planted")
    path = pathlib.Path(folder) / "top_left.py"
    path.write_text(wrong)
    causes = []
    for subject in (f"{path}::attention", f"{MODULES}/broken.so#top_left"):
        record = pathlib.Path(folder) / "record.json"
        run("check", subject, "--suite", "smoke", "--filter", "ORACLE-O", "--json", record, env=PYTHON, check=1)
        cause = record_of(record)["causes"][0]
        failure = record_of(record)["failures"][cause["smallest"]]
        causes.append((failure["case"].replace(" lse=0", ""), cause["diagnosis"].split(" (fits")[0]))
    expect(causes[0] == causes[1], f"{causes}")
    expect(causes[0][1].startswith("causal mask aligned top_left"), f"{causes}")
    for name, diagnosis in (("chunked", "the loop over keys, in blocks of 16,"),
                            ("sliding_window", "the window reaches one key too far to the left")):
        result = run("check", f"examples/python/teaching_mistakes.py::{name}", *SHORT, "--filter", "ORACLE-O", env=PYTHON,
                     check=1)
        looks = " ".join(result.stdout.split("looks like:", 1)[-1].split()[:20])
        expect(diagnosis in looks, f"{name}: {looks}")


def wrong_programs(folder):
    for name, (answer, sentence) in WRONG.items():
        path = write_program(folder, name, PROGRAM % (sys.executable, answer))
        result = run("replay", "attention.forward lk=2 d=2 lse=0", f"jsonl:{path}", "--requirement", "ORACLE-O", check=1)
        expect(sentence in result.stdout, f"{name}: {result.stdout}")
    path = write_program(folder, "hangs", PROGRAM % (sys.executable, "while True: pass"))
    result = run("replay", "attention.forward lk=2 d=2 lse=0", f"jsonl:{path}", "--requirement", "ORACLE-O", check=1)
    expect("hang" in result.stdout and "CPU time" in result.stdout, result.stdout)


def hostile_blobs(folder):
    header = '{"o":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"p":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}'
    blobs = {"huge": "struct.pack('<QQ', 16, 1 << 60) + bytes(8)",
             "overlap": f"struct.pack('<QQ', {8 + len(header) + 6}, {len(header)}) + b'{header}' + bytes(6)",
             "latin": "struct.pack('<QQ', 12, 4) + b'\\xff\\xfe{}'",
             "length": "struct.pack('<Q', 1 << 60)"}
    for name, blob in blobs.items():
        path = write_program(folder, name, f"""#!{sys.executable}
import os, struct
os.read(int(os.environ["ATTEST_READ_FD"]), 1 << 20)
os.write(int(os.environ["ATTEST_WRITE_FD"]), {blob})
""")
        result = run("check", "--cmd", path, "--protocol", "safetensors", check=2)
        expect(result.stderr.count("\n") == 1 and "its hello" in result.stderr, f"{name}: {result.stderr}")


def refused(folder):
    """One line, exit code 2."""
    functions = pathlib.Path(folder) / "functions.py"
    functions.write_text("def wants(q, k, v, foo): return q\ndef raises(q, k, v): raise ValueError('no good')\n"
                         "def prints(q, k, v):\n    print('seen')\n    return [[[[0.0] * len(v[0][0][0]) for _ in h] for h in b] for b in q]\n")
    broken = pathlib.Path(folder) / "broken.py"
    broken.write_text("import no_such_package\n")
    for arguments, sentence in (
            ([f"{functions}::wants"], "wants foo"), ([f"{functions}::absent"], "has no absent"),
            ([f"{broken}::x"], "ModuleNotFoundError"), (["/no/such/file.py::x"], "no such file"),
            (["no_such_package.module::x"], "ModuleNotFoundError"), ([f"{functions}::"], "is wanted"),
            (["--cmd", "/no/such/program"], "before it said hello"), (["--cmd", "true"], "exit status 0"),
            (["--cmd", "echo hi >&$ATTEST_WRITE_FD"], "its hello"), (["--cmd", " "], "names no program"),
            (["--cmd", "true", "naive"], "takes the place"), (["--cmd", "true", "--protocol", "xml"], "is none of"),
            (["naive", "--protocol", "jsonl"], "goes with --cmd"), ([], "no kernel given")):
        result = run("check", *arguments, env=PYTHON, check=2)
        own = [line for line in result.stderr.splitlines() if not line.startswith("[")]
        expect(len(own) == 1 and sentence in own[0], f"{arguments}: {result.stderr}")
    result = run("check", f"{functions}::wants", env={"ATTEST_PYTHON": "/no/such/python"}, check=2)
    expect("cannot start /no/such/python" in result.stderr, result.stderr)

    result = run("replay", "attention.forward lk=2 d=2 lse=0", f"{functions}::raises", env=PYTHON, check=1)
    expect("ValueError: no good (functions.py, line 2, in raises)" in result.stdout, result.stdout)
    result = run("replay", "attention.forward lk=2 d=2 lse=0", f"{functions}::prints", "--requirement", "ORACLE-O", env=PYTHON,
                 check=1)
    expect(f"[{functions}::prints] seen" in result.stderr, result.stderr)


def like_known_functions(folder):
    """Functions with the names, layouts and conventions of libraries, by the file that says so."""
    path = pathlib.Path(folder) / "libraries.py"
    path.write_text("""import numpy as np

def softmax(scores, v):
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
    total = weights.sum(-1, keepdims=True)
    return (weights @ v) / np.where(total == 0, total.dtype.type(1), total)

def sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        key, value = (np.repeat(x, query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.swapaxes(-1, -2) * query.dtype.type(1 / np.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        assert attn_mask is None
        attn_mask = np.tri(*scores.shape[-2:], dtype=bool)
    if attn_mask is not None:
        scores = np.where(attn_mask, scores, -np.inf).astype(scores.dtype) if attn_mask.dtype == bool else scores + attn_mask
    return softmax(scores, value)

def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0):
    assert len(window_size) == 2
    q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    return sdpa(q, k, v, None, 0.0, False, softmax_scale, q.shape[1] != k.shape[1]).swapaxes(1, 2)
""")
    # What numpy has types and this file code for: the declaration that goes with the names is narrowed.
    text = path.read_text() + "\nimport attest\n"
    text += "sdpa = attest.subject(sdpa, declaration='dtype=f32,f64 v_head_dim=any base=full,causal align=top_left gqa mask bias scale')\n"
    text += "flash_attn_func = attest.subject(flash_attn_func, declaration='dtype=f32 gqa scale precision=f32')\n"
    path.write_text(text)
    run("check", f"{path}::sdpa", "--like", "torch_sdpa", *SHORT, env=PYTHON, check=0)
    run("check", f"{path}::flash_attn_func@flash_attn", *SHORT, env=PYTHON, check=0)
    result = run("check", f"{path}::sdpa", "--like", "nobody", env=PYTHON, check=2)
    expect("no function is known as 'nobody'; there are flash_attn, torch_sdpa" in result.stderr, result.stderr)
    expect("--like goes with" in run("check", "naive", "--like", "torch_sdpa", check=2).stderr, "naive")


def probed(folder):
    """A function that declares nothing is called, not refused, so that a probe sees what it does."""
    path = pathlib.Path(folder) / "probed.py"
    text = pathlib.Path("examples/python/numpy_attention.py").read_text()
    path.write_text("import attest\n" + text.replace("def attention", "@attest.subject(declaration='')\ndef attention"))
    printed = run("probe", f"{path}::attention", env=PYTHON, check=0).stdout
    expect("dtype=" in printed and "base=full,causal" in printed, printed)


def over_stdio(folder):
    """As over ssh: nothing but stdin and stdout, and what the function prints is no answer."""
    function = pathlib.Path(folder) / "quiet.py"
    function.write_text(pathlib.Path("examples/python/plain_attention.py").read_text().replace(
        "    output = []", "    print('not an answer')\n    output = []"))
    module = next(path for path in (pathlib.Path(os.environ.get("ATTEST_COMMAND", "build/release/attest")).parent / below
                                    for below in ("lib/attest/attest.py", "../lib/attest/attest.py")) if path.exists())
    command = f"env -u ATTEST_READ_FD -u ATTEST_WRITE_FD {sys.executable} {module} serve {function}::attention"
    record = pathlib.Path(folder) / "stdio.json"
    run("check", f"safetensors:stdio:{command}", *SHORT, "--json", record, check=0)
    expect(json.loads(record.read_text())["subject"]["path"].startswith("safetensors:stdio:"), "path")


with tempfile.TemporaryDirectory() as name:
    examples()
    mistakes(name)
    wrong_programs(name)
    hostile_blobs(name)
    refused(name)
    like_known_functions(name)
    probed(name)
    over_stdio(name)
finish()
