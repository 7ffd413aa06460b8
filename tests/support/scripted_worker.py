"""A worker whose every answer is scripted by the test, behind a real grpc.aio server on loopback.

Its tokens are keyed by position and choice, as a real engine's are, so an exact continuation differs from a restart.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import grpc.aio
from kvarn_engine.core.errors import EngineError
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.wire.convert import layout_to_proto
from kvarn_engine.wire.status import status_of
from kvarn_proto.v1 import common_pb2, decode_pb2, decode_pb2_grpc, worker_pb2, worker_pb2_grpc

RENDER = "render-fingerprint"
LAYOUT = KvLayout("revision", "float32", 1, 1, 8, 4)


def scripted_token(position: int, choice: int) -> int:
    return 100 + (position * 31 + choice * 7) % 1000


def scripted_output(num_prompt: int, max_tokens: int, choice: int = 0) -> list[int]:
    return [scripted_token(num_prompt + offset, choice) for offset in range(max_tokens)]


Interruption = Callable[[grpc.aio.ServicerContext], Awaitable[None]]


@dataclass
class Script:
    """What goes wrong, and when. An interruption runs once, before token `interrupt_at` of an attempt is sent."""

    refuse: EngineError | None = None
    interrupt_at: int = -1
    interruption: Interruption | None = None
    prefill_cached: int = 0


@dataclass
class ScriptedWorker(worker_pb2_grpc.WorkerServicer, decode_pb2_grpc.DecodeServicer):
    worker_id: str
    role: int = common_pb2.ROLE_DECODE
    incarnation: str = "life-1"
    render: str = RENDER
    layout: KvLayout = LAYOUT
    max_model_len: int = 512
    vocab_size: int = 2000
    script: Script = field(default_factory=Script)
    address: str = ""
    requests: list[decode_pb2.GenerateRequest] = field(default_factory=list)
    request_ids: list[str] = field(default_factory=list)
    stops: list[int] = field(default_factory=list)
    watchers: int = 0
    cancelled: int = 0
    running: int = 0
    sequence: int = 0
    hashes: list[bytes] = field(default_factory=list)
    events: asyncio.Queue[worker_pb2.WatchEvent | None] = field(default_factory=asyncio.Queue)

    async def Describe(self, request: worker_pb2.DescribeRequest, context: object) -> worker_pb2.DescribeResponse:
        return worker_pb2.DescribeResponse(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            role=self.role,
            model="scripted",
            layout=layout_to_proto(self.layout),
            layout_fingerprint=self.layout.fingerprint,
            render_fingerprint=self.render,
            max_model_len=self.max_model_len,
            load=worker_pb2.Load(blocks_total=100),
            vocab_size=self.vocab_size,
        )

    async def Watch(self, request: worker_pb2.WatchRequest, context: object) -> AsyncIterator[worker_pb2.WatchEvent]:
        self.watchers += 1
        yield self.event(snapshot=worker_pb2.BlockSet(hashes=self.hashes))
        while (event := await self.events.get()) is not None:
            yield event

    async def Generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[decode_pb2.GenerateEvent]:
        self.requests.append(request)
        self.request_ids.append(dict(context.invocation_metadata())["x-request-id"])
        if self.script.refuse is not None:
            status = status_of(self.script.refuse)
            await context.abort(status.code, status.message, status.trailing_metadata)
        self.running += 1
        try:
            async for event in self._generate(request, context):
                yield event
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def StopChoice(self, request: decode_pb2.StopChoiceRequest, context: object) -> decode_pb2.StopChoiceResponse:
        self.stops.append(request.choice)
        return decode_pb2.StopChoiceResponse(found=True)

    def event(self, **kwargs: object) -> worker_pb2.WatchEvent:
        return worker_pb2.WatchEvent(sequence=self.sequence, incarnation=self.incarnation, **kwargs)

    def announce(self, *stored: bytes, skip: int = 0) -> None:
        """One delta; with `skip`, as if that many before it had been lost."""
        self.sequence += 1 + skip
        self.hashes.extend(stored)
        self.events.put_nowait(self.event(delta=worker_pb2.BlockDelta(stored=stored)))

    def report(self, **load: object) -> None:
        self.events.put_nowait(self.event(load=worker_pb2.Load(blocks_total=100, **load)))

    async def _generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[decode_pb2.GenerateEvent]:
        yield decode_pb2.GenerateEvent(accepted=decode_pb2.GenerateAccepted(cached_tokens=0))
        outputs = {choice.index: list(choice.output_tokens) for choice in request.choices}
        sent = 0
        while outputs:
            for choice in tuple(outputs):
                if sent == self.script.interrupt_at and self.script.interruption is not None:
                    interruption, self.script.interruption = self.script.interruption, None
                    await interruption(context)
                reason = self._ending(choice, outputs[choice], request.sampling.max_tokens)
                if reason is not None:
                    del outputs[choice]
                    finished = decode_pb2.ChoiceFinished(choice=choice, reason=reason)
                    yield decode_pb2.GenerateEvent(finished=finished)
                    continue
                token = scripted_token(len(request.prompt_tokens) + len(outputs[choice]), choice)
                outputs[choice].append(token)
                sent += 1
                tokens = [common_pb2.SampledToken(token_id=token)]
                yield decode_pb2.GenerateEvent(tokens=decode_pb2.ChoiceTokens(choice=choice, tokens=tokens))
                await asyncio.sleep(0)
        yield decode_pb2.GenerateEvent(done=decode_pb2.GenerateDone(cached_tokens=self.script.prefill_cached))

    def _ending(self, choice: int, output: list[int], max_tokens: int) -> int | None:
        if choice in self.stops:
            return decode_pb2.FINISH_REASON_ABORTED
        return decode_pb2.FINISH_REASON_LENGTH if len(output) >= max_tokens else None


@asynccontextmanager
async def served(worker: ScriptedWorker) -> AsyncIterator[grpc.aio.Server]:
    """Serve on the worker's address, or on a free port that it then keeps."""
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    worker_pb2_grpc.add_WorkerServicer_to_server(worker, server)
    decode_pb2_grpc.add_DecodeServicer_to_server(worker, server)
    port = server.add_insecure_port(worker.address or "127.0.0.1:0")
    worker.address = f"127.0.0.1:{port}"
    await server.start()
    try:
        yield server
    finally:
        await server.stop(None)


async def freeze(context: grpc.aio.ServicerContext) -> None:
    """Say nothing more, and keep the connection."""
    await asyncio.Event().wait()


def abort_with(code: grpc.StatusCode) -> Interruption:
    async def interruption(context: grpc.aio.ServicerContext) -> None:
        await context.abort(code, "scripted")

    return interruption
