"""The Engine protocol: what worker services may ask of an engine. No torch types, no gRPC types.

A request lives in one `Generation`. Leaving its `async with` block frees every block it holds, whatever state it is in.

    prefill worker:  open_prefill -> events (CachedBlocks/BlocksReady, FirstTokens, PrefillFinished) -> close
    decode worker:   open_generation -> [allocate_import -> write_block* ...] -> start(first_tokens) -> events -> close
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from kvarn_engine.core.ids import BlockHash, BlockIndex, RequestId, TokenId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams


@dataclass(frozen=True, slots=True)
class ChoiceSpec:
    index: int
    output_tokens: tuple[TokenId, ...] = ()
    """Tokens already sent to the client, when a stream is resumed on this worker."""


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """One request as the engine sees it."""

    request_id: RequestId
    prompt_tokens: tuple[TokenId, ...]
    sampling: SamplingParams
    choices: tuple[ChoiceSpec, ...]
    root_hash: BlockHash
    priority: int = 0
    """Lower is served earlier."""


# ---- events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokensEvent:
    choice: int
    tokens: tuple[SampledToken, ...]


@dataclass(frozen=True, slots=True)
class FinishedEvent:
    choice: int
    reason: FinishReason


GenerationEvent = TokensEvent | FinishedEvent


@dataclass(frozen=True, slots=True)
class BlocksReady:
    """Blocks `[first, first + len(indexes))` of the sequence are complete and stay pinned until the prefill closes.

    `hashes[i]` is the chain hash of block `first + i`; the partial last block's is the hash over its tokens alone.
    """

    first: int
    indexes: tuple[BlockIndex, ...]
    hashes: tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class FirstTokens:
    """One sampled token for each choice, sent ahead of the last chunk's blocks."""

    tokens: tuple[tuple[int, SampledToken], ...]


@dataclass(frozen=True, slots=True)
class PrefillFinished:
    num_blocks: int
    compute_s: float


PrefillEvent = BlocksReady | FirstTokens | PrefillFinished


# ---- handles ------------------------------------------------------------------------------------------------------


class Prefill(Protocol):
    """One prefill with export. Its blocks are pinned until the `async with` block is left."""

    cached_tokens: int
    """Found in this worker's prefix cache."""

    def events(self) -> AsyncIterator[PrefillEvent]: ...


class Generation(Protocol):
    """One request on a decode worker, from admission to its last token."""

    cached_blocks: int
    """Full prompt blocks found in this worker's prefix cache, pinned from now on."""

    received_blocks: int
    """`cached_blocks` and the imported blocks that follow them without a gap."""

    preemptions: int

    async def allocate_import(self, num_blocks: int) -> None:
        """Make room for blocks up to `num_blocks` of the whole sequence. Waits its turn; raises Overloaded when that
        can never be."""
        ...

    def write_block(self, position: int, block_hash: BlockHash, payload: memoryview) -> None:
        """Check that `block_hash` is what this sequence needs at `position`, then fill it. Raises HandoffError."""
        ...

    async def start(self, first_tokens: Sequence[tuple[int, SampledToken]] = ()) -> None:
        """Join the running batch. The engine computes whatever was not received, from `received_blocks` on, and draws
        the first tokens itself unless they are given. Given ones are final and NOT repeated as TokensEvent; a choice
        that its first token already ends is reported by a FinishedEvent. Raises HandoffError when some are missing."""
        ...

    def events(self) -> AsyncIterator[GenerationEvent]:
        """Ends after one FinishedEvent for each choice. Raises EngineFailure when the step loop failed,
        Draining when the engine ends first."""
        ...

    def stop_choice(self, choice: int) -> None:
        """End one choice; its FinishedEvent has reason ABORTED."""
        ...


# ---- what routers hear --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BlockDelta:
    """What changed in the prefix cache. `sequence` grows by one with every delta."""

    sequence: int
    stored: tuple[BlockHash, ...]
    removed: tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    sequence: int
    hashes: tuple[BlockHash, ...]


@dataclass(frozen=True, slots=True)
class LoadReport:
    running: int
    waiting: int
    blocks_total: int
    blocks_in_use: int
    blocks_cached: int
    queued_prefill_tokens: int
    prefill_tokens_per_s: float
    decode_step_s: float


class CacheFeed(Protocol):
    """A subscription to the prefix cache: the snapshot first, then every delta after it, without a gap."""

    snapshot: CacheSnapshot

    def deltas(self) -> AsyncIterator[BlockDelta]: ...


class Engine(Protocol):
    """Life cycle: `start` returns when the step loop accepts work; `stop` fails what is in flight, joins the thread."""

    @property
    def layout(self) -> KvLayout: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def is_defective(self) -> bool:
        """The step loop is lost: every request fails until the process is started anew."""
        ...

    def busy_s(self) -> float:
        """How long the step loop has been at one step, 0 while it waits for work. Any thread may ask."""
        ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def open_prefill(
        self, spec: RequestSpec, num_prompt_tokens: int, have_blocks: int
    ) -> AbstractAsyncContextManager[Prefill]:
        """`spec.prompt_tokens` is everything to compute; the first `num_prompt_tokens` of it are the prompt, the rest
        output of a resumed stream. Raises InvalidRequest, Overloaded."""
        ...

    def open_generation(self, spec: RequestSpec) -> AbstractAsyncContextManager[Generation]:
        """Match the prefix cache and reserve quota. Raises InvalidRequest, Overloaded."""
        ...

    def read_block(self, index: BlockIndex) -> memoryview: ...

    def watch_cache(self) -> AbstractAsyncContextManager[CacheFeed]: ...

    def load(self) -> LoadReport: ...

    def check_integrity(self) -> None:
        """Raise AssertionError when a block is lost, doubly owned, or held by nobody."""
        ...
