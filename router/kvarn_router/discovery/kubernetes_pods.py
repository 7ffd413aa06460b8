"""Worker source of `--workers-selector`: the pods of a label selector. Owns the thread that the pod watcher blocks."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor

from kvarn_router.discovery.endpoint import Endpoint
from kvarn_router.discovery.pod_api import PodApi
from kvarn_router.discovery.pod_set import PodSet
from kvarn_router.discovery.pod_watcher import PodWatcher, Timing


class KubernetesPods:
    def __init__(self, open_api: Callable[[], PodApi], port_name: str, timing: Timing) -> None:
        self._open_api = open_api
        self._port_name = port_name
        self._timing = timing

    async def snapshots(self) -> AsyncGenerator[tuple[Endpoint, ...], None]:
        loop = asyncio.get_running_loop()
        news: asyncio.Queue[tuple[Endpoint, ...] | None] = asyncio.Queue()

        def publish(endpoints: tuple[Endpoint, ...]) -> None:
            loop.call_soon_threadsafe(news.put_nowait, endpoints)

        api = self._open_api()
        watcher = PodWatcher(api, PodSet(self._port_name), self._timing, publish)
        executor = ThreadPoolExecutor(1, thread_name_prefix="kvarn-pods")
        running = loop.run_in_executor(executor, watcher.run)
        running.add_done_callback(lambda _: news.put_nowait(None))
        try:
            while (endpoints := await news.get()) is not None:
                yield endpoints
            # The watcher never returns by itself: this raises what ended it.
            await running
        finally:
            watcher.stop()
            await asyncio.wait({running})
            executor.shutdown()
            api.close()
