"""Bandwidth of one stream, received in this process from a sender process: raw TCP and `Prefill.Run` side by side."""

import asyncio
import secrets
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import grpc.aio
from kvarn_decode.importer import DrawnTokens, Importer
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.frames import Transfer
from kvarn_engine.wire.prefill_rpc import run_prefill
from kvarn_proto.v1 import prefill_pb2

from kvarn_bench.children import running
from kvarn_bench.percentiles import median
from kvarn_bench.sender import BENCH_LAYOUT, SIZE_BYTES, STORE_BLOCKS, BlockStore, transfer_of

_START_S = 30.0
_IDLE_S = 60.0


@dataclass(frozen=True, slots=True)
class StreamFigure:
    """Medians over the rounds; the rounds of all streams alternate, so that noise hits them alike."""

    stream: str
    gigabytes_per_s: float
    share_of_tcp: float
    rounds_gigabytes_per_s: tuple[float, ...]


async def measure_streams(megabytes: int, rounds: int) -> tuple[StreamFigure, ...]:
    async with AsyncExitStack() as stack:
        tcp = await stack.enter_async_context(running("kvarn_bench.sender", ("tcp",), _START_S))
        prepared = await stack.enter_async_context(running("kvarn_bench.sender", ("bytes",), _START_S))
        built = await stack.enter_async_context(running("kvarn_bench.sender", ("frames",), _START_S))
        channels = [await stack.enter_async_context(open_channel(address)) for address in (prepared, built)]
        blocks = max(1, megabytes * 1_000_000 // BENCH_LAYOUT.block_bytes)
        store = BlockStore()
        rates: dict[str, list[float]] = {"raw TCP socket": [], "gRPC, bytes only": [], "gRPC, hand-off frames": []}
        for _ in range(rounds + 1):
            rates["raw TCP socket"].append(await asyncio.to_thread(_tcp_round, tcp, blocks * BENCH_LAYOUT.block_bytes))
            rates["gRPC, bytes only"].append(await _bytes_round(channels[0], blocks))
            rates["gRPC, hand-off frames"].append(await _frames_round(channels[1], blocks, store))
    return _figures({name: values[1:] for name, values in rates.items()})  # the first round only warms up


def _figures(rates: dict[str, list[float]]) -> tuple[StreamFigure, ...]:
    ceiling = median(rates["raw TCP socket"])
    return tuple(
        StreamFigure(name, median(values), median(values) / ceiling, tuple(values)) for name, values in rates.items()
    )


async def _bytes_round(channel: grpc.aio.Channel, blocks: int) -> float:
    """What gRPC itself costs."""
    began = time.perf_counter()
    call = run_prefill(channel, _request(transfer_of(secrets.token_bytes(16), 1), blocks), "bench")
    received = 0
    while isinstance(buffer := await call.read(), bytes):
        received += len(buffer)
    return received / (time.perf_counter() - began) / 1e9


async def _frames_round(channel: grpc.aio.Channel, blocks: int, store: BlockStore) -> float:
    """Through the decode worker's own importer: checked, then copied to their place."""
    transfer = transfer_of(secrets.token_bytes(16), 1)
    importer = Importer(store, transfer, _no_first_tokens, _IDLE_S)
    began = time.perf_counter()
    await importer.run(run_prefill(channel, _request(transfer, blocks), "bench"))
    return importer.report.received_bytes / (time.perf_counter() - began) / 1e9


def _request(transfer: Transfer, blocks: int) -> prefill_pb2.PrefillRequest:
    return prefill_pb2.PrefillRequest(
        request_id="bench", transfer_id=transfer.transfer_id, generation=transfer.generation,
        num_prompt_tokens=blocks * BENCH_LAYOUT.block_size,
    )  # fmt: skip


async def _no_first_tokens(tokens: DrawnTokens) -> None:
    """The sender has no engine to draw any."""


def _tcp_round(address: str, size: int) -> float:
    host, _, port = address.rpartition(":")
    target = memoryview(bytearray(BENCH_LAYOUT.block_bytes * STORE_BLOCKS))
    with socket.create_connection((host, int(port))) as connection:
        began = time.perf_counter()
        connection.sendall(size.to_bytes(SIZE_BYTES, "big"))
        left = size
        position = 0
        while left:
            count = connection.recv_into(target[position:], min(left, len(target) - position))
            if count == 0:
                raise ConnectionError("sender closed the socket early")
            position = (position + count) % len(target)
            left -= count
        return size / (time.perf_counter() - began) / 1e9
