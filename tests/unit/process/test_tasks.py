"""Owned tasks: they end with their owner, and failures do not stay unseen."""

import asyncio

from kvarn_engine.process.tasks import TaskOwner


class Reports:
    def __init__(self) -> None:
        self.seen: list[tuple[str, BaseException | None]] = []
        self.arrived = asyncio.Event()

    def __call__(self, name: str, error: BaseException | None) -> None:
        self.seen.append((name, error))
        self.arrived.set()


async def wait_forever() -> None:
    await asyncio.Event().wait()


async def return_now() -> str:
    return "done"


async def fail() -> None:
    raise LookupError("gone")


async def test_stop_ends_every_task_and_reports_nothing() -> None:
    reports = Reports()
    owner = TaskOwner("owner", reports)
    tasks = [owner.spawn(wait_forever(), f"t{i}", forever=True) for i in range(3)]
    assert owner.names == ["owner/t0", "owner/t1", "owner/t2"]
    await owner.stop()
    assert all(task.cancelled() for task in tasks)
    assert owner.names == []
    assert reports.seen == []
    await owner.stop()


async def test_results_pass_through() -> None:
    async with TaskOwner("owner") as owner:
        assert await owner.spawn(return_now(), "quick") == "done"


async def test_an_exception_is_reported_with_the_name() -> None:
    reports = Reports()
    async with TaskOwner("owner", reports) as owner:
        owner.spawn(fail(), "loop")
        await reports.arrived.wait()
    ((name, error),) = reports.seen
    assert name == "owner/loop"
    assert isinstance(error, LookupError)


async def test_a_forever_task_that_returns_is_reported() -> None:
    reports = Reports()
    async with TaskOwner("owner", reports) as owner:
        owner.spawn(return_now(), "watch", forever=True)
        await reports.arrived.wait()
    assert reports.seen == [("owner/watch", None)]


async def test_a_task_may_stop_its_own_owner() -> None:
    owner = TaskOwner("owner")
    other = owner.spawn(wait_forever(), "other")
    await asyncio.wait_for(owner.spawn(owner.stop(), "stopper"), timeout=10)
    assert other.cancelled()
