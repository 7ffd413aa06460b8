"""What one step computes, and what it returns: the seam between the pure scheduler and a model runner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvarn_engine.core.ids import BlockIndex, TokenId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import SampledToken, SamplingParams


@dataclass(frozen=True, slots=True)
class Draw:
    """One token to sample from an entry's last logits. A prefill of n choices draws n times from the same logits."""

    choice: int
    params: SamplingParams
    position: int
    """Absolute position of the drawn token in its sequence: the key of its random draw."""

    prompt_tokens: Sequence[TokenId]
    """For penalties; not copied."""

    output_tokens: Sequence[TokenId]
    """This choice's output before the draw; not copied, and changed only between steps."""


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """Query tokens `[start, start + len(tokens))` of one sequence; their K and V go into `block_table`."""

    tokens: Sequence[TokenId]
    start: int
    block_table: Sequence[BlockIndex]
    """Covers at least `[0, start + len(tokens))`. Slots at `start` and beyond are this sequence's alone."""

    draws: tuple[Draw, ...] = ()
    """Empty for a chunk that is not the last of its prefill."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy on write, done before the step's forward pass."""

    source: BlockIndex
    target: BlockIndex


@dataclass(frozen=True, slots=True)
class StepPlan:
    entries: tuple[PlanEntry, ...]
    copies: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(len(entry.tokens) for entry in self.entries)


class ModelRunner(Protocol):
    """Runs steps over one paged KV store. `execute` is called by the step-loop thread only.

    `read_block` and `write_block` may be called from other threads, for blocks that no running step touches:
    blocks being exported are complete, blocks being imported belong to no sequence yet.
    """

    @property
    def layout(self) -> KvLayout: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def max_model_len(self) -> int:
        """Tokens, prompt and output together."""
        ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_token_ids(self) -> frozenset[TokenId]: ...

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        """Return one list for each entry, one token for each of its draws."""
        ...

    def read_block(self, index: BlockIndex) -> memoryview:
        """The `layout.block_bytes` bytes of a block. Valid only while the block stays pinned."""
        ...

    def write_block(self, index: BlockIndex, payload: memoryview) -> None:
        """Fill a block. Raises ValueError when the length is not `layout.block_bytes`."""
        ...
