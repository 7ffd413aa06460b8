"""Registration, watching and choosing, over real gRPC streams."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_engine.core.sampling import FinishReason
from kvarn_proto.v1 import common_pb2
from kvarn_router.context import DoneEvent, FinishedEvent
from kvarn_router.errors import NoWorker
from kvarn_router.routing.cost import SaturationLimits
from kvarn_router.workers import Role

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
from tests.support.scripted_worker import LAYOUT, RENDER, Script, ScriptedWorker, freeze, scripted_output, served


def worker(number: int, role: int = common_pb2.ROLE_DECODE) -> ScriptedWorker:
    return ScriptedWorker(f"w{number}", incarnation=f"life-{number}", role=role)


async def started(exit_stack: AsyncExitStack, *workers: ScriptedWorker, **options: object) -> RoutingStack:
    for each in workers:
        await exit_stack.enter_async_context(served(each))
    stack = await exit_stack.enter_async_context(routing_stack(*workers, **options))
    await registered(stack, *workers)
    return stack


def prompt_hashes(count: int = 2) -> list[bytes]:
    request = make_request()
    root = root_hash(RENDER, LAYOUT.fingerprint, request.cache_salt)
    return list(block_hashes(root, request.prompt_tokens, LAYOUT.block_size))[:count]


async def test_no_worker_is_refused_at_once() -> None:
    async with routing_stack() as stack:
        assert not stack.pipeline.is_ready()
        assert stack.pipeline.card().max_model_len == 0
        with pytest.raises(NoWorker):
            await stack.collect(make_request())


async def test_ready_once_a_decode_worker_is_there() -> None:
    async with AsyncExitStack() as exit_stack:
        stack = await started(exit_stack, worker(1))
        assert stack.pipeline.is_ready()
        assert stack.pipeline.card().max_model_len == 512


async def test_announced_prefix_attracts_the_request() -> None:
    async with AsyncExitStack() as exit_stack:
        workers = [worker(number) for number in range(4)]
        stack = await started(exit_stack, *workers)
        workers[2].announce(*prompt_hashes())
        await eventually(lambda: stack.index.size(workers[2].incarnation) == 2, "the delta is taken")
        await stack.collect(make_request())
        assert [len(each.requests) for each in workers] == [0, 0, 1, 0]
        newest = stack.decisions.newest_first()[0]
        assert newest.decode_worker.cached_blocks == 2
        assert newest.num_blocks == 2


async def test_snapshot_counts_like_a_delta() -> None:
    async with AsyncExitStack() as exit_stack:
        workers = [worker(number) for number in range(4)]
        workers[3].hashes = prompt_hashes()
        stack = await started(exit_stack, *workers)
        await stack.collect(make_request())
        assert len(workers[3].requests) == 1


async def test_gap_resnapshots_without_losing_the_worker() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        stack = await started(exit_stack, one)
        live = stack.table.all()[0]
        one.announce(*prompt_hashes(), skip=3)
        await eventually(lambda: one.watchers == 2, "a second Watch")
        await eventually(lambda: stack.index.size(one.incarnation) == 2, "the new snapshot")
        assert stack.table.all() == (live,)
        assert stack.registry.get_sample_value("kvarn_router_watch_gaps_total") == 1


async def test_concurrent_cold_requests_join_one_prefill_worker() -> None:
    async with AsyncExitStack() as exit_stack:
        decode = worker(0)
        prefill = [worker(number, common_pb2.ROLE_PREFILL) for number in (1, 2, 3)]
        stack = await started(exit_stack, decode, *prefill)
        await asyncio.gather(*(stack.collect(make_request(name=f"r{number}")) for number in range(6)))
        best = {request.prefill_peers[0].worker_id for request in decode.requests}
        assert len(decode.requests) == 6
        assert len(best) == 1
        assert all(len(request.prefill_peers) == 2 for request in decode.requests)
        assert all(live.in_flight == 0 and live.in_flight_tokens == 0 for live in stack.table.all())


async def test_draining_worker_is_skipped_at_once() -> None:
    async with AsyncExitStack() as exit_stack:
        leaving, staying = worker(1), worker(2)
        leaving.hashes = prompt_hashes()
        stack = await started(exit_stack, leaving, staying)
        leaving.report(draining=True)
        await eventually(lambda: len(stack.table.candidates(Role.DECODE)) == 1, "the drain is seen")
        await stack.collect(make_request())
        assert (len(leaving.requests), len(staying.requests)) == (0, 1)


async def test_saturated_worker_is_passed_over() -> None:
    async with AsyncExitStack() as exit_stack:
        full, free = worker(1), worker(2)
        full.hashes = prompt_hashes()
        stack = await started(exit_stack, full, free, saturation=SaturationLimits(max_waiting=3))
        full.report(waiting=4)
        live = next(each for each in stack.table.all() if each.identity.incarnation == full.incarnation)
        await eventually(lambda: live.load.waiting == 4, "the report is taken")
        await stack.collect(make_request())
        assert (len(full.requests), len(free.requests)) == (0, 1)
        assert "saturated" in stack.decisions.newest_first()[0].explain()


async def test_a_worker_that_does_not_answer_is_told_until_it_does() -> None:
    async with AsyncExitStack() as exit_stack:
        late = worker(1)
        async with served(late):
            pass  # its address, where nobody is now
        stack = await exit_stack.enter_async_context(routing_stack(late))
        await eventually(lambda: len(stack.table.refusals) == 1, "it is told")
        assert stack.table.refusals == ((late.address, "it does not answer (UNAVAILABLE)"),)


async def test_other_rendering_is_refused_with_both_values() -> None:
    async with AsyncExitStack() as exit_stack:
        fitting, other = worker(1), ScriptedWorker("w3", incarnation="life-3", render="other-render")
        for each in (fitting, other):
            await exit_stack.enter_async_context(served(each))
        stack = await exit_stack.enter_async_context(routing_stack(fitting, other))
        await eventually(lambda: len(stack.table.refusals) == 1, "the refusal")
        reason = dict(stack.table.refusals)[other.address]
        assert "other-render" in reason
        assert RENDER in reason
        await registered(stack, fitting)
        assert len(stack.table.all()) == 1


async def test_leaving_the_stream_cancels_the_call_and_releases_the_load() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        one.script = Script(interrupt_at=2, interruption=freeze)
        stack = await started(exit_stack, one)
        async with stack.pipeline.open(make_request()) as stream:
            await anext(answers(stream))
            assert stack.table.all()[0].in_flight == 1
        assert stack.table.all()[0].in_flight == 0
        await eventually(lambda: one.cancelled == 1, "the worker sees the cancel")


async def test_cancelled_reader_cancels_the_call() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        one.script = Script(interrupt_at=0, interruption=freeze)
        stack = await started(exit_stack, one)
        reader = asyncio.create_task(stack.collect(make_request()))
        await eventually(lambda: one.running == 1, "the call runs")
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await eventually(lambda: one.cancelled == 1, "the worker sees the cancel")
        assert stack.table.all()[0].in_flight == 0


async def test_stopped_choice_ends_aborted_and_the_other_goes_on() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)

        async def until_stopped(context: object) -> None:
            await eventually(lambda: one.stops == [1], "StopChoice arrives")

        one.script = Script(interrupt_at=3, interruption=until_stopped)
        stack = await started(exit_stack, one)
        events = []
        async with stack.pipeline.open(make_request(max_tokens=5, num_choices=2)) as stream:
            async for event in answers(stream):
                events.append(event)
                if tokens_of(events, 1) and not one.stops:
                    stream.stop_choice(1)
        assert tokens_of(events, 0) == scripted_output(9, 5, choice=0)
        assert len(tokens_of(events, 1)) == 1
        assert FinishedEvent(1, FinishReason.ABORTED) in events
        assert FinishedEvent(0, FinishReason.LENGTH) in events
        assert isinstance(events[-1], DoneEvent)


async def test_one_request_id_used_twice_at_once_stays_two_requests() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        stack = await started(exit_stack, one)
        await asyncio.gather(*(stack.collect(make_request(name="same")) for _ in range(3)))
        await stack.collect(make_request(name="same"))
        sent = [name.removesuffix(f"@{ROUTER_ID}") for name in one.request_ids]
        assert sorted(sent) == ["same", "same", "same~2", "same~3"]


async def test_equal_request_ids_of_two_routers_stay_two_requests() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        await exit_stack.enter_async_context(served(one))
        for router_id in ("a", "b"):
            stack = await exit_stack.enter_async_context(routing_stack(one, router_id=router_id))
            await registered(stack, one)
            await stack.collect(make_request(name="same"))
            assert stack.decisions.newest_first()[0].request_id == "same"
        assert one.request_ids == ["same@a", "same@b"]


async def test_goodbye_lets_running_answers_end() -> None:
    async with AsyncExitStack() as exit_stack:
        one = worker(1)
        release = asyncio.Event()

        async def hold(context: object) -> None:
            await release.wait()

        one.script = Script(interrupt_at=2, interruption=hold)
        stack = await started(exit_stack, one)
        async with stack.pipeline.open(make_request()) as stream:
            answer = answers(stream)
            events = [await anext(answer)]
            one.events.put_nowait(None)
            await eventually(lambda: not stack.table.all(), "the worker left")
            release.set()
            events += [event async for event in answer]
        assert tokens_of(events) == scripted_output(9, 6)
        assert len(one.requests) == 1
