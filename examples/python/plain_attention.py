# SPDX-License-Identifier: Apache-2.0
# attest check examples/python/plain_attention.py::attention: lists of numbers, one head at a time, no package.
import math


def attention(q, k, v, causal=False):
    scale = 1 / math.sqrt(len(q[0]))
    output = []
    for i, query in enumerate(q):
        keys = range(len(k) - len(q) + i + 1) if causal else range(len(k))
        scores = [scale * sum(a * b for a, b in zip(query, k[j])) for j in keys]
        top = max(scores, default=0.0)
        weights = [math.exp(score - top) for score in scores]
        total = sum(weights)
        output.append([sum(w * v[j][c] for w, j in zip(weights, keys)) / total if total else 0.0
                       for c in range(len(v[0]))])
    return output
