"""Ownership of asyncio tasks: each has a name, an owner and an end.

A component that runs tasks in the background holds one TaskOwner and stops it in its own `stop`. A task that ends by an
exception, or a `forever` task that ends at all, is logged and reported to `on_failure`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self, TypeVar

ResultT = TypeVar("ResultT")

logger = logging.getLogger("kvarn.tasks")

FailureHandler = Callable[[str, BaseException | None], None]
"""Gets the task's name and its exception; None when a `forever` task returned."""


class TaskOwner:
    def __init__(self, name: str, on_failure: FailureHandler | None = None) -> None:
        self._name = name
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[object], bool] = {}  # task -> it must not end by itself
        self._stopping = False

    def spawn(
        self, coroutine: Coroutine[object, object, ResultT], name: str, forever: bool = False
    ) -> asyncio.Task[ResultT]:
        assert not self._stopping, f"{self._name} spawns {name} after its stop"
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self._name}/{name}")
        self._tasks[task] = forever
        task.add_done_callback(self._on_done)
        return task

    @property
    def names(self) -> list[str]:
        """Of the tasks that run now."""
        return sorted(task.get_name() for task in self._tasks)

    async def stop(self) -> None:
        """Cancel what still runs and wait for it. Safe to call twice."""
        self._stopping = True
        current = asyncio.current_task()
        running = [task for task in self._tasks if task is not current]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _on_done(self, task: "asyncio.Task[object]") -> None:
        forever = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error("task failed", extra={"task": task.get_name()}, exc_info=error)
        elif forever and not self._stopping and not task.cancelled():
            logger.error("task ended early", extra={"task": task.get_name()})
        else:
            return
        if self._on_failure is not None:
            self._on_failure(task.get_name(), error)
