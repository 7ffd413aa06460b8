"""A worker source whose set of endpoints the test changes while a router follows it."""

import asyncio
from collections.abc import AsyncGenerator

from kvarn_engine.core.ids import WorkerId
from kvarn_router.discovery.endpoint import Endpoint, EndpointKey

from tests.support.scripted_worker import ScriptedWorker


class ScriptedSource:
    def __init__(self, *endpoints: Endpoint) -> None:
        self._news: asyncio.Queue[tuple[Endpoint, ...]] = asyncio.Queue()
        self.set(*endpoints)

    def set(self, *endpoints: Endpoint) -> None:
        self._news.put_nowait(endpoints)

    async def snapshots(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        while True:
            yield await self._news.get()


def endpoint(
    worker: ScriptedWorker, key: str = "", draining: bool = False, worker_id: WorkerId | None = None
) -> Endpoint:
    return Endpoint(EndpointKey(key or worker.worker_id), worker.address, draining, worker_id)
