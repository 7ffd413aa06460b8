"""The queue's tasks: real event loop, works that wait at gates."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from kvarn_operator.cluster.errors import NotLeading, Refused
from kvarn_operator.cluster.schedule import Ending, KeyedSchedule, Outcome, Pacing
from kvarn_operator.cluster.work_queue import WorkQueue

SETTLED = Outcome(Ending.SETTLED)
NEVER_AGAIN_S = 3600.0


class Endings:
    def __init__(self) -> None:
        self.seen: list[Ending] = []
        self.changed = asyncio.Event()

    def reconciled(self, ending: Ending, duration_s: float) -> None:
        self.seen.append(ending)
        self.changed.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.seen) < count:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def running(
    work: Callable[[str], Awaitable[Outcome]], keys: tuple[str, ...] = (), limit: int = 2
) -> AsyncIterator[tuple[WorkQueue[str], Endings]]:
    meter = Endings()
    pacing = Pacing(backoff_min_s=NEVER_AGAIN_S, backoff_max_s=NEVER_AGAIN_S)
    queue: WorkQueue[str] = WorkQueue(KeyedSchedule(pacing, lambda: 0.0), work, limit, meter)
    task = asyncio.create_task(queue.run(keys), name="queue")
    await asyncio.sleep(0)
    try:
        yield queue, meter
    finally:
        task.cancel()
        await asyncio.wait([task])


class Gate:
    """Works that stop inside until told to go on."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self.most = 0
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def work(self, key: str) -> Outcome:
        self.inside[key] += 1
        self.total[key] += 1
        self.most = max(self.most, self.inside.total())
        assert self.inside[key] == 1
        self.entered.set()
        await self.open.wait()
        self.inside[key] -= 1
        return SETTLED

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self.total.total() < count:
                self.entered.clear()
                await self.entered.wait()


async def test_all_keys_given_at_the_start_are_worked_on() -> None:
    gate = Gate()
    gate.open.set()
    async with running(gate.work, ("a", "b", "c")) as (_, meter):
        await meter.until(3)
    assert gate.total == {"a": 1, "b": 1, "c": 1}


async def test_no_more_keys_at_once_than_the_limit_and_no_key_twice() -> None:
    gate = Gate()
    async with running(gate.work, ("a", "b", "c"), limit=2) as (queue, meter):
        await gate.until(2)
        queue.add("a")
        queue.add("a")
        assert queue.depth() == 3
        gate.open.set()
        await meter.until(4)
    assert gate.most == 2
    assert gate.total == {"a": 2, "b": 1, "c": 1}


async def test_a_defect_in_one_key_stops_neither_the_queue_nor_the_others() -> None:
    async def work(key: str) -> Outcome:
        if key == "defect":
            raise ZeroDivisionError
        if key == "refused":
            raise Refused("over quota")
        if key == "fenced":
            raise NotLeading("lost")
        return SETTLED

    async with running(work, ("defect", "refused", "fenced")) as (queue, meter):
        await meter.until(3)
        queue.add("good")
        await meter.until(4)
    assert meter.seen == [Ending.FAILED, Ending.REFUSED, Ending.FAILED, Ending.SETTLED]


async def test_the_end_of_the_queue_ends_its_works_and_it_keeps_nothing() -> None:
    gate = Gate()
    async with running(gate.work, ("a",)) as (queue, meter):
        await gate.until(1)
    queue.add("b")
    assert queue.depth() == 0
    assert meter.seen == []
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("reconcile/")]


async def test_a_key_of_later_does_not_keep_one_of_now_waiting() -> None:
    gate = Gate()
    gate.open.set()
    async with running(gate.work) as (queue, meter):
        queue.add("later", after_s=NEVER_AGAIN_S)
        await asyncio.sleep(0)
        queue.add("now")
        await meter.until(1)
    assert gate.total == {"now": 1}
