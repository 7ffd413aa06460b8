"""Keeps a watch running: begins anew when it breaks, or when the lists show that it has gone deaf.

It keeps nothing that matters: what a watch misses, the regular lists find. Owned by the composition root.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kvarn_operator.cluster.watch_thread import WatchThread

logger = logging.getLogger("kvarn.operator.watching")


@dataclass(frozen=True, slots=True)
class WatchTimes:
    deaf_s: float = 120.0
    """A watch that keeps silent for this long about what the lists show is replaced."""

    look_s: float = 1.0
    """Time between two looks at that."""

    backoff_min_s: float = 1.0
    backoff_max_s: float = 30.0


class Meter(Protocol):
    def watch_restarted(self) -> None: ...


class Watching:
    def __init__(
        self,
        open_watch: Callable[[], WatchThread],
        silence_s: Callable[[], float],
        meter: Meter,
        times: WatchTimes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`silence_s` tells for how long the lists have shown something that no watch has told."""
        self._open_watch = open_watch
        self._silence_s = silence_s
        self._meter = meter
        self._times = times
        self._clock = clock

    async def run(self) -> None:
        """Until cancelled."""
        failures = 0
        while True:
            started = self._clock()
            watch = self._open_watch()
            watch.start()
            try:
                reason = await self._until_over(watch, started)
            finally:
                await watch.stop()
            logger.warning("the watch begins anew", extra={"reason": reason})
            self._meter.watch_restarted()
            lasted = self._clock() - started > self._times.backoff_max_s
            failures = 1 if lasted else min(failures + 1, 16)
            limit = min(self._times.backoff_max_s, self._times.backoff_min_s * 2.0 ** (failures - 1))
            await asyncio.sleep(limit * (1.0 - random.random() / 2))

    async def _until_over(self, watch: WatchThread, started: float) -> str:
        """Silence from before this watch counts against it only after it had the same time."""
        while not watch.ended.is_set():
            silence_s = min(self._silence_s(), self._clock() - started)
            if silence_s > self._times.deaf_s:
                return f"deaf for {silence_s:.0f} s"
            try:
                async with asyncio.timeout(self._times.look_s):
                    await watch.ended.wait()
            except TimeoutError:
                continue
        return watch.reason
