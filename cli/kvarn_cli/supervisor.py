"""Runs the processes of a plan: starts them, restarts what crashes at the same address, ends all of them.

Called by `up`. It knows nothing of models or HTTP; a process is ready when it logs a line with `ready` and its address.
"""

import asyncio
import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvarn_engine.process.tasks import TaskOwner

from kvarn_cli.backoff import Backoff
from kvarn_cli.child import Child
from kvarn_cli.stack_plan import ProcessPlan

READY_LINE = re.compile(r"\bready\b.*\baddress\b")

LogHandler = Callable[[ProcessPlan, str], None]
ChangeHandler = Callable[[], None]


class Stage(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    CRASHED = "crashed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ProcessView:
    """What others may see of a supervised process."""

    plan: ProcessPlan
    pid: int
    stage: Stage
    restarts: int


class Supervised:
    """One process through all its lives. Owned by the supervisor."""

    def __init__(self, plan: ProcessPlan, on_line: LogHandler, on_change: ChangeHandler) -> None:
        self.plan = plan
        self.stage = Stage.STARTING
        self.restarts = 0
        self.first_ready = asyncio.Event()
        self._child: Child | None = None
        self._stopping = asyncio.Event()
        self._on_line = on_line
        self._on_change = on_change

    @property
    def view(self) -> ProcessView:
        return ProcessView(self.plan, self._child.pid if self._child else 0, self.stage, self.restarts)

    async def keep(self) -> str:
        """Returns "" after `stop`. A process that ends before it was ever ready would end the same way again: then it
        returns the reason."""
        backoff = Backoff()
        clock = asyncio.get_running_loop().time
        while not self._stopping.is_set():
            born = clock()
            status = await self._live()
            if self._stopping.is_set():
                break
            if not self.first_ready.is_set():
                return f"{self.plan.name} ended with status {status} before it was ready"
            delay_s = backoff.delay_s(clock() - born)
            self._on_line(self.plan, f"ended with status {status}; starts again in {delay_s:g} s")
            await self._pause(delay_s)
            self.restarts += 1
        self._enter(Stage.STOPPED)
        return ""

    async def _live(self) -> int:
        self.stage = Stage.STARTING
        self._child = await Child.start(self.plan.command, self.plan.environment, self._on_output)
        self._on_change()
        if self._stopping.is_set():  # stop came while the process was being started
            self._child.terminate()
        try:
            return await self._child.wait()
        finally:
            self._child = None
            self._enter(Stage.CRASHED)

    async def _pause(self, delay_s: float) -> None:
        stopped = asyncio.create_task(self._stopping.wait(), name=f"{self.plan.name}/pause")
        await asyncio.wait({stopped}, timeout=delay_s)
        stopped.cancel()

    def stop(self) -> None:
        self._stopping.set()
        if self._child is not None:
            self._child.terminate()

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    def _on_output(self, line: str) -> None:
        self._on_line(self.plan, line)
        if self.stage is Stage.STARTING and READY_LINE.search(line):
            self.first_ready.set()
            self._enter(Stage.READY)

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._on_change()


class Supervisor:
    """`bring_up`, with `wait_failure` beside it for as long as the stack serves, then always `stop`."""

    def __init__(
        self, plans: Sequence[ProcessPlan], on_line: LogHandler, on_change: ChangeHandler, grace_s: float
    ) -> None:
        self._all = [Supervised(plan, on_line, on_change) for plan in plans]
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._failures: asyncio.Queue[str] = asyncio.Queue()
        self._owner = TaskOwner("supervisor")
        self._grace_s = grace_s

    @property
    def processes(self) -> list[ProcessView]:
        return [each.view for each in self._all]

    async def bring_up(self) -> None:
        """Start all side by side; returns when all are ready."""
        for each in self._all:
            self._tasks[each.plan.name] = self._owner.spawn(self._keep(each), each.plan.name)
        for each in self._all:
            await each.first_ready.wait()

    async def wait_failure(self) -> str:
        """Why a process cannot be kept; waits for as long as all can."""
        return await self._failures.get()

    @property
    def _routers(self) -> list[Supervised]:
        return [each for each in self._all if each.plan.role == "router"]

    @property
    def _workers(self) -> list[Supervised]:
        return [each for each in self._all if each.plan.role != "router"]

    async def _keep(self, process: Supervised) -> None:
        reason = await process.keep()
        if reason:
            self._failures.put_nowait(reason)

    async def stop(self) -> None:
        """The router first, so that no request arrives while the workers end; who outlives the grace is killed."""
        await self._stop_these(self._routers)
        await self._stop_these(self._workers)
        await self._owner.stop()

    def kill(self) -> None:
        """At once, without grace."""
        for each in self._all:
            each.stop()
            each.kill()

    async def _stop_these(self, members: list[Supervised]) -> None:
        tasks = [self._tasks[each.plan.name] for each in members if each.plan.name in self._tasks]
        for each in members:
            each.stop()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._grace_s)
            for each in members:
                if self._tasks.get(each.plan.name) in late:
                    each.kill()
            if late:
                await asyncio.wait(late)
