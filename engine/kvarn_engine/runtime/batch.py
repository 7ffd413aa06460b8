"""From a step plan to the packed row that the model sees. Pure shape work; knows nothing of models or sampling."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from kvarn_engine.core.plan import PlanEntry, StepPlan


@dataclass(frozen=True, slots=True)
class Span:
    """One entry's place in the packed row."""

    row: int
    """First token of the entry in the packed row."""

    length: int
    start: int
    """Position of the first token in its sequence: so many tokens are in the store already."""

    block_table: torch.Tensor
    """int64, just the blocks that cover `[0, start + length)`."""

    @property
    def context(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """The entries with one query token each, for kernels that take them all at once."""

    rows: torch.Tensor
    """int64 `[n]`, places in the packed row."""

    block_tables: npt.NDArray[np.int32]
    """int32 `[n][blocks]`, padded with 0."""

    contexts: npt.NDArray[np.int32]
    """int32 `[n]`, tokens to attend to, the query's own included."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    tokens: torch.Tensor
    """int64 `[1][T]`"""

    positions: torch.Tensor
    """int64 `[1][T]`"""

    blocks: torch.Tensor
    """int64 `[T]`, where K and V of each token go."""

    slots: torch.Tensor
    """int64 `[T]`, slot within the block."""

    chunks: tuple[Span, ...]
    decodes: DecodeGroup | None
    logit_rows: torch.Tensor
    """int64, packed rows whose logits are wanted: the last token of each entry with draws, in plan order."""


def pack(plan: StepPlan, block_size: int, device: torch.device) -> PackedBatch:
    tokens: list[int] = []
    positions: list[npt.NDArray[np.int64]] = []
    blocks: list[npt.NDArray[np.int64]] = []
    spans: list[Span] = []
    logit_rows: list[int] = []
    for entry in plan.entries:
        span = _span(entry, len(tokens), block_size)
        tokens.extend(entry.tokens)
        steps = np.arange(span.start, span.context, dtype=np.int64)
        positions.append(steps)
        blocks.append(span.block_table.numpy()[steps // block_size])
        spans.append(span)
        if entry.draws:
            logit_rows.append(len(tokens) - 1)
    place = np.concatenate(positions)
    return PackedBatch(
        tokens=torch.tensor([tokens], dtype=torch.int64, device=device),
        positions=torch.from_numpy(place).to(device).unsqueeze(0),
        blocks=torch.from_numpy(np.concatenate(blocks)).to(device),
        slots=torch.from_numpy(place % block_size).to(device),
        chunks=tuple(span for span in spans if span.length > 1),
        decodes=_decode_group([span for span in spans if span.length == 1], device),
        logit_rows=torch.tensor(logit_rows, dtype=torch.int64, device=device),
    )


def _span(entry: PlanEntry, row: int, block_size: int) -> Span:
    length = len(entry.tokens)
    assert length > 0, "a plan entry computes at least one token"
    needed = -(-(entry.start + length) // block_size)
    assert len(entry.block_table) >= needed, "the block table covers the query tokens"
    table = torch.tensor(entry.block_table[:needed], dtype=torch.int64)
    return Span(row=row, length=length, start=entry.start, block_table=table)


def _decode_group(spans: list[Span], device: torch.device) -> DecodeGroup | None:
    if not spans:
        return None
    tables = np.zeros((len(spans), max(len(span.block_table) for span in spans)), dtype=np.int32)
    for line, span in enumerate(spans):
        tables[line, : len(span.block_table)] = span.block_table.numpy()
    return DecodeGroup(
        rows=torch.tensor([span.row for span in spans], dtype=torch.int64, device=device),
        block_tables=tables,
        contexts=np.array([span.context for span in spans], dtype=np.int32),
    )
