# SPDX-License-Identifier: Apache-2.0
"""attest plot, end to end: the weights of a black box, by layers and heads, with token labels; memory against length."""
import json
import math
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

from command import MODULES, expect, finish, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS = ["The", "cat", "sat", "<on>"]


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, (shape, values) in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def previous_and_first(path):
    """Layer 0: head 0 looks at the token before, head 1 at the first one; layer 1: everything alike."""
    size = len(TOKENS)
    one_hot = [[float(i == j) for j in range(size)] for i in range(size)]
    before = [one_hot[max(i - 1, 0)] for i in range(size)]
    first = [one_hot[0] for _ in range(size)]
    strong = lambda rows: [40 * x for row in rows for x in row]
    flat = [x for row in one_hot for x in row]
    write_safetensors(path, {
        "layers.0.q": ([2, size, size], strong(before) + strong(first)), "layers.0.k": ([2, size, size], flat * 2),
        "layers.1.q": ([2, size, size], [0.0] * (2 * size * size)), "layers.1.k": ([1, size, size], flat),
    }, {"tokens": "\n".join(TOKENS)})


def cells(svg):
    """Of each panel: {(row, column): colour}."""
    panels = []
    for group in svg.split("<g transform=")[1:-1]:
        found = {}
        for x, y, width, height, colour in re.findall(
                r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" fill="(#\w+)"/>', group):
            found[round(float(y) / float(height)), round(float(x) / float(width))] = colour
        panels.append(found)
    return panels


def memory(folder):
    """Stored probabilities grow with the square of the length, recomputed ones do not."""
    times, picture = folder / "times.json", folder / "memory.svg"
    run("bench", "naive", "chunked", "--op", "backward", "--heads", "1", "--len", "512,1024", "--samples", "5",
        "--sample-time", "0.001s", "--json", times, check=0)
    run("plot", "memory", "--times", times, "--svg", picture, check=0)
    svg, shown = picture.read_text(), (ROOT / "docs/memory.svg").read_text()
    for name, power in [("naive", 2), ("chunked", 1)]:
        for text in (svg, shown):
            found = re.findall(rf">{name}: L\^([\d.]+)<", text)
            expect(len(found) == 1 and abs(float(found[0]) - power) < 0.2, f"{name} grows with L^{found}")
        # What is allocated does not depend on the machine.
        for point in re.findall(rf"<title>({name}, L = [^<]+)</title>", svg):
            expect(point in shown, f"docs/memory.svg has no '{point}'")
    one_length = folder / "one.json"
    run("bench", "naive", "--len", "64", "--samples", "5", "--sample-time", "0.001s", "--json", one_length, check=0)
    for arguments, words in [
        (["--times", one_length], ["one.json", "two lengths"]),
        (["--times", folder / "nowhere"], ["nowhere"]),
        (["--times", times, "--heads", "0"], ["--heads", "memory"]),
        ([], ["--times"]),
    ]:
        result = run("plot", "memory", *arguments, "--svg", folder / "no.svg", check=2)
        lines = result.stderr.strip().splitlines()
        expect(len(lines) == 1 and all(word in lines[0] for word in words), f"{arguments}: {result.stderr}")
        expect(not (folder / "no.svg").exists(), f"{arguments}: wrote a picture")


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tensors, picture = folder / "qk.safetensors", folder / "weights.svg"
        previous_and_first(tensors)
        run("plot", "weights", "--tensors", tensors, "--svg", picture, check=0)
        svg = picture.read_text()
        for layer in (0, 1):
            for head in (0, 1):
                expect(f">layer {layer}, head {head}<" in svg, f"no title of layer {layer}, head {head}")
        expect(svg.count(">&lt;on&gt;<") == 8 and ">cat<" in svg, "token labels")
        previous, first, even = cells(svg)[0], cells(svg)[1], cells(svg)[2]
        dark = "#08306b"
        expect({at for at, colour in previous.items() if colour == dark} == {(0, 0), (1, 0), (2, 1), (3, 2)}, previous)
        expect({at for at, colour in first.items() if colour == dark} == {(i, 0) for i in range(4)}, first)
        # Every token sees itself and those before it: 1, 1/2, 1/3, 1/4.
        expect(set(even) == {(i, j) for i in range(4) for j in range(i + 1)}, even)
        expect(len({even[3, j] for j in range(4)}) == 1, "the last row is even")

        run("plot", "weights", "--tensors", tensors, "--layers", "1", "--heads", "0", "--base", "full", "--impl", "chunked",
            "--svg", picture, check=0)
        expect(len(cells(picture.read_text())) == 1 and len(cells(picture.read_text())[0]) == 16, "full, one head")
        # A kernel that aligns its mask at the wrong end: its weights, not those of the oracle.
        line = "attention.forward lq=2 lk=4 d=2 base=causal"
        run("plot", "weights", "--case", line, "--svg", picture, check=0)
        right = cells(picture.read_text())[0]
        run("plot", "weights", "--case", line, "--impl", f"{MODULES}/broken.so#top_left", "--svg", picture, check=0)
        wrong = cells(picture.read_text())[0]
        expect(set(right) == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)}, right)
        expect(set(wrong) == {(0, 0), (1, 0), (1, 1)}, wrong)

        # The picture in docs/: its cells, whatever the last bit of a weight.
        run_script = subprocess.run([sys.executable, ROOT / "examples/weights/make_qk.py", folder / "example.safetensors"],
                                    check=False)
        expect(run_script.returncode == 0, "make_qk.py")
        run("plot", "weights", "--tensors", folder / "example.safetensors", "--columns", "4", "--svg", picture, check=0)
        expect([set(panel) for panel in cells(picture.read_text())] ==
               [set(panel) for panel in cells((ROOT / "docs/weights.svg").read_text())], "docs/weights.svg is another picture")

        broken = folder / "broken.safetensors"
        broken.write_bytes(tensors.read_bytes()[:-4])
        nothing = folder / "nothing.safetensors"
        write_safetensors(nothing, {"x": ([1], [math.pi])}, {})
        for arguments, words in [
            (["--tensors", broken], ["broken.safetensors", "layers.1.k"]),
            (["--tensors", nothing], ["nothing.safetensors", "layers.0.q"]),
            (["--tensors", folder / "nowhere"], ["nowhere"]),
            (["--tensors", tensors, "--heads", "x"], ["--heads", "x"]),
            (["--tensors", tensors, "--heads", "9"], ["no layer and head"]),
            (["--tensors", tensors, "--base", "half"], ["--base", "half"]),
            (["--case", "attention.backward lq=2"], ["--case", "forward"]),
            (["--case", line, "--tensors", tensors], ["--tensors or --case"]),
            (["--case", line, "--impl", "paged"], ["paged", "does not serve"]),
            (["--times", folder / "times.json"], ["--times", "weights"]),
        ]:
            result = run("plot", "weights", *arguments, "--svg", folder / "never.svg", check=2)
            lines = result.stderr.strip().splitlines()
            expect(len(lines) == 1 and all(word in lines[0] for word in words), f"{arguments}: {result.stderr}")
            expect(not (folder / "never.svg").exists(), f"{arguments}: wrote a picture")
        memory(folder)
        expect("weights" in run("plot", "graph", "--case", line, "--svg", picture, check=2).stderr, "plot graph")
    finish()


main()
