"""The pipeline over real workers with simulated runners: hand-off, caches and moves, all in this process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from kvarn_decode.service import DecodeService
from kvarn_decode.settings import HandoffSettings
from kvarn_engine.core.ids import Incarnation, RequestId, WorkerId
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.simulated import CostModel, SimulatedRunner, SimulatedSettings
from kvarn_engine.serving.worker_app import RoleService, WorkerApp, WorkerParts
from kvarn_engine.serving.worker_engine import parts_around
from kvarn_engine.serving.worker_identity import WorkerIdentity
from kvarn_engine.serving.worker_settings import WorkerSettings
from kvarn_prefill.service import PrefillService
from kvarn_proto.v1 import common_pb2
from kvarn_router.context import DoneEvent, GenerationRequest, StreamEvent

from tests.support.routing_stack import RoutingStack, answers, eventually, routing_stack, tokens_of
from tests.support.scripted_worker import RENDER

SIMULATED = SimulatedSettings(num_blocks=256, block_size=4, max_model_len=512, cost=CostModel(0.002, 0.0, 0.0))
PROMPT = tuple(range(3, 40))


class Life:
    """One worker process's worth of parts, in this process."""

    def __init__(self, app: WorkerApp, parts: WorkerParts, address: str) -> None:
        self.app = app
        self.parts = parts
        self.address = address


@asynccontextmanager
async def life(name: str, role: common_pb2.Role) -> AsyncIterator[Life]:
    identity = WorkerIdentity(WorkerId(name), Incarnation(f"life-of-{name}"), role, "m", RENDER, "0")
    parts = parts_around(SimulatedRunner(SIMULATED), EngineSettings(max_batch_tokens=16, max_sequences=8), identity)
    service: RoleService = (
        PrefillService(parts, 2.0)
        if role == common_pb2.ROLE_PREFILL
        else DecodeService(parts, HandoffSettings(local_prefill_max_tokens=0))
    )
    app = WorkerApp(WorkerSettings(shutdown_timeout_s=0.0), parts, service)
    address = await app.start()
    try:
        yield Life(app, parts, address)
    finally:
        await app.stop()


def ask(max_tokens: int = 24, num_choices: int = 1, name: str = "r") -> GenerationRequest:
    return GenerationRequest(RequestId(name), PROMPT, SamplingParams(max_tokens, seed=11), num_choices)


async def started(exit_stack: AsyncExitStack, num_decode: int) -> tuple[RoutingStack, list[Life]]:
    names = ["p0", *(f"d{number}" for number in range(num_decode))]
    lives = []
    for name in names:
        role = common_pb2.ROLE_PREFILL if name == "p0" else common_pb2.ROLE_DECODE
        lives.append(await exit_stack.enter_async_context(life(name, role)))
    stack = await exit_stack.enter_async_context(routing_stack(*lives))
    await eventually(lambda: len(stack.table.all()) == len(names), "all workers register")
    return stack, lives


async def assert_released(*lives: Life) -> None:
    for each in lives:
        await eventually(lambda each=each: each.parts.engine.load().blocks_in_use == 0, "blocks come back")
        each.parts.engine.check_integrity()


async def test_second_request_finds_the_prefix_and_says_the_same() -> None:
    async with AsyncExitStack() as exit_stack:
        stack, lives = await started(exit_stack, 1)
        cold = await stack.collect(ask(name="cold"))
        await eventually(lambda: stack.index.size(Incarnation("life-of-d0")) >= 9, "the decode worker's events")
        warm = await stack.collect(ask(name="warm"))
        assert tokens_of(cold) == tokens_of(warm)
        assert len(tokens_of(cold)) == 24
        assert cold[-1] == DoneEvent(0, "p0", "d0", 0)
        assert isinstance(warm[-1], DoneEvent)
        assert warm[-1].cached_tokens == 36
        assert stack.decisions.newest_first()[0].decode_worker.cached_blocks == 9
        await assert_released(*lives)


@pytest.mark.parametrize("num_choices", [1, 3])
async def test_stream_moves_to_another_engine_and_stays_exact(num_choices: int) -> None:
    async with AsyncExitStack() as exit_stack:
        stack, lives = await started(exit_stack, 2)
        whole = await stack.collect(ask(num_choices=num_choices, name="whole"))
        events: list[StreamEvent] = []
        async with stack.pipeline.open(ask(num_choices=num_choices, name="moved")) as stream:
            async for event in answers(stream):
                events.append(event)
                if len(events) == 5 * num_choices:
                    victim = stack.decisions.newest_first()[0].decode_worker.worker_id
                    await next(each for each in lives if each.parts.identity.worker_id == victim).app.stop()
        for choice in range(num_choices):
            assert tokens_of(events, choice) == tokens_of(whole, choice)
            assert len(tokens_of(events, choice)) == 24
        assert isinstance(events[-1], DoneEvent)
        assert events[-1].resumed == 1
        assert events[-1].decode_worker != victim
        await assert_released(*(each for each in lives if each.parts.identity.worker_id != victim))


async def test_leaving_early_frees_both_engines() -> None:
    async with AsyncExitStack() as exit_stack:
        stack, lives = await started(exit_stack, 1)
        async with stack.pipeline.open(ask(max_tokens=400)) as stream:
            answer = answers(stream)
            for _ in range(3):
                await anext(answer)
        await assert_released(*lives)
