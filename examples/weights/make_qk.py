#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a safetensors file of q and k whose heads do what heads of language models are known to do:

    make_qk.py qk.safetensors
    attest plot weights --tensors qk.safetensors --columns 4 --svg weights.svg

Layer 0: the token before, the first token, the token itself, all alike. Layer 1: what followed the same token earlier
(induction), the last punctuation, the three tokens before, the last token of the same kind. Keys are one-hot by position;
a query is the sum of those that it looks for, so that no training is needed and the picture is known beforehand.
"""
import json
import struct
import sys

TOKENS = "The cat sat . The dog sat . The cat ran .".split()
STRENGTH = 30.0  # logits are STRENGTH / sqrt(12): 8.7 above the rest


def before(i):
    return [max(i - 1, 0)]


def first(i):
    return [0]


def itself(i):
    return [i]


def alike(i):
    return []


def induction(i):
    return [j + 1 for j in range(i) if TOKENS[j] == TOKENS[i]][-1:] or [0]


def punctuation(i):
    return [j for j in range(i + 1) if TOKENS[j] == "."][-1:] or [0]


def three_before(i):
    return list(range(max(i - 2, 0), i + 1))


def same_token(i):
    return [j for j in range(i) if TOKENS[j] == TOKENS[i]][-1:] or [i]


LAYERS = [[before, first, itself, alike], [induction, punctuation, three_before, same_token]]


def one_hot(places):
    return [STRENGTH * (j in places) for j in range(len(TOKENS))]


def main(path):
    size = len(TOKENS)
    header, data = {"__metadata__": {"tokens": "\n".join(TOKENS)}}, b""
    for layer, heads in enumerate(LAYERS):
        queries = [x for head in heads for i in range(size) for x in one_hot(head(i))]
        keys = [float(i == j) for _ in heads for i in range(size) for j in range(size)]
        for name, values in (("q", queries), ("k", keys)):
            piece = struct.pack(f"<{len(values)}f", *values)
            header[f"layers.{layer}.{name}"] = {"dtype": "F32", "shape": [len(heads), size, size],
                                                "data_offsets": [len(data), len(data) + len(piece)]}
            data += piece
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


main(sys.argv[1])
