# SPDX-License-Identifier: Apache-2.0
"""attest.assert_close and attest grade: right outputs pass, each wrong one is named, an illegal call is a ValueError."""
import json
import os
import pathlib
import struct
import sys
import tempfile

import numpy as np

from command import ATTEST, expect, finish, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "python"))
os.environ.setdefault("ATTEST_COMMAND", ATTEST)
import attest  # noqa: E402

random = np.random.default_rng(1)


def draw(*shape):
    return random.standard_normal(shape, dtype=np.float32)


def attention(q, k, v, hidden=None):
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if hidden is not None:
        scores[..., hidden] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights @ v / weights.sum(-1, keepdims=True)


def failure(kind, *arguments, **keywords):
    try:
        attest.assert_close(*arguments, **keywords)
    except kind as error:
        return str(error)
    return ""


def passes_and_fails():
    q, k, v = draw(2, 3, 17, 16), draw(2, 3, 21, 16), draw(2, 3, 21, 8)
    later = ~np.tri(17, 21, 4, dtype=bool)
    causal = dict(q=q, k=k, v=v, causal=True, align="bottom_right")
    attest.assert_close(attention(q, k, v), q=q, k=k, v=v)
    attest.assert_close(attention(q, k, v, later), **causal)
    attest.assert_close(attention(q, k, v, later), q=q, k=k, v=v, mask=~later)
    attest.assert_close(attention(q[0], k[0], v[0]), q=q[0], k=k[0], v=v[0])
    attest.assert_close([[1.0, 0.0]], q=[[1.0]], k=[[0.0]], v=[[1.0, 0.0]])

    top_left = attention(q, k, v, ~np.tri(17, 21, 0, dtype=bool))
    expect("looks like: causal mask aligned top_left" in failure(AssertionError, top_left, **causal), "top left")
    off = attention(q, k, v)
    off[0, 1, 2, 3] += 1e-3
    said = failure(AssertionError, off, q=q, k=k, v=v)
    expect(said.startswith("fail: o[0,1,2,3] is") and "1 of 816 elements wrong" in said, said)
    expect("say align" in failure(ValueError, off, q=q, k=k, v=v, causal=True), "no alignment")
    expect("shape differs" in failure(ValueError, off[..., :3], q=q, k=k, v=v), "shape")
    expect("precision" in failure(ValueError, off, q=q, k=k, v=v, precision="exact"), "precision")
    expect("means nothing" in failure(ValueError, off, q=q, k=k, v=v, colour="red"), "unknown scalar")
    expect("has no place" in failure(ValueError, off, q=q, k=k, v=v, colour=q), "unknown tensor")


def rounded_rows():
    """bf16, as bits: what is rounded passes, one part in a thousand beside it fails."""
    bits = np.vectorize(lambda x: attest.bf16_word(float(x)), otypes=[np.uint16])
    wide = lambda words: (words.astype(np.uint32) << 16).view(np.float32)
    q, k, v = (bits(draw(1, 2, 9, 16)) for _ in range(3))
    o = attention(*map(wide, (q, k, v)))
    attest.assert_close(bits(o), q=q, k=k, v=v, dtype="bf16", precision="mma_f32acc")
    expect("fail: " in failure(AssertionError, bits(o + np.abs(o).max() * np.float32(0.02)), q=q, k=k, v=v, dtype="bf16",
                               precision="mma_f32acc"), "2 % off")


def bf16_helper():
    """Against the exact neighbours, in whole numbers: every pattern, and what lies on and beside the middle."""
    words = np.arange(1 << 16, dtype=np.uint32)
    values = (words << 16).view(np.float32).astype(np.float64)
    for word, value in zip(words.tolist(), values.tolist()):
        if value != value:
            expect(attest.bf16_word(value) & 0x7FFF > 0x7F80, f"{word:04x}")
            continue
        expect(attest.bf16_word(value) == word, f"{word:04x}")
        if word & 0x7FFF >= 0x7F7F:
            continue
        middle = (value + values[word + 1]) / 2  # exact in f64
        even = word if word % 2 == 0 else word + 1
        away, toward = np.nextafter(middle, values[word + 1]), np.nextafter(middle, value)
        expect([attest.bf16_word(float(x)) for x in (middle, away, toward)] == [even, word + 1, word], f"beside {word:04x}")


def bad_files(folder):
    """One line, exit code 2."""
    header = lambda metadata, tensors: json.dumps({"__metadata__": metadata, **tensors}).encode()
    one = {"dtype": "F32", "shape": [1, 1, 1, 1], "data_offsets": [0, 4]}
    for name, metadata, tensors, sentence in (
            ("no_q", {}, {"o": one}, "q wants 4 axes"), ("place", {}, {"p": one}, "has no place"),
            ("base", {"base": "upper"}, {"q": one}, "base=upper makes no sense"),
            ("scale", {"scale": "wide"}, {"q": one}, "scale=wide makes no sense"),
            ("key", {"mood": "good"}, {"q": one}, "'mood' means nothing here")):
        text = header(metadata, tensors)
        path = pathlib.Path(folder) / name
        path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
        result = run("grade", path, check=2)
        expect(sentence in result.stderr and result.stderr.count("\n") == 1, f"{name}: {result.stderr}")
    expect("No such file" in run("grade", pathlib.Path(folder) / "absent", check=2).stderr, "absent")


passes_and_fails()
rounded_rows()
bf16_helper()
with tempfile.TemporaryDirectory() as name:
    bad_files(name)
finish()
