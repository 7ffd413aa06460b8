"""The CPU decode kernel's source, compiled by numba on first use and cached on disk."""

from collections.abc import Callable
from typing import Any

import numpy as np


def compiled_decode() -> Any:
    """Reassociated sums vectorise; infinities and NaN keep their meaning, which the full `fastmath` would take away."""
    import numba

    jit: Callable[..., Any] = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
    return jit(decode)


def decode(  # type: ignore[no-untyped-def]
    query, words, shift, layer, block_tables, contexts, scale, window, out
) -> None:
    """`query` and `out` float32 `[n][query_head][dim]`; `words` `[block][layer][K|V][slot][kv_head][dim]`.

    A word shifted left by `shift` is the bit pattern of a float32, for bfloat16 (16) and float32 (0) alike.
    """
    block_size, kv_heads, dim = words.shape[3], words.shape[4], words.shape[5]
    group = query.shape[1] // kv_heads
    row_bits = np.empty(dim, dtype=np.uint32)
    row = row_bits.view(np.float32)
    scores = np.empty((group, block_size), dtype=np.float32)
    total = np.empty((group, dim), dtype=np.float32)
    peak = np.empty(group, dtype=np.float32)
    norm = np.empty(group, dtype=np.float32)
    for n in range(query.shape[0]):
        context = contexts[n]
        first = max(0, context - window) if window > 0 else 0
        for head in range(kv_heads):
            total[:] = 0.0
            norm[:] = 0.0
            peak[:] = -np.inf
            for position in range(first // block_size, (context + block_size - 1) // block_size):
                block = block_tables[n, position]
                low = max(first - position * block_size, 0)
                high = min(context - position * block_size, block_size)
                keys, values = words[block, layer, 0], words[block, layer, 1]
                for slot in range(low, high):
                    for d in range(dim):
                        row_bits[d] = np.uint32(keys[slot, head, d]) << shift
                    for g in range(group):
                        dot = np.float32(0.0)
                        for d in range(dim):
                            dot += row[d] * query[n, head * group + g, d]
                        scores[g, slot] = dot * scale
                for g in range(group):
                    top = peak[g]
                    for slot in range(low, high):
                        top = max(top, scores[g, slot])
                    fade = np.exp(peak[g] - top)
                    norm[g] *= fade
                    for d in range(dim):
                        total[g, d] *= fade
                    peak[g] = top
                    for slot in range(low, high):
                        scores[g, slot] = np.exp(scores[g, slot] - top)
                        norm[g] += scores[g, slot]
                for slot in range(low, high):
                    for d in range(dim):
                        row_bits[d] = np.uint32(values[slot, head, d]) << shift
                    for g in range(group):
                        weight = scores[g, slot]
                        for d in range(dim):
                            total[g, d] += weight * row[d]
            for g in range(group):
                for d in range(dim):
                    out[n, head * group + g, d] = total[g, d] / norm[g]
