"""How much of a request's time to first token its hand-off adds, by prompt length, over two worker processes.

The decode worker's closing event says how long the hand-off took and how long blocks landed after the first token.
"""

import asyncio
import random
import secrets
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.convert import sampling_to_proto
from kvarn_proto.v1 import common_pb2, decode_pb2, decode_pb2_grpc, worker_pb2, worker_pb2_grpc

from kvarn_bench.children import running
from kvarn_bench.percentiles import median

_START_S = 180.0
_CALL_S = 300.0
_OUTPUT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Flags of both workers."""

    engine: str
    model: str
    threads: int

    def flags(self, worker_id: str) -> tuple[str, ...]:
        common = ("--port", "0", "--engine", self.engine, "--threads", str(self.threads), "--worker-id", worker_id)
        return (*common, "--model", self.model) if self.model else common


@dataclass(frozen=True, slots=True)
class ExposureFigure:
    """Medians over the repeats."""

    prompt_tokens: int
    ttft_s: float
    handoff_s: float
    exposed_s: float
    exposed_share_of_ttft: float
    handoff_bytes: int


@dataclass(frozen=True, slots=True)
class _Sample:
    ttft_s: float
    done: decode_pb2.GenerateDone


async def measure_exposure(workers: WorkerOptions, lengths: Sequence[int], repeats: int) -> tuple[ExposureFigure, ...]:
    async with AsyncExitStack() as stack:
        prefill = await stack.enter_async_context(running("kvarn_prefill", workers.flags("prefill-0"), _START_S))
        flags = (*workers.flags("decode-0"), "--local-prefill-max-tokens", "0")
        decode = await stack.enter_async_context(running("kvarn_decode", flags, _START_S))
        prefill_channel = await stack.enter_async_context(open_channel(prefill))
        decode_channel = await stack.enter_async_context(open_channel(decode))
        worker = worker_pb2_grpc.WorkerStub(prefill_channel)  # type: ignore[no-untyped-call]
        described = await worker.Describe(worker_pb2.DescribeRequest(), timeout=_CALL_S)
        peer = decode_pb2.Peer(worker_id=described.worker_id, incarnation=described.incarnation, address=prefill)
        stub = decode_pb2_grpc.DecodeStub(decode_channel)  # type: ignore[no-untyped-call]
        probe = _Probe(stub, peer, described.vocab_size)
        await probe.sample(min(lengths))
        fitting = [length for length in lengths if length + _OUTPUT_TOKENS <= described.max_model_len]
        return tuple([await _figure(probe, length, repeats) for length in fitting])


async def _figure(probe: "_Probe", length: int, repeats: int) -> ExposureFigure:
    samples = [await probe.sample(length) for _ in range(repeats)]
    return ExposureFigure(
        prompt_tokens=length,
        ttft_s=median([sample.ttft_s for sample in samples]),
        handoff_s=median([sample.done.handoff_s for sample in samples]),
        exposed_s=median([sample.done.exposed_handoff_s for sample in samples]),
        exposed_share_of_ttft=median([sample.done.exposed_handoff_s / sample.ttft_s for sample in samples]),
        handoff_bytes=samples[-1].done.handoff_bytes,
    )


class NoHandoff(Exception):
    """The decode worker answered without its prefill peer, so there is nothing to measure."""


class _Probe:
    """One request at a time, each with tokens of its own and a root hash of its own: no cache ever helps."""

    def __init__(self, stub: decode_pb2_grpc.DecodeStub, peer: decode_pb2.Peer, vocab_size: int) -> None:
        self._stub = stub
        self._peer = peer
        self._vocab_size = vocab_size
        self._source = random.Random(0)

    async def sample(self, length: int) -> _Sample:
        request = self._request(length)
        ttft_s = 0.0
        began = time.perf_counter()
        async with asyncio.timeout(_CALL_S):
            metadata = (("x-request-id", request.request_id),)
            async for event in self._stub.Generate(request, metadata=metadata):
                kind = event.WhichOneof("event")
                if kind == "tokens" and not ttft_s:
                    ttft_s = time.perf_counter() - began
                if kind == "done" and event.done.prefill_worker_id:
                    return _Sample(ttft_s, event.done)
        raise NoHandoff(f"a prompt of {length} tokens was prefilled on the decode worker")

    def _request(self, length: int) -> decode_pb2.GenerateRequest:
        sampling = SamplingParams(max_tokens=_OUTPUT_TOKENS, temperature=0.0, ignore_eos=True)
        return decode_pb2.GenerateRequest(
            request_id=f"bench-{secrets.token_hex(8)}",
            prompt_tokens=[self._source.randrange(self._vocab_size) for _ in range(length)],
            sampling=sampling_to_proto(sampling),
            choices=[common_pb2.Choice(index=0)],
            prefill_peers=[self._peer],
            root_hash=secrets.token_bytes(16),
        )
