"""What runs only while this process leads: the queue and the sampler. Started and ended by the election's verdicts."""

import asyncio
from collections.abc import Callable

from kvarn_engine.process.tasks import FailureHandler, TaskOwner

from kvarn_operator.cluster.mirror import ServiceKey
from kvarn_operator.cluster.sampler import Sampler
from kvarn_operator.cluster.work_queue import WorkQueue


class Acting:
    def __init__(
        self,
        queue: WorkQueue[ServiceKey],
        sampler: Sampler,
        keys: Callable[[], tuple[ServiceKey, ...]],
        on_failure: FailureHandler,
    ) -> None:
        self._queue = queue
        self._sampler = sampler
        self._keys = keys
        self._on_failure = on_failure
        self._leads = False
        self._changed = asyncio.Event()

    def set_leading(self, leads: bool) -> None:
        self._leads = leads
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled. Every model is reconciled when the leading begins."""
        while True:
            await self._until(True)
            async with TaskOwner("acting", self._on_failure) as tasks:
                tasks.spawn(self._queue.run(self._keys()), "queue", forever=True)
                tasks.spawn(self._sampler.run(), "sampler", forever=True)
                await self._until(False)

    async def _until(self, leads: bool) -> None:
        while self._leads is not leads:
            self._changed.clear()
            await self._changed.wait()
