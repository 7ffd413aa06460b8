"""CPU attention over the paged store: a compiled kernel for decode, gather and SDPA for prefill chunks.

The decode kernel walks each sequence's blocks where they lie and widens bfloat16 on the way, so nothing is gathered.
Softcapped models take the reference path.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from kvarn_engine.runtime.attention import AttentionCall
from kvarn_engine.runtime.backends.cpu_kernel import compiled_decode
from kvarn_engine.runtime.backends.reference import attend_span, decode_spans, gather, visible
from kvarn_engine.runtime.batch import PackedBatch, Span
from kvarn_engine.runtime.kv_store import KvStore


class CpuAttention:
    """Holds one compiled kernel; the step thread is its only caller."""

    def __init__(self, store: KvStore) -> None:
        self._kernel: Any = None
        if store.tensor.dtype in (torch.bfloat16, torch.float32):
            self._kernel = compiled_decode()
            self._words = store.words()
            self._shift = np.uint32(16 if store.tensor.dtype == torch.bfloat16 else 0)
            warm_up(self._kernel, self._words, self._shift)

    def attend(self, call: AttentionCall, batch: PackedBatch, store: KvStore) -> torch.Tensor:
        out = torch.empty_like(call.query)
        chunks = batch.chunks
        if batch.decodes is not None and (self._kernel is None or call.softcap):
            chunks = (*chunks, *decode_spans(batch))
        elif batch.decodes is not None:
            self._decode(call, batch, out)
        for span in chunks:
            rows = slice(span.row, span.row + span.length)
            out[rows] = attend_span(call, span, store) if call.softcap else sdpa_span(call, span, store)
        return out

    def _decode(self, call: AttentionCall, batch: PackedBatch, out: torch.Tensor) -> None:
        group = batch.decodes
        assert group is not None
        query = call.query[group.rows].float().contiguous().numpy()
        result = np.empty_like(query)
        scale, window = np.float32(call.scale), np.int64(call.window)
        self._kernel(
            query, self._words, self._shift, call.layer, group.block_tables, group.contexts, scale, window, result
        )
        out[group.rows] = torch.from_numpy(result).to(out.dtype)


def warm_up(kernel: Any, words: npt.NDArray[Any], shift: np.uint32) -> None:
    """Compile, or read what was compiled before, for this type of words: a batch of none, so that no request waits."""
    query = np.empty((0, words.shape[4], words.shape[5]), dtype=np.float32)
    tables, contexts = np.empty((0, 0), dtype=np.int32), np.empty(0, dtype=np.int32)
    kernel(query, words, shift, 0, tables, contexts, np.float32(1), np.int64(0), np.empty_like(query))


def sdpa_span(call: AttentionCall, span: Span, store: KvStore) -> torch.Tensor:
    """One chunk. A chunk at position 0 without a window needs no mask, which is the fast path of SDPA."""
    query = call.query[span.row : span.row + span.length].transpose(0, 1)
    keys, values = gather(store.keys(call.layer), span), gather(store.values(call.layer), span)
    plain = span.start == 0 and not call.window
    mask = None if plain else visible(span, call.window, query.device)
    out = F.scaled_dot_product_attention(
        query.unsqueeze(0),
        keys.unsqueeze(0),
        values.unsqueeze(0),
        attn_mask=mask,
        is_causal=plain,
        scale=call.scale,
        enable_gqa=True,
    )
    return out[0].transpose(0, 1)
