"""One attempt to pull a request's KV from one prefill peer: frames in, checked blocks in this worker's pool.

Called by the hand-off, once for each peer. It does not know that there are other peers, nor what happens after.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from kvarn_engine.core.errors import HandoffError
from kvarn_engine.core.ids import BlockHash
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.wire.convert import token_from_proto
from kvarn_engine.wire.frames import BlocksFrame, ControlFrame, Transfer, decode_frame
from kvarn_engine.wire.prefill_rpc import RunCall
from kvarn_proto.v1 import prefill_pb2

INLINE_BYTES = 64 * 1024
"""Checksums of larger frames take long enough to be worth another thread; the event loop serves other requests."""

DrawnTokens = tuple[tuple[int, SampledToken], ...]
OnFirstTokens = Callable[[DrawnTokens], Awaitable[None]]


class BlockSink(Protocol):
    """The one thing of a generation that is used here. Raises HandoffError for a block that it does not want."""

    def write_block(self, position: int, block_hash: BlockHash, payload: memoryview) -> None: ...


@dataclass(slots=True)
class ImportReport:
    """Filled while frames come in; true also when the attempt breaks off."""

    cached_tokens: int = 0
    received_bytes: int = 0
    first_tokens_at: float | None = None
    last_block_at: float | None = None
    done: bool = False


class Importer:
    def __init__(
        self, blocks: BlockSink, transfer: Transfer, on_first_tokens: OnFirstTokens, idle_timeout_s: float
    ) -> None:
        self._blocks = blocks
        self._transfer = transfer
        self._on_first_tokens = on_first_tokens
        self._idle_timeout_s = idle_timeout_s
        self.report = ImportReport()

    async def run(self, call: RunCall) -> None:
        """Read to the done frame. Raises HandoffError when the peer breaks it, AioRpcError when the peer is lost.

        While one frame is checked and written, the next one is received.
        """
        reading = _start_reading(call)
        try:
            while not self.report.done:
                buffer = await self._received(reading)
                reading = _start_reading(call)
                await self._take(buffer)
        finally:
            call.cancel()
            reading.cancel()
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # the peer may have gone after its done frame, which is no longer of interest

    async def _received(self, reading: asyncio.Task[object]) -> bytes:
        if not (await asyncio.wait({reading}, timeout=self._idle_timeout_s))[0]:
            raise HandoffError(f"no frame for {self._idle_timeout_s:g} s")
        buffer = reading.result()
        if not isinstance(buffer, bytes):
            raise HandoffError("stream ended before the done frame")
        return buffer

    async def _take(self, buffer: bytes) -> None:
        if len(buffer) < INLINE_BYTES:
            frame = decode_frame(buffer, self._transfer)
        else:
            frame = await asyncio.to_thread(decode_frame, buffer, self._transfer)
        if isinstance(frame, BlocksFrame):
            self._write(frame, len(buffer))
        elif isinstance(frame, ControlFrame):
            await self._take_control(frame.event)

    def _write(self, frame: BlocksFrame, frame_bytes: int) -> None:
        for offset, block in enumerate(frame.blocks):
            self._blocks.write_block(frame.first + offset, block.block_hash, block.payload)
        self.report.received_bytes += frame_bytes
        self.report.last_block_at = time.perf_counter()

    async def _take_control(self, event: prefill_pb2.PrefillEvent) -> None:
        """An event without content is the peer's heartbeat."""
        match event.WhichOneof("event"):
            case "accepted":
                self.report.cached_tokens = event.accepted.cached_tokens
            case "first_tokens":
                tokens = tuple((entry.choice, token_from_proto(entry.token)) for entry in event.first_tokens.tokens)
                self.report.first_tokens_at = time.perf_counter()
                await self._on_first_tokens(tokens)
            case "done":
                self.report.done = True


def _start_reading(call: RunCall) -> asyncio.Task[object]:
    return asyncio.create_task(call.read(), name="import/read-frame")
