"""What `open_prefill` and `open_generation` give to a service. Everything here lives on the event loop.

Methods named `on_*` are called by the step thread's flights, through the outbox.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from kvarn_engine.core.errors import EngineError, HandoffError
from kvarn_engine.core.hashing import block_hashes, partial_hash
from kvarn_engine.core.ids import BlockHash, BlockIndex
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.serving.protocol import (
    FinishedEvent,
    GenerationEvent,
    PrefillEvent,
    PrefillFinished,
    RequestSpec,
)


class GenerationCommands(Protocol):
    """What a generation asks of the engine. Each returns at once."""

    def received(self) -> None:
        """`received_blocks` has grown."""
        ...

    def start(self, first_tokens: Sequence[tuple[int, SampledToken]]) -> None: ...

    def stop_choice(self, choice: int) -> None: ...


class PrefillHandle:
    def __init__(self) -> None:
        self.cached_tokens = 0
        self._admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events: asyncio.Queue[PrefillEvent | EngineError] = asyncio.Queue()

    async def admitted(self) -> None:
        await self._admitted

    def events(self) -> AsyncIterator[PrefillEvent]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[PrefillEvent]:
        while True:
            event = await self._events.get()
            if isinstance(event, EngineError):
                raise event
            yield event
            if isinstance(event, PrefillFinished):
                return

    # ---- from the step thread ----

    def on_admitted(self, cached_tokens: int) -> None:
        self.cached_tokens = cached_tokens
        if not self._admitted.done():
            self._admitted.set_result(None)

    def on_event(self, event: PrefillEvent) -> None:
        self._events.put_nowait(event)

    def on_failed(self, error: EngineError) -> None:
        if not _fail(self._admitted, error):
            self._events.put_nowait(error)


class GenerationHandle:
    def __init__(self, spec: RequestSpec, block_size: int, write: Callable[[BlockIndex, memoryview], None]) -> None:
        self.cached_blocks = 0
        self.received_blocks = 0
        self.preemptions = 0
        self._write = write
        self._hashes = _chain(spec, block_size)
        self._table: tuple[BlockIndex, ...] = ()
        self._beyond: set[int] = set()
        """Positions received after a gap."""

        self._is_importing = False
        self._commands: GenerationCommands | None = None
        self._admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open_choices = {choice.index for choice in spec.choices}
        self._events: asyncio.Queue[GenerationEvent | EngineError] = asyncio.Queue()

    def bind(self, commands: GenerationCommands) -> None:
        self._commands = commands

    async def admitted(self) -> None:
        await self._admitted

    def close(self) -> None:
        """No block is written from here on."""
        self._is_importing = False

    # ---- Generation ----

    async def allocate_import(self, num_blocks: int) -> None:
        """Admission has made room for every prompt token already; this checks that the peer sends no more."""
        if num_blocks > len(self._table):
            raise HandoffError(f"{num_blocks} blocks announced for a sequence of {len(self._table)}")

    def write_block(self, position: int, block_hash: BlockHash, payload: memoryview) -> None:
        if not self._is_importing:
            raise HandoffError("this sequence takes no blocks")
        if not self.received_blocks <= position < len(self._hashes):
            wanted = f"{self.received_blocks} to {len(self._hashes) - 1}"
            raise HandoffError(f"block {position} is not among those wanted, {wanted}")
        if block_hash != self._hashes[position]:
            raise HandoffError(f"block {position} has another hash than this sequence needs there")
        try:
            self._write(self._table[position], payload)
        except ValueError as error:
            raise HandoffError(f"block {position} cannot be written: {error}") from error
        self._beyond.add(position)
        if position == self.received_blocks:
            while self.received_blocks in self._beyond:
                self._beyond.remove(self.received_blocks)
                self.received_blocks += 1
            self._bound.received()

    async def start(self, first_tokens: Sequence[tuple[int, SampledToken]] = ()) -> None:
        if first_tokens:
            missing = self._open_choices - {choice for choice, _ in first_tokens}
            if missing:
                raise HandoffError(f"no first token for choices {sorted(missing)}")
        self._is_importing = False
        self._bound.start(tuple(first_tokens))

    def events(self) -> AsyncIterator[GenerationEvent]:
        return self._iterate()

    def stop_choice(self, choice: int) -> None:
        self._bound.stop_choice(choice)

    # ---- from the step thread ----

    def on_admitted(self, cached_blocks: int, table: tuple[BlockIndex, ...]) -> None:
        self.cached_blocks = self.received_blocks = cached_blocks
        self._table = table
        self._is_importing = True
        if not self._admitted.done():
            self._admitted.set_result(None)

    def on_event(self, event: GenerationEvent) -> None:
        self._events.put_nowait(event)

    def on_preempted(self, preemptions: int) -> None:
        self.preemptions = preemptions

    def on_failed(self, error: EngineError) -> None:
        self._is_importing = False
        if not _fail(self._admitted, error):
            self._events.put_nowait(error)

    # ---- inside ----

    @property
    def _bound(self) -> GenerationCommands:
        assert self._commands is not None
        return self._commands

    async def _iterate(self) -> AsyncIterator[GenerationEvent]:
        while self._open_choices:
            event = await self._events.get()
            if isinstance(event, EngineError):
                raise event
            if isinstance(event, FinishedEvent):
                self._open_choices.discard(event.choice)
            yield event


def _chain(spec: RequestSpec, block_size: int) -> list[BlockHash]:
    """Hashes of every block of the sequence that imports, its partial last block's included: the prompt, followed by
    output only where every choice is resumed."""
    outputs = [choice.output_tokens for choice in spec.choices]
    tokens = spec.prompt_tokens + (outputs[0] if all(outputs) else ())
    hashes = block_hashes(spec.root_hash, tokens, block_size)
    if rest := tokens[len(hashes) * block_size :]:
        hashes.append(partial_hash(hashes[-1] if hashes else spec.root_hash, rest))
    return hashes


def _fail(admitted: asyncio.Future[None], error: EngineError) -> bool:
    """Whether the error could be given to whoever waits for admission."""
    if admitted.done():
        return False
    admitted.set_exception(error)
    return True
