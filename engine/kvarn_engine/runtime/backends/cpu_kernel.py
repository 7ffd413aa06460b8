"""The CPU decode kernel's source, compiled by numba on first use and cached on disk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kvarn_engine.runtime.backends.kernel_folder import kernel_folder, take_compiled


def compiled_decode() -> Any:
    """Reassociated sums vectorise; infinities and NaN keep their meaning, which the full `fastmath` would take away."""
    import numba

    folder = kernel_folder()
    if folder is not None:
        numba.config.CACHE_DIR = str(folder)
    jit: Callable[..., Any] = numba.njit(cache=folder is not None, nogil=True, fastmath={"reassoc", "contract", "nsz"})
    kernel = jit(decode)
    if folder is not None:
        take_compiled(Path(kernel.stats.cache_path))
    return kernel


def decode(  # type: ignore[no-untyped-def]
    query, words, shift, layer, block_tables, contexts, scale, window, out
) -> None:
    """`query` and `out` float32 `[n][query_head][dim]`; `words` `[block][layer][K|V][slot][kv_head][dim]`.

    A word shifted left by `shift` is the bit pattern of a float32, for bfloat16 (16) and float32 (0) alike. Slots are
    walked in memory order, all heads of a slot together.
    """
    block_size, kv_heads, dim = words.shape[3], words.shape[4], words.shape[5]
    group = query.shape[1] // kv_heads
    row_bits = np.empty(dim, dtype=np.uint32)
    row = row_bits.view(np.float32)
    for n in range(query.shape[0]):
        context = contexts[n]
        first = max(0, context - window) if window > 0 else 0
        scores = np.empty((query.shape[1], context - first), dtype=np.float32)
        for position in range(first // block_size, (context + block_size - 1) // block_size):
            base = position * block_size
            keys = words[block_tables[n, position], layer, 0]
            for slot in range(max(first - base, 0), min(context - base, block_size)):
                for head in range(kv_heads):
                    key = keys[slot, head]
                    for d in range(dim):
                        row_bits[d] = np.uint32(key[d]) << shift
                    for g in range(head * group, head * group + group):
                        line = query[n, g]
                        dot = np.float32(0.0)
                        for d in range(dim):
                            dot += row[d] * line[d]
                        scores[g, base + slot - first] = dot * scale
        for h in range(query.shape[1]):
            scores[h] = np.exp(scores[h] - scores[h].max())
            scores[h] /= scores[h].sum()
        out[n] = 0.0
        for position in range(first // block_size, (context + block_size - 1) // block_size):
            base = position * block_size
            values = words[block_tables[n, position], layer, 1]
            for slot in range(max(first - base, 0), min(context - base, block_size)):
                for head in range(kv_heads):
                    value = values[slot, head]
                    for d in range(dim):
                        row_bits[d] = np.uint32(value[d]) << shift
                    for g in range(head * group, head * group + group):
                        weight = scores[g, base + slot - first]
                        line = out[n, g]
                        for d in range(dim):
                            line[d] += weight * row[d]
