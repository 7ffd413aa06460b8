"""Slow attention written for reading: the oracle of the other backends' tests, and the path for softcapped models."""

import torch

from kvarn_engine.runtime.attention import AttentionCall
from kvarn_engine.runtime.batch import PackedBatch, Span
from kvarn_engine.runtime.kv_store import KvStore


class ReferenceAttention:
    def attend(self, call: AttentionCall, batch: PackedBatch, store: KvStore) -> torch.Tensor:
        out = torch.empty_like(call.query)
        for span in (*batch.chunks, *decode_spans(batch)):
            rows = slice(span.row, span.row + span.length)
            out[rows] = attend_span(call, span, store)
        return out


def decode_spans(batch: PackedBatch) -> list[Span]:
    group = batch.decodes
    if group is None:
        return []
    return [
        Span(row=int(row), length=1, start=int(context) - 1, block_table=torch.from_numpy(table).to(torch.int64))
        for row, context, table in zip(group.rows.tolist(), group.contexts, group.block_tables, strict=True)
    ]


def gather(layer_view: torch.Tensor, span: Span) -> torch.Tensor:
    """K or V of `[0, context)`, `[kv_head][context][dim]`."""
    rows = layer_view.index_select(0, span.block_table.to(layer_view.device)).flatten(0, 1)
    return rows[: span.context].transpose(0, 1)


def visible(span: Span, window: int, device: torch.device) -> torch.Tensor:
    """`[query][context]`, True where the query sees the key: causal, and within the window when there is one."""
    query = torch.arange(span.start, span.context, device=device).unsqueeze(1)
    key = torch.arange(span.context, device=device).unsqueeze(0)
    mask = key <= query
    return mask & (key > query - window) if window else mask


def attend_span(call: AttentionCall, span: Span, store: KvStore) -> torch.Tensor:
    query = call.query[span.row : span.row + span.length].transpose(0, 1)
    keys, values = gather(store.keys(call.layer), span), gather(store.values(call.layer), span)
    group = query.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(group, 0), values.repeat_interleave(group, 0)
    scores = (query @ keys.transpose(1, 2)).float() * call.scale
    if call.softcap:
        scores = torch.tanh(scores / call.softcap) * call.softcap
    scores = scores.masked_fill(~visible(span, call.window, scores.device), float("-inf"))
    weights = torch.softmax(scores, dim=-1).to(values.dtype)
    return (weights @ values).transpose(0, 1)
