"""One prefill's events as hand-off frames, in the order in which the decode worker can use them.

Called by the Prefill service. It reads blocks while they are pinned; it does not know who receives them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.serving.protocol import BlocksReady, FirstTokens, Prefill, PrefillFinished
from kvarn_engine.wire.convert import token_to_proto
from kvarn_engine.wire.frames import BlockPayload, Transfer, encode_blocks, encode_control
from kvarn_proto.v1 import prefill_pb2

ItemT = TypeVar("ItemT")
Send = Callable[[bytes], Awaitable[None]]


class BlockSource(Protocol):
    """The one thing of an engine that is used here."""

    def read_block(self, index: BlockIndex) -> memoryview: ...


@dataclass(slots=True)
class ExportReport:
    """Filled while frames go out."""

    sent_bytes: int = 0
    compute_s: float = 0.0
    finished: bool = False
    """Set before the done frame goes out: whoever has read it hangs up, which this side sees as a cancelled call."""


class Exporter:
    def __init__(self, blocks: BlockSource, transfer: Transfer, send: Send, heartbeat_s: float) -> None:
        self._blocks = blocks
        self._transfer = transfer
        self._send = send
        self._heartbeat_s = heartbeat_s
        self.report = ExportReport()

    async def open(self, opening: AbstractAsyncContextManager[Prefill], stack: AsyncExitStack) -> Prefill:
        """Enter `opening` into `stack`, with heartbeats while the prefill waits for admission."""
        return await self._beating(stack.enter_async_context(opening), "export/admission")

    async def run(self, prefill: Prefill) -> None:
        """Return after the done frame; the caller then closes the prefill, which unpins its blocks."""
        accepted = prefill_pb2.PrefillAccepted(cached_tokens=prefill.cached_tokens)
        await self._send_control(prefill_pb2.PrefillEvent(accepted=accepted))
        events = prefill.events()
        while (event := await self._beating(_next(events), "export/next-event")) is not None:
            match event:
                case BlocksReady():
                    await self._send_blocks(event)
                case FirstTokens():
                    await self._send_control(_first_tokens(event))
                case PrefillFinished():
                    self.report.compute_s = event.compute_s
                    self.report.finished = True
                    done = prefill_pb2.PrefillDone(num_blocks=event.num_blocks, compute_s=event.compute_s)
                    await self._send_control(prefill_pb2.PrefillEvent(done=done))

    async def _beating(self, work: Coroutine[object, object, ItemT], name: str) -> ItemT:
        """Await `work`. Only this coroutine writes to the stream, so a heartbeat never cuts into a frame."""
        task = asyncio.create_task(work, name=name)
        try:
            while not (await asyncio.wait({task}, timeout=self._heartbeat_s))[0]:
                await self._send_control(prefill_pb2.PrefillEvent())
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _send_control(self, event: prefill_pb2.PrefillEvent) -> None:
        await self._send(encode_control(self._transfer, event))

    async def _send_blocks(self, ready: BlocksReady) -> None:
        """While one frame is on its way, the next one is built."""
        step = self._transfer.blocks_per_frame
        building = self._build(ready, 0)
        try:
            for offset in range(0, len(ready.indexes), step):
                frame = await building
                if offset + step < len(ready.indexes):
                    building = self._build(ready, offset + step)
                self.report.sent_bytes += len(frame)
                await self._send(frame)
        finally:
            # A thread that still builds reads blocks which may be in other use by then; nobody gets that frame.
            building.cancel()

    def _build(self, ready: BlocksReady, offset: int) -> asyncio.Task[bytes]:
        """Copies and checksums take milliseconds: off the event loop, which other requests share."""
        return asyncio.create_task(asyncio.to_thread(self._frame, ready, offset), name="export/build-frame")

    def _frame(self, ready: BlocksReady, offset: int) -> bytes:
        """Runs on another thread; the blocks are complete and pinned, so no step touches them."""
        span = slice(offset, offset + self._transfer.blocks_per_frame)
        payloads = map(self._blocks.read_block, ready.indexes[span])
        blocks = [BlockPayload(digest, payload) for digest, payload in zip(ready.hashes[span], payloads, strict=True)]
        return encode_blocks(self._transfer, ready.first + offset, blocks)


def _first_tokens(event: FirstTokens) -> prefill_pb2.PrefillEvent:
    tokens = [prefill_pb2.FirstToken(choice=choice, token=token_to_proto(token)) for choice, token in event.tokens]
    return prefill_pb2.PrefillEvent(first_tokens=prefill_pb2.FirstTokens(tokens=tokens))


async def _next(items: AsyncIterator[ItemT]) -> ItemT | None:
    """None at the end: a task cannot end with StopAsyncIteration."""
    return await anext(items, None)
