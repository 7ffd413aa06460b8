"""The sending process of `handoff`: `python -m kvarn_bench.sender tcp|bytes|frames`. The receiver says how much.

tcp: a plain socket. bytes: one prepared frame again and again through `Prefill.Run`. frames: each frame is built from
blocks with its checksums, as the exporter does.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Iterator

import grpc.aio
from kvarn_engine.core.ids import BlockHash, TransferId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.wire.channels import ChannelSettings, server_options
from kvarn_engine.wire.frames import TARGET_FRAME_BYTES, BlockPayload, Transfer, encode_blocks
from kvarn_engine.wire.prefill_rpc import RunContext, add_prefill_servicer
from kvarn_proto.v1 import prefill_pb2

BENCH_LAYOUT = KvLayout(
    model_revision="bench", dtype="bfloat16", num_layers=30, num_kv_heads=3, head_dim=64, block_size=16
)
"""Blocks as large as those of SmolLM2-135M."""

STORE_BLOCKS = 256
"""About 94 MB of blocks on each side, well over a CPU cache: sent and received round and round."""

SIZE_BYTES = 8
"""A TCP receiver asks for this many bytes, as a big-endian number of this width."""


def transfer_of(transfer_id: bytes, generation: int) -> Transfer:
    return Transfer(TransferId(transfer_id), generation, BENCH_LAYOUT)


class FrameSender:
    """A prefill worker without an engine: `num_prompt_tokens` tokens' blocks."""

    def __init__(self, prepared: bool) -> None:
        self._prepared = prepared
        self._store = memoryview(bytearray(BENCH_LAYOUT.block_bytes * STORE_BLOCKS))

    async def Run(self, request: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        transfer = transfer_of(request.transfer_id, request.generation)
        count = request.num_prompt_tokens // BENCH_LAYOUT.block_size
        step = transfer.blocks_per_frame
        first_frame = self._frame(transfer, 0, step)
        for first in range(0, count, step):
            await context.write(first_frame if self._prepared else self._frame(transfer, first, step))

    def _frame(self, transfer: Transfer, first: int, count: int) -> bytes:
        return encode_blocks(transfer, first, list(self._blocks(first, count)))

    def _blocks(self, first: int, count: int) -> Iterator[BlockPayload]:
        size = BENCH_LAYOUT.block_bytes
        for number in range(first, first + count):
            start = number % STORE_BLOCKS * size
            yield BlockPayload(BlockHash(number.to_bytes(16, "big")), self._store[start : start + size])


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
