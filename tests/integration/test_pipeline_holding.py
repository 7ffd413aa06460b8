"""Requests that no worker can take: held and counted, then taken, refused, or given up by their clients."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import pytest
from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_router.errors import NoWorker, PromptTooLong
from kvarn_router.holding import HoldLimits

from tests.support.routing_stack import RoutingStack, eventually, make_request, registered, routing_stack, tokens_of
from tests.support.scripted_source import ScriptedSource, endpoint
from tests.support.scripted_worker import LAYOUT, RENDER, Script, ScriptedWorker, abort_with, scripted_output, served

LONG = HoldLimits(hold_s=60.0)


def held(stack: RoutingStack) -> float | None:
    return stack.sample("kvarn_router_requests_held")


def uncached(stack: RoutingStack) -> float | None:
    return stack.sample("kvarn_router_uncached_tokens_in_flight")


def arrived(stack: RoutingStack) -> float | None:
    return stack.sample("kvarn_router_uncached_tokens_total")


async def test_a_held_request_is_taken_by_the_first_worker_that_appears() -> None:
    async with AsyncExitStack() as exit_stack:
        late = ScriptedWorker("late")
        await exit_stack.enter_async_context(served(late))
        source = ScriptedSource()
        stack = await exit_stack.enter_async_context(routing_stack(source=source, hold=LONG))
        asked = [asyncio.create_task(stack.collect(make_request(name=f"r{number}"))) for number in range(2)]
        await eventually(lambda: held(stack) == 2, "both are held")
        assert (uncached(stack), arrived(stack)) == (18, 18)
        source.set(endpoint(late))
        for answer in asked:
            assert tokens_of(await answer) == scripted_output(9, 6)
        assert (held(stack), uncached(stack), arrived(stack)) == (0, 0, 18)


async def test_a_worker_that_comes_back_into_service_takes_it_too() -> None:
    async with AsyncExitStack() as exit_stack:
        one = ScriptedWorker("one")
        await exit_stack.enter_async_context(served(one))
        source = ScriptedSource(endpoint(one, draining=True))
        stack = await exit_stack.enter_async_context(routing_stack(source=source, hold=LONG))
        await registered(stack, one)
        asked = asyncio.create_task(stack.collect(make_request()))
        await eventually(lambda: held(stack) == 1, "it is held")
        source.set(endpoint(one))
        assert tokens_of(await asked) == scripted_output(9, 6)


async def test_held_requests_spread_over_the_workers_that_are_there() -> None:
    """They wake together, and each sees the load of those that were placed before it."""
    async with AsyncExitStack() as exit_stack:
        workers = [ScriptedWorker(f"w{number}", incarnation=f"life-{number}") for number in range(3)]
        for each in workers:
            await exit_stack.enter_async_context(served(each))
        source = ScriptedSource(*(endpoint(each, draining=True) for each in workers))
        stack = await exit_stack.enter_async_context(routing_stack(source=source, hold=LONG))
        await registered(stack, *workers)
        # Shorter than a block, so that none is drawn to where another one's prefix will be.
        asked = [asyncio.create_task(stack.collect(make_request(prompt=3, name=f"r{number}"))) for number in range(12)]
        await eventually(lambda: held(stack) == 12, "all are held")
        source.set(*(endpoint(each) for each in workers))
        await asyncio.gather(*asked)
        assert [len(each.requests) for each in workers] == [4, 4, 4]


async def test_a_hold_in_vain_is_refused_and_leaves_nothing() -> None:
    async with routing_stack(hold=HoldLimits(hold_s=0.02, retry_after_s=7.0)) as stack:
        with pytest.raises(NoWorker, match=r"within 0\.02 s") as raised:
            await stack.collect(make_request())
        assert raised.value.retry_after_s == 7.0
        assert (held(stack), uncached(stack), arrived(stack)) == (0, 0, 9)


async def test_without_holding_a_request_is_refused_at_once() -> None:
    async with routing_stack(hold=HoldLimits(hold_s=0.0)) as stack:
        with pytest.raises(NoWorker):
            await stack.collect(make_request())
        assert arrived(stack) == 0


async def test_places_are_bounded_and_come_back_when_a_client_leaves() -> None:
    async with routing_stack(hold=HoldLimits(hold_s=60.0, max_held=1)) as stack:
        first = asyncio.create_task(stack.collect(make_request(name="first")))
        await eventually(lambda: held(stack) == 1, "the first is held")
        with pytest.raises(NoWorker, match="1 requests wait"):
            await stack.collect(make_request(name="second"))
        first.cancel()
        await asyncio.wait([first])
        assert (held(stack), uncached(stack)) == (0, 0)
        third = asyncio.create_task(stack.collect(make_request(name="third")))
        await eventually(lambda: held(stack) == 1, "the third has its place")
        third.cancel()
        await asyncio.wait([third])


async def test_a_held_prompt_that_turns_out_too_long_is_refused_then() -> None:
    async with AsyncExitStack() as exit_stack:
        short = ScriptedWorker("short", max_model_len=16)
        await exit_stack.enter_async_context(served(short))
        source = ScriptedSource()
        stack = await exit_stack.enter_async_context(routing_stack(source=source, hold=LONG))
        asked = asyncio.create_task(stack.collect(make_request(prompt=17)))
        await eventually(lambda: held(stack) == 1, "it is held")
        source.set(endpoint(short))
        with pytest.raises(PromptTooLong):
            await asked
        assert held(stack) == 0


async def test_a_stream_without_its_worker_counts_as_held_beyond_the_bound() -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=2, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        lost, late = ScriptedWorker("lost", script=script), ScriptedWorker("late", incarnation="life-2")
        for each in (lost, late):
            await exit_stack.enter_async_context(served(each))
        source = ScriptedSource(endpoint(lost))
        limits = HoldLimits(hold_s=60.0, max_held=0)
        stack = await exit_stack.enter_async_context(routing_stack(source=source, hold=limits))
        await registered(stack, lost)
        asked = asyncio.create_task(stack.collect(make_request()))
        await eventually(lambda: held(stack) == 1, "it waits for another worker")
        assert uncached(stack) == 9 + 2
        source.set(endpoint(lost, draining=True), endpoint(late))
        assert tokens_of(await asked) == scripted_output(9, 6)
        assert (held(stack), uncached(stack), arrived(stack)) == (0, 0, 9)


async def test_uncached_tokens_count_until_the_first_token() -> None:
    async with AsyncExitStack() as exit_stack:
        computed, go_on = asyncio.Event(), asyncio.Event()

        async def prefilling(context: object) -> None:
            computed.set()
            await go_on.wait()

        one = ScriptedWorker("one", script=Script(interrupt_at=0, interruption=prefilling))
        await exit_stack.enter_async_context(served(one))
        root = root_hash(RENDER, LAYOUT.fingerprint, "")
        one.hashes = list(block_hashes(root, make_request().prompt_tokens, LAYOUT.block_size))[:1]
        stack = await exit_stack.enter_async_context(routing_stack(one))
        await registered(stack, one)
        asked = asyncio.create_task(stack.collect(make_request()))
        await computed.wait()
        assert (uncached(stack), arrived(stack)) == (5, 5)
        go_on.set()
        await asked
        assert (uncached(stack), arrived(stack)) == (0, 5)


async def test_predicted_and_real_hits_are_told_in_one_unit_for_requests_that_stayed() -> None:
    async with AsyncExitStack() as exit_stack:
        one = ScriptedWorker("one", script=Script(prefill_cached=8))
        await exit_stack.enter_async_context(served(one))
        root = root_hash(RENDER, LAYOUT.fingerprint, "")
        one.hashes = list(block_hashes(root, make_request().prompt_tokens, LAYOUT.block_size))[:1]
        stack = await exit_stack.enter_async_context(routing_stack(one))
        await registered(stack, one)
        await stack.collect(make_request())
        names = ("prompt_tokens", "predicted_cached_tokens", "cached_tokens")
        assert [stack.sample(f"kvarn_router_{name}_total") for name in names] == [9, 4, 8]


async def test_a_moved_request_tells_nothing_of_predictions() -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=2, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        lost, other = ScriptedWorker("lost", script=script), ScriptedWorker("other", incarnation="life-2")
        for each in (lost, other):
            await exit_stack.enter_async_context(served(each))
        stack = await exit_stack.enter_async_context(routing_stack(lost, other))
        await registered(stack, lost, other)
        next(each for each in stack.table.all() if each.identity.worker_id == "other").in_flight += 1
        await stack.collect(replace(make_request()))
        assert len(other.requests) == 1
        assert stack.sample("kvarn_router_prompt_tokens_total") == 0
