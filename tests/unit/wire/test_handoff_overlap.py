"""Both ends of a hand-off work on one frame while another one is on its way."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

from kvarn_decode.importer import DrawnTokens, Importer
from kvarn_engine.core.ids import BlockHash, BlockIndex, TokenId, TransferId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.serving.protocol import BlocksReady, Prefill, PrefillEvent, PrefillFinished
from kvarn_engine.wire.convert import token_to_proto
from kvarn_engine.wire.frames import BlocksFrame, Transfer, decode_frame, encode_control
from kvarn_engine.wire.prefill_rpc import RunCall
from kvarn_prefill.exporter import Exporter
from kvarn_proto.v1 import prefill_pb2

from tests.integration.worker_pair import eventually

LAYOUT = KvLayout("r", "float32", num_layers=32, num_kv_heads=8, head_dim=128, block_size=16)
TRANSFER = Transfer(TransferId(bytes(16)), 1, LAYOUT)
BLOCKS = 3


class CountingEngine:
    def __init__(self) -> None:
        self.read: list[int] = []

    def read_block(self, index: int) -> memoryview:
        self.read.append(index)
        return memoryview(bytes([index]) * LAYOUT.block_bytes)


class ThreeBlocks:
    cached_tokens = 0

    async def events(self) -> AsyncIterator[PrefillEvent]:
        indexes = tuple(BlockIndex(number) for number in range(BLOCKS))
        yield BlocksReady(5, indexes, tuple(BlockHash(bytes([number]) * 16) for number in indexes))
        yield PrefillFinished(BLOCKS, 0.0)


async def test_the_next_frame_is_built_while_one_is_sent() -> None:
    assert TRANSFER.blocks_per_frame == 1
    engine, sent, gate = CountingEngine(), list[bytes](), asyncio.Event()

    async def send(frame: bytes) -> None:
        if len(frame) > LAYOUT.block_bytes:
            await gate.wait()
            sent.append(frame)

    exporter = Exporter(engine, TRANSFER, send, heartbeat_s=60.0)
    running = asyncio.create_task(exporter.run(cast(Prefill, ThreeBlocks())))
    await eventually(lambda: engine.read == [0, 1])
    assert sent == []
    gate.set()
    await running
    frames = [decode_frame(frame, TRANSFER) for frame in sent]
    assert [frame.first for frame in frames if isinstance(frame, BlocksFrame)] == [5, 6, 7]
    assert exporter.report.finished


class NoBlocks:
    def write_block(self, position: int, block_hash: BlockHash, payload: memoryview) -> None:
        raise AssertionError(f"block {position} of a stream without blocks")


class GatedCall:
    """A stream whose frames are all there already."""

    def __init__(self, *events: prefill_pb2.PrefillEvent) -> None:
        self.frames = [encode_control(TRANSFER, event) for event in events]
        self.reads = 0
        self.cancelled = False

    async def read(self) -> bytes:
        self.reads += 1
        if not self.frames:
            await asyncio.Event().wait()
        return self.frames.pop(0)

    def cancel(self) -> None:
        self.cancelled = True


async def test_the_next_frame_is_received_while_one_is_taken() -> None:
    token = prefill_pb2.FirstToken(choice=0, token=token_to_proto(SampledToken(TokenId(7), 0.0)))
    first = prefill_pb2.PrefillEvent(first_tokens=prefill_pb2.FirstTokens(tokens=[token]))
    call = GatedCall(first, prefill_pb2.PrefillEvent(done=prefill_pb2.PrefillDone()))
    gate, taken = asyncio.Event(), list[int]()

    async def on_first_tokens(tokens: DrawnTokens) -> None:
        await gate.wait()
        taken.extend(token.token_id for _, token in tokens)

    importer = Importer(NoBlocks(), TRANSFER, on_first_tokens, idle_timeout_s=60.0)
    running = asyncio.create_task(importer.run(cast(RunCall, call)))
    await eventually(lambda: call.reads == 2)
    assert taken == []
    gate.set()
    await running
    assert (taken, importer.report.done, call.cancelled) == ([7], True, True)
