# SPDX-License-Identifier: Apache-2.0
"""Two mistakes of teaching texts, as they are met there. attest check says what is wrong with each."""
import numpy as np

BLOCK = 16


def chunked(q, k, v, causal=False):
    """Online softmax over blocks of keys, whose loop ends where the queries do."""
    scale = np.float32(1 / np.sqrt(q.shape[-1]))
    top = np.full(q.shape[:-1] + (1,), -np.inf, dtype=q.dtype)
    total = np.zeros_like(top)
    output = np.zeros(q.shape[:-1] + v.shape[-1:], dtype=q.dtype)
    shift = k.shape[-2] - q.shape[-2]
    for start in range(0, q.shape[-2], BLOCK):  # the mistake: k.shape[-2]
        keys, values = k[..., start:start + BLOCK, :], v[..., start:start + BLOCK, :]
        scores = q @ keys.swapaxes(-1, -2) * scale
        if causal:
            column = np.arange(start, start + keys.shape[-2])
            scores = np.where(column <= np.arange(q.shape[-2])[:, None] + shift, scores, np.float32(-np.inf))
        higher = np.maximum(top, scores.max(-1, keepdims=True, initial=-np.inf))
        base = np.where(np.isneginf(higher), np.float32(0), higher)
        weights, kept = np.exp(scores - base), np.exp(top - base)
        total = total * kept + weights.sum(-1, keepdims=True)
        output = output * kept + weights @ values
        top = higher
    return output / np.where(total == 0, np.float32(1), total)


def sliding_window(q, k, v, causal=False, window_left=-1):
    """Each query sees itself and `window_left` keys before it: one more than asked for here."""
    scores = q @ k.swapaxes(-1, -2) * np.float32(1 / np.sqrt(q.shape[-1]))
    position = np.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    column = np.arange(k.shape[-2])
    hidden = np.zeros(scores.shape[-2:], dtype=bool)
    if causal:
        hidden |= column > position
    if window_left >= 0:
        hidden |= column < position - window_left - 1  # the mistake: a window of W + 1 keys besides its own
    scores[..., hidden] = -np.inf
    top = scores.max(-1, keepdims=True, initial=-1e30)
    weights = np.exp(scores - top)
    return weights @ v / np.maximum(weights.sum(-1, keepdims=True), np.float32(1e-30))
