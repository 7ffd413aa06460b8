"""A stream goes on exactly where it was when its decode worker is lost, frozen, full or leaving."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import pytest
from kvarn_engine.core.errors import Draining, EngineFailure, InvalidRequest, LayoutMismatch, Overloaded
from kvarn_engine.wire.status import status_of
from kvarn_router.attempts import AttemptLimits
from kvarn_router.context import DoneEvent, FinishedEvent, StreamEvent, TokensEvent
from kvarn_router.errors import InvalidInput, NoWorker, TooManyRequests, WorkerLost
from kvarn_router.stream import StreamLimits

from tests.support.routing_stack import (
    ROUTER_ID,
    RoutingStack,
    answers,
    eventually,
    make_request,
    registered,
    routing_stack,
    tokens_of,
)
from tests.support.scripted_worker import (
    Interruption,
    Script,
    ScriptedWorker,
    abort_with,
    freeze,
    scripted_output,
    served,
)

QUICK = StreamLimits(idle_timeout_s=0.2, worker_wait_s=0.2, attempts=AttemptLimits(3))


def worker(number: int, script: Script | None = None) -> ScriptedWorker:
    return ScriptedWorker(f"d{number}", incarnation=f"life-{number}", script=script or Script())


async def started(
    exit_stack: AsyncExitStack, *workers: ScriptedWorker, limits: StreamLimits | None = None
) -> RoutingStack:
    for each in workers:
        await exit_stack.enter_async_context(served(each))
    stack = await exit_stack.enter_async_context(routing_stack(*workers, limits=limits))
    await registered(stack, *workers)
    return stack


async def hand_back(context: grpc.aio.ServicerContext) -> None:
    """What a worker does with the answers that outlive its time to drain."""
    status = status_of(Draining("this worker ends"))
    await context.abort(status.code, status.message, status.trailing_metadata)


def again_and_again(each: ScriptedWorker, interruption: Interruption) -> Interruption:
    async def interrupted(context: grpc.aio.ServicerContext) -> None:
        each.script.interruption = interrupted
        await interruption(context)

    return interrupted


async def make_preferred(stack: RoutingStack, preferred: ScriptedWorker) -> None:
    """The next request goes to this worker: every other one counts as busy."""
    for live in stack.table.all():
        if live.identity.incarnation != preferred.incarnation:
            live.in_flight += 1


async def test_plain_stream_carries_id_peers_and_root() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        stack = await started(exit_stack, one)
        events = await stack.collect(make_request(max_tokens=5))
        assert tokens_of(events) == scripted_output(9, 5)
        assert [type(event) for event in events[-2:]] == [FinishedEvent, DoneEvent]
        assert one.request_ids == [f"r@{ROUTER_ID}"]
        assert len(one.requests[0].root_hash) == 16
        assert stack.table.all()[0].in_flight == 0


@pytest.mark.parametrize(
    "interruption",
    [
        abort_with(grpc.StatusCode.UNAVAILABLE),
        abort_with(grpc.StatusCode.CANCELLED),
        abort_with(grpc.StatusCode.INTERNAL),
        freeze,
    ],
    ids=["unavailable", "cancelled", "internal", "frozen"],
)
@pytest.mark.parametrize("interrupt_at", [0, 1, 4])
async def test_another_worker_continues_exactly(interruption: Interruption, interrupt_at: int) -> None:
    async with AsyncExitStack() as exit_stack:
        broken = worker(1, Script(interrupt_at=interrupt_at, interruption=interruption))
        whole = worker(2)
        limits = StreamLimits(idle_timeout_s=0.5, worker_wait_s=20, attempts=AttemptLimits(3))
        stack = await started(exit_stack, broken, whole, limits=limits)
        await make_preferred(stack, broken)
        events = await stack.collect(make_request(max_tokens=8))
        assert tokens_of(events) == scripted_output(9, 8)
        assert events[-1] == DoneEvent(0, "", "d2", resumed=1)
        assert list(whole.requests[0].choices[0].output_tokens) == scripted_output(9, interrupt_at)
        assert stack.sample("kvarn_router_streams_moved_total") == float(interrupt_at > 0)


async def test_only_unfinished_choices_move() -> None:
    async with AsyncExitStack() as exit_stack:
        broken = worker(1, Script(interrupt_at=7, interruption=abort_with(grpc.StatusCode.UNAVAILABLE)))
        broken.stops.append(1)  # choice 1 is over before it has a token
        whole = worker(2)
        stack = await started(exit_stack, broken, whole)
        await make_preferred(stack, broken)
        events = await stack.collect(make_request(max_tokens=6, num_choices=3))
        assert tokens_of(events, 0) == scripted_output(9, 6, choice=0)
        assert tokens_of(events, 2) == scripted_output(9, 6, choice=2)
        assert [choice.index for choice in whole.requests[0].choices] == [0, 2]
        assert not whole.requests[0].prefill_peers
        assert sorted(event.choice for event in events if isinstance(event, FinishedEvent)) == [0, 1, 2]


async def test_waits_for_the_restarted_worker() -> None:
    async with AsyncExitStack() as exit_stack:
        first_life = worker(1)
        server = await exit_stack.enter_async_context(served(first_life))
        stack = await exit_stack.enter_async_context(routing_stack(first_life))
        await registered(stack, first_life)
        first_life.script = Script(interrupt_at=3, interruption=freeze)
        async with stack.pipeline.open(make_request(max_tokens=6)) as stream:
            answer = answers(stream)
            events = [await anext(answer) for _ in range(3)]
            await server.stop(None)
            second_life = ScriptedWorker("d1", incarnation="life-2", address=first_life.address)
            await exit_stack.enter_async_context(served(second_life))
            events += [event async for event in answer]
        assert tokens_of(events) == scripted_output(9, 6)
        assert isinstance(events[-1], DoneEvent)
        assert events[-1].resumed == 1


async def test_silent_worker_loses_its_streams_without_an_idle_timeout() -> None:
    async with AsyncExitStack() as exit_stack:
        frozen, whole = worker(1, Script(interrupt_at=2, interruption=freeze)), worker(2)
        for each in (frozen, whole):
            await exit_stack.enter_async_context(served(each))
        stack = await exit_stack.enter_async_context(routing_stack(frozen, whole, watch_silence_s=0.5))
        await registered(stack, frozen, whole)
        await make_preferred(stack, frozen)
        events = await stack.collect(make_request(max_tokens=5))
        assert tokens_of(events) == scripted_output(9, 5)


@pytest.mark.parametrize("attempts", [AttemptLimits(), AttemptLimits(1), AttemptLimits(max_worker_losses=1)])
async def test_last_token_sent_before_the_loss_needs_no_other_worker(attempts: AttemptLimits) -> None:
    """Nor another attempt, of which there may be none left."""
    async with AsyncExitStack() as exit_stack:
        only = worker(1, Script(interrupt_at=4, interruption=abort_with(grpc.StatusCode.UNAVAILABLE)))
        stack = await started(exit_stack, only, limits=replace(QUICK, attempts=attempts))
        events = await stack.collect(make_request(max_tokens=4))
        assert tokens_of(events) == scripted_output(9, 4)
        assert isinstance(events[-1], DoneEvent)
        assert len(only.requests) == 1
        assert stack.sample("kvarn_router_streams_moved_total") == 0


async def test_a_long_answer_may_move_as_often_as_its_workers_are_replaced() -> None:
    """Attempts count in a row: each of these workers gives two tokens and hands the rest back."""
    async with AsyncExitStack() as exit_stack:
        lives = [worker(number, Script(interrupt_at=2, interruption=hand_back)) for number in range(6)]
        limits = StreamLimits(idle_timeout_s=20, worker_wait_s=20, attempts=AttemptLimits(2))
        stack = await started(exit_stack, *lives, worker(9), limits=limits)
        await make_preferred(stack, lives[0])
        for live in stack.table.all():
            live.in_flight += 10 * (live.identity.worker_id == "d9")
        events = await stack.collect(make_request(max_tokens=14))
        assert tokens_of(events) == scripted_output(9, 14)
        assert isinstance(events[-1], DoneEvent)
        assert events[-1].resumed == 6


@pytest.mark.parametrize("tokens_each", [0, 2])
@pytest.mark.parametrize("breaks", [abort_with(grpc.StatusCode.UNAVAILABLE), abort_with(grpc.StatusCode.INTERNAL)])
async def test_a_request_that_breaks_its_workers_does_not_get_all_of_them(
    breaks: Interruption, tokens_each: int
) -> None:
    """Each gives it tokens, so that no two attempts in a row are in vain, and yet breaks under it."""
    async with AsyncExitStack() as exit_stack:
        fleet = [worker(number) for number in range(6)]
        for each in fleet:
            each.script = Script(interrupt_at=tokens_each, interruption=again_and_again(each, breaks))
        limits = StreamLimits(idle_timeout_s=20, worker_wait_s=20, attempts=AttemptLimits(1000, max_worker_losses=3))
        stack = await started(exit_stack, *fleet, limits=limits)
        received: list[StreamEvent] = []
        with pytest.raises(WorkerLost, match="broke 3 times while they ran this request"):
            await stack.collect(make_request(max_tokens=40), received)
        assert tokens_of(received) == scripted_output(9, 3 * tokens_each)
        assert sum(len(each.requests) for each in fleet) == 3


async def test_a_worker_that_never_ran_a_request_was_not_broken_by_it() -> None:
    """As those that are gone already, which nothing has told the router yet."""
    async with AsyncExitStack() as exit_stack:
        broken = worker(1, Script(interrupt_at=2, interruption=abort_with(grpc.StatusCode.UNAVAILABLE)))
        gone, whole = worker(2, Script(refuse=EngineFailure("gone"))), worker(3)
        limits = StreamLimits(idle_timeout_s=20, worker_wait_s=20, attempts=AttemptLimits(max_worker_losses=2))
        stack = await started(exit_stack, broken, gone, whole, limits=limits)
        for live in stack.table.all():
            live.in_flight += int(live.identity.worker_id.removeprefix("d"))
        assert tokens_of(await stack.collect(make_request(max_tokens=8))) == scripted_output(9, 8)
        assert [len(each.requests) for each in (broken, gone, whole)] == [1, 1, 1]


async def test_workers_that_drain_together_do_not_exhaust_a_request() -> None:
    async with AsyncExitStack() as exit_stack:
        leaving = [worker(number, Script(refuse=Draining("leaving"))) for number in range(6)]
        staying = worker(9)
        limits = StreamLimits(idle_timeout_s=20, worker_wait_s=20, attempts=AttemptLimits(2))
        stack = await started(exit_stack, *leaving, staying, limits=limits)
        for live in stack.table.all():
            live.in_flight += live.identity.worker_id == "d9"
        assert tokens_of(await stack.collect(make_request())) == scripted_output(9, 6)
        assert [len(each.requests) for each in leaving] == [1] * 6
        await stack.collect(make_request(name="next"))
        assert [len(each.requests) for each in leaving] == [1] * 6, "who drains is left alone by all"


async def test_draining_refusal_goes_elsewhere() -> None:
    async with AsyncExitStack() as exit_stack:
        leaving, other = worker(1, Script(refuse=Draining("leaving"))), worker(2)
        stack = await started(exit_stack, leaving, other)
        await make_preferred(stack, leaving)
        assert tokens_of(await stack.collect(make_request())) == scripted_output(9, 6)
        assert len(leaving.requests) == len(other.requests) == 1


async def test_overloaded_everywhere_is_too_many_requests_with_its_retry_after() -> None:
    async with AsyncExitStack() as exit_stack:
        full = [worker(number, Script(refuse=Overloaded("full", retry_after_s=7.0))) for number in (1, 2)]
        stack = await started(exit_stack, *full)
        with pytest.raises(TooManyRequests) as raised:
            await stack.collect(make_request())
        assert raised.value.retry_after_s == 7.0
        assert [len(each.requests) for each in full] == [1, 1]


async def test_only_worker_is_tried_again_once_it_is_heard_of() -> None:
    async with AsyncExitStack() as exit_stack:
        only = worker(1)
        only.script = Script(interrupt_at=3, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        stack = await started(exit_stack, only)
        reporter = asyncio.create_task(report_forever(only))
        events = await stack.collect(make_request())
        reporter.cancel()
        assert tokens_of(events) == scripted_output(9, 6)
        assert len(only.requests) == 2


async def report_forever(each: ScriptedWorker) -> None:
    while True:
        each.report()
        await asyncio.sleep(0.01)


async def test_full_worker_takes_a_moved_stream_once_it_has_room() -> None:
    async with AsyncExitStack() as exit_stack:
        broken = worker(1, Script(interrupt_at=2, interruption=freeze))
        full = worker(2, Script(refuse=Overloaded("full", retry_after_s=0.01)))
        limits = StreamLimits(idle_timeout_s=0.5, worker_wait_s=20, attempts=AttemptLimits(1000))
        stack = await started(exit_stack, broken, full, limits=limits)
        await make_preferred(stack, broken)
        running = asyncio.create_task(stack.collect(make_request()))
        await eventually(lambda: len(full.requests) >= 3, "it is asked again and again")
        full.script.refuse = None
        assert tokens_of(await running) == scripted_output(9, 6)


async def test_invalid_request_is_not_tried_twice() -> None:
    async with AsyncExitStack() as exit_stack:
        strict = [worker(number, Script(refuse=InvalidRequest("top_k", "no"))) for number in (1, 2)]
        stack = await started(exit_stack, *strict)
        with pytest.raises(InvalidInput) as raised:
            await stack.collect(make_request())
        assert raised.value.param == "top_k"
        assert sum(len(each.requests) for each in strict) == 1


@pytest.mark.parametrize(
    ("error", "expected"), [(EngineFailure("broken"), WorkerLost), (LayoutMismatch("a", "b"), NoWorker)]
)
async def test_failures_that_no_worker_survives(error: EngineFailure, expected: type[Exception]) -> None:
    async with AsyncExitStack() as exit_stack:
        stack = await started(exit_stack, worker(1, Script(refuse=error)), limits=QUICK)
        with pytest.raises(expected):
            await stack.collect(make_request())


async def test_lost_for_good_ends_with_worker_lost_after_the_tokens() -> None:
    async with AsyncExitStack() as exit_stack:
        only = worker(1, Script(interrupt_at=2, interruption=freeze))
        stack = await started(exit_stack, only, limits=QUICK)
        received: list[StreamEvent] = []
        with pytest.raises(WorkerLost):
            await stack.collect(make_request(), received)
        assert tokens_of(received) == scripted_output(9, 2)
        assert all(isinstance(event, TokensEvent) for event in received)
        await eventually(lambda: only.running == 0, "the frozen call is cancelled")
