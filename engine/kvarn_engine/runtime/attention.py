"""Our attention inside Hugging Face models: registration, K and V into the store, and the seam to the backends.

The runner passes a `StepAttention` to `model(...)` as the keyword `kvarn_step`; transformers hands it on to every
attention call. The function registered here is stateless: everything of a step is in that keyword.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kvarn_engine.runtime.batch import PackedBatch
from kvarn_engine.runtime.kv_store import KvStore

ATTENTION_NAME = "kvarn"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One layer's attention over the packed row. K and V of the row are in the store already."""

    layer: int
    query: torch.Tensor
    """`[T][query_head][dim]`"""

    scale: float
    window: int
    """Tokens that a query sees, itself included; 0 is all of them."""

    softcap: float
    """0 is off."""


class AttentionBackend(Protocol):
    def attend(self, call: AttentionCall, batch: PackedBatch, store: KvStore) -> torch.Tensor:
        """Return `[T][query_head][dim]`."""
        ...


class StepHook(Protocol):
    """What `kvarn_step` must be: a step, or the probe that inspects a model at load."""

    def on_attention(
        self, call: AttentionCall, key: torch.Tensor, value: torch.Tensor, extras: dict[str, object]
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class StepAttention:
    batch: PackedBatch
    store: KvStore
    backend: AttentionBackend

    def on_attention(
        self, call: AttentionCall, key: torch.Tensor, value: torch.Tensor, extras: dict[str, object]
    ) -> torch.Tensor:
        place = (self.batch.blocks, self.batch.slots)
        self.store.keys(call.layer).index_put_(place, key)
        self.store.values(call.layer).index_put_(place, value)
        return self.backend.attend(call, self.batch, self.store)


def register_attention() -> None:
    """Make `attn_implementation="kvarn"` known to transformers. No mask function goes with it, so no mask is built."""
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION_NAME, _attention)


def _attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    kvarn_step: StepHook,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **extras: Any,
) -> tuple[torch.Tensor, None]:
    """Called by transformers with `[1][head][T][dim]` tensors; answers `[1][T][head][dim]`."""
    call = AttentionCall(
        layer=int(module.layer_idx),  # type: ignore[arg-type]
        query=query[0].transpose(0, 1),
        scale=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window or 0,
        softcap=softcap or 0.0,
    )
    out = kvarn_step.on_attention(call, key[0].transpose(0, 1), value[0].transpose(0, 1), extras)
    return out.unsqueeze(0), None
