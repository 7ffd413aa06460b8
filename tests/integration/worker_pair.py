"""Prefill and decode workers inside the test's process: simulated runners, real engines, real gRPC on loopback."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc.aio
from kvarn_decode.service import DecodeService
from kvarn_decode.settings import HandoffSettings
from kvarn_engine.core.hashing import root_hash
from kvarn_engine.core.ids import Incarnation, WorkerId
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import SampledToken, SamplingParams
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.simulated import SimulatedRunner, SimulatedSettings
from kvarn_engine.serving.worker_app import WorkerApp, WorkerParts
from kvarn_engine.serving.worker_engine import parts_around
from kvarn_engine.serving.worker_identity import WorkerIdentity
from kvarn_engine.serving.worker_settings import WorkerSettings
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.convert import sampling_to_proto
from kvarn_prefill.service import PrefillService
from kvarn_proto.v1 import common_pb2, decode_pb2, decode_pb2_grpc

BLOCK_SIZE = 4
SIMULATED = SimulatedSettings(num_blocks=256, block_size=BLOCK_SIZE, max_model_len=512)
WORKER = WorkerSettings()
NO_LOCAL_PREFILL = HandoffSettings(local_prefill_max_tokens=0)
EIGHT_TOKENS = SamplingParams(max_tokens=8, seed=7)
BATCH = EngineSettings(max_batch_tokens=16, max_sequences=8, max_waiting=16)


class GatedRunner(SimulatedRunner):
    """Computes one step for each permit, so that a test decides how far a request gets."""

    def __init__(self) -> None:
        super().__init__(SIMULATED)
        self.permits = threading.Semaphore(0)
        self.steps = 0

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        self.permits.acquire()
        self.steps += 1
        return super().execute(plan)

    def open(self) -> None:
        self.permits.release(10_000)


@dataclass(frozen=True)
class RunningWorker:
    app: WorkerApp
    address: str

    @property
    def parts(self) -> WorkerParts:
        return self.app.parts

    async def assert_idle(self) -> None:
        """Every block comes back, and the pool's books are right."""
        await eventually(lambda: self.parts.engine.load().blocks_in_use == 0)
        await eventually(lambda: self.parts.gate.in_flight == 0)
        self.parts.engine.check_integrity()


@dataclass
class Answer:
    """What one Generate call said."""

    tokens: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, int] = field(default_factory=dict)
    accepted_cached: int = -1
    done: decode_pb2.GenerateDone | None = None

    def take(self, event: decode_pb2.GenerateEvent) -> None:
        match event.WhichOneof("event"):
            case "accepted":
                self.accepted_cached = event.accepted.cached_tokens
            case "tokens":
                drawn = [token.token_id for token in event.tokens.tokens]
                self.tokens.setdefault(event.tokens.choice, []).extend(drawn)
            case "finished":
                assert event.finished.choice not in self.reasons
                self.reasons[event.finished.choice] = event.finished.reason
            case "done":
                assert self.done is None
                self.done = event.done


async def eventually(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  conditions of other threads and processes set no event
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running_prefill(
    simulated: SimulatedSettings = SIMULATED, runner: SimulatedRunner | None = None, heartbeat_s: float = 2.0
) -> AsyncIterator[RunningWorker]:
    parts = _parts(runner or SimulatedRunner(simulated), common_pb2.ROLE_PREFILL)
    async with _running(parts, WorkerApp(WORKER, parts, PrefillService(parts, heartbeat_s))) as worker:
        yield worker


@asynccontextmanager
async def running_decode(
    simulated: SimulatedSettings = SIMULATED,
    handoff: HandoffSettings = NO_LOCAL_PREFILL,
    settings: WorkerSettings = WORKER,
    runner: SimulatedRunner | None = None,
) -> AsyncIterator[RunningWorker]:
    parts = _parts(runner or SimulatedRunner(simulated), common_pb2.ROLE_DECODE)
    async with _running(parts, WorkerApp(settings, parts, DecodeService(parts, handoff))) as worker:
        yield worker


def _parts(runner: SimulatedRunner, role: common_pb2.Role) -> WorkerParts:
    name = common_pb2.Role.Name(role)
    return parts_around(runner, BATCH, WorkerIdentity(WorkerId(name), Incarnation("life"), role, "m", "", "0"))


@asynccontextmanager
async def _running(parts: WorkerParts, app: WorkerApp) -> AsyncIterator[RunningWorker]:
    address = await app.start()
    try:
        yield RunningWorker(app, address)
    finally:
        await app.stop()


def request(
    prompt: Sequence[int],
    peers: Sequence[str] = (),
    sampling: SamplingParams = EIGHT_TOKENS,
    outputs: Sequence[Sequence[int]] = ((),),
    request_id: str = "r",
) -> decode_pb2.GenerateRequest:
    return decode_pb2.GenerateRequest(
        request_id=request_id,
        prompt_tokens=prompt,
        sampling=sampling_to_proto(sampling),
        choices=[common_pb2.Choice(index=index, output_tokens=out) for index, out in enumerate(outputs)],
        prefill_peers=[decode_pb2.Peer(worker_id=f"peer-{n}", address=address) for n, address in enumerate(peers)],
        root_hash=root_hash("render", "layout"),
    )


async def generate(address: str, message: decode_pb2.GenerateRequest) -> Answer:
    answer = Answer()
    async with open_channel(address) as channel:
        async for event in decode_pb2_grpc.DecodeStub(channel).Generate(message, timeout=30):
            answer.take(event)
    return answer


@asynccontextmanager
async def decode_stub(address: str) -> AsyncIterator[decode_pb2_grpc.DecodeStub]:
    async with open_channel(address) as channel:
        yield decode_pb2_grpc.DecodeStub(channel)


async def local_answer(message: decode_pb2.GenerateRequest) -> Answer:
    """The same request on one fresh worker without peers."""
    alone = decode_pb2.GenerateRequest()
    alone.CopyFrom(message)
    del alone.prefill_peers[:]
    async with running_decode() as decode:
        return await generate(decode.address, alone)


AnyCall = grpc.aio.UnaryStreamCall[decode_pb2.GenerateRequest, decode_pb2.GenerateEvent]
