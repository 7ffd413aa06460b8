"""One task for each endpoint that a worker source names: started, cordoned and ended as the set changes. Used by the
registrar, which says what such a task does.

An endpoint that vanishes while its worker is connected is cordoned first and left once it is idle: its streams finish,
or move by themselves when the worker really goes. One whose address belongs to another endpoint now is left at once.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass

from kvarn_engine.process.tasks import TaskOwner

from kvarn_router.discovery.endpoint import Endpoint, EndpointKey, WorkerSource
from kvarn_router.workers import LiveWorker, WorkerTable

logger = logging.getLogger("kvarn.router.discovery")


@dataclass(slots=True, eq=False)
class Followed:
    endpoint: Endpoint
    vanished: bool = False
    worker: LiveWorker | None = None
    """While one is let in; written by the registrar."""

    task: asyncio.Task[None] | None = None
    release: asyncio.Task[None] | None = None
    """Waits for a vanished endpoint's worker to be idle."""

    @property
    def cordoned(self) -> bool:
        return self.vanished or self.endpoint.draining


_Place = tuple[EndpointKey, str]
"""Key and address: a pod whose address changes is connected anew."""


class Followers:
    def __init__(
        self, follow: Callable[[Followed], Coroutine[object, object, None]], table: WorkerTable, tasks: TaskOwner
    ) -> None:
        """`follow` may end only once its endpoint has vanished."""
        self._follow = follow
        self._table = table
        self._tasks = tasks
        self._wanted: dict[_Place, Endpoint] = {}
        self._followed: dict[_Place, Followed] = {}
        self._stopping = False

    def start(self, source: WorkerSource) -> None:
        self._tasks.spawn(self._run(source), "source")

    async def stop(self) -> None:
        self._stopping = True
        await self._tasks.stop()

    async def _run(self, source: WorkerSource) -> None:
        async with aclosing(source.snapshots()) as snapshots:
            async for endpoints in snapshots:
                draining = sum(endpoint.draining for endpoint in endpoints)
                logger.info("endpoints", extra={"count": len(endpoints), "draining": draining})
                self._wanted = {(endpoint.key, endpoint.address): endpoint for endpoint in endpoints}
                self._match()

    def _match(self) -> None:
        """Bring what is followed towards what is wanted. Called again whenever a task has ended."""
        wanted_addresses = {address for _, address in self._wanted}
        for place, followed in self._followed.items():
            endpoint = self._wanted.get(place)
            if endpoint is not None:
                self._keep(followed, endpoint)
            else:
                self._leave(followed, at_once=place[1] in wanted_addresses)
        busy = {address for _, address in self._followed}
        for place, endpoint in self._wanted.items():
            if place[1] not in busy:
                busy.add(place[1])
                self._begin(place, endpoint)

    def _begin(self, place: _Place, endpoint: Endpoint) -> None:
        followed = self._followed[place] = Followed(endpoint)
        followed.task = self._tasks.spawn(self._follow(followed), endpoint.address)
        followed.task.add_done_callback(lambda task: self._on_end(place, task))

    def _keep(self, followed: Followed, endpoint: Endpoint) -> None:
        if followed.release is not None:
            followed.release.cancel()
            followed.release = None
        followed.endpoint, followed.vanished = endpoint, False
        self._cordon(followed)

    def _leave(self, followed: Followed, at_once: bool) -> None:
        assert followed.task is not None
        followed.vanished = True
        self._cordon(followed)
        if followed.task.cancelling():
            return
        if at_once or followed.worker is None:
            followed.task.cancel()
        elif followed.release is None:
            name = f"release/{followed.endpoint.address}"
            followed.release = self._tasks.spawn(self._release(followed.task, followed.worker), name)

    async def _release(self, task: asyncio.Task[None], worker: LiveWorker) -> None:
        await worker.wait_idle()
        task.cancel()

    def _cordon(self, followed: Followed) -> None:
        if followed.worker is not None:
            self._table.cordon(followed.worker.identity.incarnation, followed.cordoned)

    def _on_end(self, place: _Place, task: "asyncio.Task[None]") -> None:
        followed = self._followed.pop(place)
        if followed.release is not None:
            followed.release.cancel()
        is_failure = not task.cancelled() and task.exception() is not None
        # A failure is reported by the owner of the tasks and ends the process; it is not begun again.
        if not (self._stopping or is_failure):
            self._table.forget_refusal(place[1])
            self._match()
