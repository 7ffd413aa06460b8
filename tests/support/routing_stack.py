"""The routing half of a router, without HTTP: table, index, registrar and pipeline over scripted workers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from kvarn_engine.core.ids import RequestId
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.wire.tls import TlsFiles
from kvarn_router.attempts import AttemptLimits
from kvarn_router.context import GenerationRequest, PlacedEvent, StreamEvent, TokensEvent, TokenStream
from kvarn_router.decisions import DecisionLog
from kvarn_router.discovery.endpoint import WorkerSource
from kvarn_router.discovery.static_list import StaticList
from kvarn_router.dispatcher import Dispatcher
from kvarn_router.holding import Holding, HoldLimits, UncachedTokens
from kvarn_router.metrics import RoutingMetrics
from kvarn_router.pipeline import ReadyRules, RouterPipeline
from kvarn_router.registration import Admission, Registrar, RegistrationLimits
from kvarn_router.routing.cost import SaturationLimits
from kvarn_router.routing.prefix_index import IndexLimits, PrefixIndex
from kvarn_router.stream import StreamLimits, StreamParts
from kvarn_router.workers import WorkerTable
from prometheus_client import CollectorRegistry

from tests.support.scripted_worker import RENDER, ScriptedWorker

EOS = 2
ROUTER_ID = "router-1"
"""What follows the client's request id on the wire."""


@dataclass(frozen=True)
class RoutingStack:
    table: WorkerTable
    index: PrefixIndex
    decisions: DecisionLog
    pipeline: RouterPipeline
    registry: CollectorRegistry

    async def collect(self, request: GenerationRequest, received: list[StreamEvent] | None = None) -> list[StreamEvent]:
        """Every event but placements, in a list of the caller's when it wants those before a failure."""
        events = [] if received is None else received
        async with self.pipeline.open(request) as stream:
            async for event in answers(stream):
                events.append(event)
        return events

    def sample(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


async def answers(stream: TokenStream) -> AsyncIterator[StreamEvent]:
    """What reaches a client."""
    async for event in stream.events():
        if not isinstance(event, PlacedEvent):
            yield event


def make_request(max_tokens: int = 6, num_choices: int = 1, prompt: int = 9, name: str = "r") -> GenerationRequest:
    return GenerationRequest(RequestId(name), tuple(range(prompt)), SamplingParams(max_tokens), num_choices)


def tokens_of(events: list[StreamEvent], choice: int = 0) -> list[int]:
    return [
        token.token_id
        for event in events
        if isinstance(event, TokensEvent) and event.choice == choice
        for token in event.tokens
    ]


@asynccontextmanager
async def routing_stack(
    *workers: ScriptedWorker,
    limits: StreamLimits | None = None,
    saturation: SaturationLimits | None = None,
    watch_silence_s: float = 60.0,
    source: WorkerSource | None = None,
    hold: HoldLimits | None = None,
    ready: ReadyRules | None = None,
    tls: TlsFiles | None = None,
    router_id: str = ROUTER_ID,
) -> AsyncIterator[RoutingStack]:
    """Over workers that are being served already. It does not wait for them to register."""
    registry = CollectorRegistry()
    metrics = RoutingMetrics(registry)
    table, index, decisions = WorkerTable(), PrefixIndex(IndexLimits()), DecisionLog(16)
    dispatcher = Dispatcher(table, index, decisions, saturation or SaturationLimits(), RENDER, time.monotonic)
    tasks = TaskOwner("test")
    parts = StreamParts(
        dispatcher=dispatcher,
        tasks=tasks,
        metrics=metrics,
        limits=limits or StreamLimits(idle_timeout_s=60, worker_wait_s=60, attempts=AttemptLimits()),
        eos_token_ids=frozenset({EOS}),
        holding=Holding(hold or HoldLimits(hold_s=0)),
        uncached=UncachedTokens(metrics.tokens_arrived),
        router_id=router_id,
    )
    metrics.watch(table, parts.holding, parts.uncached)
    pipeline = RouterPipeline(table, parts, ("scripted",), ready or ReadyRules(without_prefill=True))
    registration = RegistrationLimits(5.0, watch_silence_s, backoff_min_s=0.01, backoff_max_s=0.05)
    registrar = Registrar(table, index, metrics, registration, Admission(RENDER, tls))
    registrar.start(source or StaticList([worker.address for worker in workers]))
    try:
        yield RoutingStack(table, index, decisions, pipeline, registry)
    finally:
        await registrar.stop()
        await tasks.stop()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """The deadline only bounds a failing test."""
    try:
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110  # conditions are about state that sets no event
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"did not happen: {what}") from None


async def registered(stack: RoutingStack, *workers: ScriptedWorker) -> None:
    """Let in, and their first snapshot taken."""
    for worker in workers:

        def is_there(worker: ScriptedWorker = worker) -> bool:
            return any(
                live.identity.incarnation == worker.incarnation and stack.index.sequence(live.identity.incarnation) >= 0
                for live in stack.table.all()
            )

        await eventually(is_there, f"registration of {worker.worker_id}")
