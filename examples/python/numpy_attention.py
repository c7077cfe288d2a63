# SPDX-License-Identifier: Apache-2.0
# attest check examples/python/numpy_attention.py::attention
import numpy as np


def attention(q, k, v, causal=False):
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    if causal:
        scores[..., ~np.tri(*scores.shape[-2:], k.shape[-2] - q.shape[-2], dtype=bool)] = -np.inf
    top = scores.max(-1, keepdims=True, initial=-1e30)
    weights = np.exp(scores - top)
    return weights @ v / np.maximum(weights.sum(-1, keepdims=True), np.float32(1e-30))
