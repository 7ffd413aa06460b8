"""Runs the schedule: at most so many keys at once, each key in one task at a time. Owned by the composition root.

The work of one key may fail in any way without the others noticing; a failure waits, and is tried again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, Protocol, TypeVar

from kvarn_engine.process.tasks import TaskOwner

from kvarn_operator.cluster.errors import ClusterError, NotLeading, Refused
from kvarn_operator.cluster.schedule import Ending, KeyedSchedule, Outcome

Key = TypeVar("Key", bound=Hashable)

logger = logging.getLogger("kvarn.operator.queue")


class Meter(Protocol):
    def reconciled(self, ending: Ending, duration_s: float) -> None: ...


class WorkQueue(Generic[Key]):
    def __init__(
        self,
        schedule: KeyedSchedule[Key],
        work: Callable[[Key], Awaitable[Outcome]],
        limit: int,
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule = schedule
        self._work = work
        self._limit = limit
        self._meter = meter
        self._clock = clock
        self._changed = asyncio.Event()
        self._running = 0
        self._active = False

    def add(self, key: Key, after_s: float = 0.0) -> None:
        """While the queue does not run, nothing is kept: whoever starts it adds all keys."""
        if self._active:
            self._schedule.add(key, self._clock() + after_s)
            self._changed.set()

    async def run(self, keys: tuple[Key, ...]) -> None:
        """Until cancelled; then the work that runs is cancelled too."""
        self._active = True
        for key in keys:
            self.add(key)
        try:
            async with TaskOwner("reconcile") as tasks:
                while True:
                    self._changed.clear()
                    self._start_ready(tasks)
                    await self._pause()
        finally:
            self._active = False
            self._running = 0
            self._schedule.drop()

    def depth(self) -> int:
        return self._schedule.depth(self._clock())

    def oldest_s(self) -> float:
        return self._schedule.oldest_s(self._clock())

    def _start_ready(self, tasks: TaskOwner) -> None:
        while self._running < self._limit and (key := self._schedule.start_next(self._clock())) is not None:
            self._running += 1
            tasks.spawn(self._process(key), str(key))

    async def _pause(self) -> None:
        """Until a key is ready, added or finished. With all hands busy only a finish matters."""
        next_at = self._schedule.next_at() if self._running < self._limit else None
        try:
            async with asyncio.timeout(None if next_at is None else max(0.0, next_at - self._clock())):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _process(self, key: Key) -> None:
        started = self._clock()
        outcome = await self._outcome(key)
        self._running -= 1
        self._schedule.finish(key, self._clock(), outcome)
        self._meter.reconciled(outcome.ending, self._clock() - started)
        if self._schedule.is_restless(key):
            logger.warning("does not come to rest, slowed down", extra={"key": str(key)})
        self._changed.set()

    async def _outcome(self, key: Key) -> Outcome:
        try:
            return await self._work(key)
        except NotLeading:
            logger.info("not carried out, no longer leading", extra={"key": str(key)})
            return Outcome(Ending.FAILED)
        except Refused as error:
            logger.warning("not everything carried out", extra={"key": str(key), "reason": str(error)})
            return Outcome(Ending.REFUSED)
        except ClusterError as error:
            logger.warning("reconcile failed", extra={"key": str(key), "reason": str(error)})
            return Outcome(Ending.FAILED, error.retry_after_s)
        except Exception:
            logger.exception("reconcile is defective", extra={"key": str(key)})
            return Outcome(Ending.FAILED)
