"""The registrar follows a source: over real workers on loopback, while the set of endpoints changes under it."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from kvarn_engine.core.ids import Incarnation, WorkerId
from kvarn_router.discovery.endpoint import Endpoint, EndpointKey
from kvarn_router.workers import Role

from tests.support.routing_stack import (
    RoutingStack,
    eventually,
    make_request,
    registered,
    routing_stack,
    tokens_of,
)
from tests.support.scripted_source import ScriptedSource, endpoint
from tests.support.scripted_worker import Script, ScriptedWorker, scripted_output, served


def candidates(stack: RoutingStack) -> list[str]:
    return sorted(worker.identity.worker_id for worker in stack.table.candidates(Role.DECODE))


async def test_draining_endpoint_is_registered_but_gets_no_work_until_it_recovers() -> None:
    a, b = ScriptedWorker("a", incarnation="a1"), ScriptedWorker("b", incarnation="b1")
    async with served(a), served(b):
        source = ScriptedSource(endpoint(a, draining=True), endpoint(b))
        async with routing_stack(source=source) as stack:
            await registered(stack, a, b)
            assert candidates(stack) == ["b"]
            source.set(endpoint(a), endpoint(b, draining=True))
            await eventually(lambda: candidates(stack) == ["a"], "the other way round")


async def test_vanished_worker_finishes_its_stream_and_then_is_left() -> None:
    go_on = asyncio.Event()
    a = ScriptedWorker("a", script=Script(interrupt_at=2, interruption=lambda _: go_on.wait()))
    async with served(a):
        source = ScriptedSource(endpoint(a))
        async with routing_stack(source=source) as stack:
            await registered(stack, a)
            request = make_request()
            answer = asyncio.create_task(stack.collect(request), name="answer")
            await eventually(lambda: a.running == 1, "the stream")
            source.set()
            await eventually(lambda: candidates(stack) == [], "the cordon")
            assert len(stack.table.all()) == 1
            go_on.set()
            assert tokens_of(await answer) == scripted_output(len(request.prompt_tokens), 6)
            assert len(a.requests) == 1
            await eventually(lambda: stack.table.all() == (), "the end")
            source.set(endpoint(a))
            await registered(stack, a)


async def test_vanished_endpoint_that_returns_keeps_its_worker() -> None:
    go_on = asyncio.Event()
    a = ScriptedWorker("a", script=Script(interrupt_at=2, interruption=lambda _: go_on.wait()))
    async with served(a):
        source = ScriptedSource(endpoint(a))
        async with routing_stack(source=source) as stack:
            await registered(stack, a)
            answer = asyncio.create_task(stack.collect(make_request()), name="answer")
            await eventually(lambda: a.running == 1, "the stream")
            source.set()
            await eventually(lambda: candidates(stack) == [], "the cordon")
            source.set(endpoint(a))
            await eventually(lambda: candidates(stack) == ["a"], "the return")
            go_on.set()
            await answer
            assert a.watchers == 1


async def test_address_under_another_key_is_connected_anew() -> None:
    old = ScriptedWorker("old", incarnation="old-1")
    async with served(old):
        source = ScriptedSource(endpoint(old, "uid-1"))
        async with routing_stack(source=source) as stack:
            await registered(stack, old)
            source.set(endpoint(old, "uid-2"))
            await eventually(lambda: old.watchers == 2 and candidates(stack) == ["old"], "a second registration")


async def test_address_that_passed_to_a_worker_of_another_model_is_not_mixed_in() -> None:
    """Before the router hears that its pod is gone. It renders alike, so that nothing else tells them apart."""
    ours = ScriptedWorker("ours", incarnation="ours-1")
    source = ScriptedSource()
    async with AsyncExitStack() as exit_stack:
        server = await exit_stack.enter_async_context(served(ours))
        stack = await exit_stack.enter_async_context(routing_stack(source=source))
        source.set(endpoint(ours, worker_id=WorkerId("ours")))
        await registered(stack, ours)
        await server.stop(None)
        theirs = ScriptedWorker("theirs", incarnation="theirs-1", address=ours.address)
        await exit_stack.enter_async_context(served(theirs))
        reason = "worker theirs answers at the address of ours"
        await eventually(lambda: stack.table.refusals == ((ours.address, reason),), "it is refused")
        assert (stack.table.all(), theirs.watchers, theirs.requests) == ((), 0, [])
        source.set()
        await eventually(lambda: stack.table.refusals == (), "and forgotten")


async def test_a_worker_that_is_refused_for_days_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stranger = ScriptedWorker("stranger", render="another tokenizer")
    async with served(stranger), routing_stack(source=ScriptedSource(endpoint(stranger))) as stack:
        await eventually(lambda: (stack.sample("kvarn_router_workers_refused_total") or 0) >= 4, "it is asked again")
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == ["worker refused"]


async def test_workers_that_come_and_go_leave_nothing_behind() -> None:
    """Weeks of new pods, each with a UID, an address and an incarnation of its own."""
    source = ScriptedSource()
    before = asyncio.all_tasks()
    async with routing_stack(source=source) as stack:
        at_rest = names_of(asyncio.all_tasks() - before)
        assert "registration/source" in at_rest
        series = series_of(stack)
        for number in range(5):
            come, refused = ScriptedWorker(f"w{number}", incarnation=f"life-{number}"), ScriptedWorker("s", render="x")
            come.hashes.append(bytes(16))
            async with served(come), served(refused):
                source.set(endpoint(come), endpoint(refused))
                await registered(stack, come)
                await eventually(lambda: bool(stack.table.refusals), "the stranger is refused")
                await stack.collect(make_request(name=f"r{number}"))
                source.set()
                await eventually(lambda: not stack.table.all() and not stack.table.refusals, "both are forgotten")
            assert (stack.index.sequence(Incarnation(come.incarnation)), come.running) == (-1, 0)
        await eventually(lambda: names_of(asyncio.all_tasks() - before) == at_rest, "no task is left")
        assert series_of(stack) == series


def names_of(tasks: set["asyncio.Task[object]"]) -> set[str]:
    return {task.get_name() for task in tasks}


def series_of(stack: RoutingStack) -> set[tuple[str, str]]:
    samples = (sample for metric in stack.registry.collect() for sample in metric.samples)
    return {(sample.name, str(sorted(sample.labels.items()))) for sample in samples}


async def test_endpoint_that_nobody_serves_is_left_at_once() -> None:
    source = ScriptedSource(Endpoint(EndpointKey("x"), "127.0.0.1:9"))
    before = asyncio.all_tasks()
    async with routing_stack(source=source):
        await eventually(lambda: any("127.0.0.1:9" in task.get_name() for task in asyncio.all_tasks()), "the task")
        source.set()
        await eventually(lambda: not any("127.0.0.1:9" in task.get_name() for task in asyncio.all_tasks()), "its end")
    assert asyncio.all_tasks() == before
