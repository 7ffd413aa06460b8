"""CUDA attention: decodes of a step in one batched SDPA call over gathered blocks, chunks one by one.

Decode gathers K and V of all sequences, padded to the longest, and masks the padding. This moves each K and V twice; a
kernel with block tables would move it once.
"""

import torch
import torch.nn.functional as F

from kvarn_engine.runtime.attention import AttentionCall
from kvarn_engine.runtime.backends.cpu import sdpa_span
from kvarn_engine.runtime.backends.reference import attend_span, decode_spans
from kvarn_engine.runtime.batch import DecodeGroup, PackedBatch
from kvarn_engine.runtime.kv_store import KvStore


class CudaAttention:
    """Plain torch operations, so it also computes on a CPU, where tests compare it with the reference."""

    def attend(self, call: AttentionCall, batch: PackedBatch, store: KvStore) -> torch.Tensor:
        out = torch.empty_like(call.query)
        chunks = batch.chunks
        if batch.decodes is not None and call.softcap:
            chunks = (*chunks, *decode_spans(batch))
        elif batch.decodes is not None:
            out[batch.decodes.rows] = _decode(call, batch.decodes, store)
        for span in chunks:
            rows = slice(span.row, span.row + span.length)
            out[rows] = attend_span(call, span, store) if call.softcap else sdpa_span(call, span, store)
        return out


def _decode(call: AttentionCall, group: DecodeGroup, store: KvStore) -> torch.Tensor:
    device = call.query.device
    tables = torch.from_numpy(group.block_tables).to(device, torch.int64)
    contexts = torch.from_numpy(group.contexts).to(device, torch.int64).unsqueeze(1)
    keys = store.keys(call.layer)[tables].flatten(1, 2).transpose(1, 2)
    values = store.values(call.layer)[tables].flatten(1, 2).transpose(1, 2)
    place = torch.arange(keys.shape[2], device=device).unsqueeze(0)
    mask = place < contexts
    if call.window:
        mask &= place >= contexts - call.window
    out = F.scaled_dot_product_attention(
        call.query[group.rows].unsqueeze(2),
        keys,
        values,
        attn_mask=mask[:, None, None],
        scale=call.scale,
        enable_gqa=True,
    )
    return out.squeeze(2)
