"""The sending process of `handoff`: `python -m kvarn_bench.sender tcp|bytes|frames`. The receiver says how much.

tcp: a plain socket. bytes: one prepared frame again and again through `Prefill.Run`. frames: the prefill
worker's own exporter, over blocks in memory.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc.aio
from kvarn_engine.core.ids import BlockHash, BlockIndex, TransferId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.serving.protocol import BlocksReady, PrefillEvent, PrefillFinished
from kvarn_engine.wire.channels import ChannelSettings, server_options
from kvarn_engine.wire.frames import TARGET_FRAME_BYTES, BlockPayload, Transfer, encode_blocks
from kvarn_engine.wire.prefill_rpc import RunContext, add_prefill_servicer
from kvarn_prefill.exporter import Exporter
from kvarn_proto.v1 import prefill_pb2

BENCH_LAYOUT = KvLayout(
    model_revision="bench", dtype="bfloat16", num_layers=30, num_kv_heads=3, head_dim=64, block_size=16
)
"""Blocks as large as those of SmolLM2-135M."""

STORE_BLOCKS = 256
"""About 94 MB of blocks on each side, well over a CPU cache: sent and received round and round."""

CHUNK_BLOCKS = 32
"""Blocks of one step of 512 tokens."""

HEARTBEAT_S = 60.0

SIZE_BYTES = 8
"""A TCP receiver asks for this many bytes, as a big-endian number of this width."""


def transfer_of(transfer_id: bytes, generation: int) -> Transfer:
    return Transfer(TransferId(transfer_id), generation, BENCH_LAYOUT)


class BlockStore:
    """Where blocks lie: `BlockSource` of the sending side, `BlockSink` of the receiving one."""

    def __init__(self) -> None:
        self._memory = memoryview(bytearray(BENCH_LAYOUT.block_bytes * STORE_BLOCKS))

    def read_block(self, index: BlockIndex) -> memoryview:
        return self._block(index)

    def write_block(self, position: int, block_hash: BlockHash, payload: memoryview) -> None:
        self._block(position)[:] = payload

    def _block(self, number: int) -> memoryview:
        start = number % STORE_BLOCKS * BENCH_LAYOUT.block_bytes
        return self._memory[start : start + BENCH_LAYOUT.block_bytes]


@dataclass(slots=True)
class StoredPrefill:
    """A prefill that has been computed already, in chunks of the usual size."""

    num_blocks: int
    cached_tokens: int = 0

    async def events(self) -> AsyncIterator[PrefillEvent]:
        for first in range(0, self.num_blocks, CHUNK_BLOCKS):
            numbers = range(first, min(first + CHUNK_BLOCKS, self.num_blocks))
            hashes = tuple(BlockHash(number.to_bytes(16, "big")) for number in numbers)
            yield BlocksReady(first, tuple(map(BlockIndex, numbers)), hashes)
        yield PrefillFinished(self.num_blocks, 0.0)


class FrameSender:
    """A prefill worker without an engine: `num_prompt_tokens` tokens' blocks."""

    def __init__(self, prepared: bool) -> None:
        self._prepared = prepared
        self._store = BlockStore()

    async def Run(self, request: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        transfer = transfer_of(request.transfer_id, request.generation)
        count = request.num_prompt_tokens // BENCH_LAYOUT.block_size
        if not self._prepared:
            await Exporter(self._store, transfer, context.write, HEARTBEAT_S).run(StoredPrefill(count))
            return
        step = transfer.blocks_per_frame
        block = BlockPayload(BlockHash(bytes(16)), self._store.read_block(BlockIndex(0)))
        frame = encode_blocks(transfer, 0, [block] * step)
        for _ in range(0, count, step):
            await context.write(frame)


async def serve_frames(prepared: bool) -> None:
    server = grpc.aio.server(options=server_options(ChannelSettings()))
    add_prefill_servicer(FrameSender(prepared), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready address=127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


def serve_tcp() -> None:
    buffer = memoryview(bytearray(TARGET_FRAME_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"ready address=127.0.0.1:{listener.getsockname()[1]}", flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                _send_asked(connection, buffer)


def _send_asked(connection: socket.socket, buffer: memoryview) -> None:
    """One connection may ask several times; an empty read is its end."""
    while asked := connection.recv(SIZE_BYTES, socket.MSG_WAITALL):
        left = int.from_bytes(asked, "big")
        while left:
            size = min(left, len(buffer))
            connection.sendall(buffer[:size])
            left -= size


def main() -> int:
    parser = argparse.ArgumentParser(prog="kvarn_bench.sender")
    parser.add_argument("mode", choices=("tcp", "bytes", "frames"))
    mode = parser.parse_args().mode
    if mode == "tcp":
        serve_tcp()
    else:
        asyncio.run(serve_frames(prepared=mode == "bytes"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
