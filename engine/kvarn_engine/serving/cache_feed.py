"""Subscriptions to the prefix cache: a snapshot, then every delta after it.

`CacheFeedHub` lives on the step thread; each `FeedHandle` lives on the event loop.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from kvarn_engine.core.block_pool import BlockPool
from kvarn_engine.serving.loop import Outbox
from kvarn_engine.serving.protocol import BlockDelta, CacheSnapshot


class FeedHandle:
    """`CacheFeed` for one subscriber. Its deltas end when the subscriber lags behind by more than `bound` of them, or
    when the engine stops; the subscriber then asks for a new snapshot."""

    def __init__(self, bound: int) -> None:
        self.snapshot = CacheSnapshot(0, ())
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._bound = bound
        self._deltas: asyncio.Queue[BlockDelta | None] = asyncio.Queue()
        self._is_over = False

    def deltas(self) -> AsyncIterator[BlockDelta]:
        return self._iterate()

    def on_snapshot(self, snapshot: CacheSnapshot) -> None:
        self.snapshot = snapshot
        if not self.ready.done():
            self.ready.set_result(None)

    def on_delta(self, delta: BlockDelta) -> None:
        if self._is_over:
            return
        if self._deltas.qsize() >= self._bound:
            self.end()
        else:
            self._deltas.put_nowait(delta)

    def end(self) -> None:
        self._is_over = True
        self._deltas.put_nowait(None)

    async def _iterate(self) -> AsyncIterator[BlockDelta]:
        while (delta := await self._deltas.get()) is not None:
            yield delta


class CacheFeedHub:
    def __init__(self, pool: BlockPool, outbox: Outbox) -> None:
        self._pool = pool
        self._outbox = outbox
        self._sequence = 0
        self._feeds: list[FeedHandle] = []

    def add(self, feed: FeedHandle) -> None:
        self.publish()
        self._feeds.append(feed)
        self._outbox.post(partial(feed.on_snapshot, CacheSnapshot(self._sequence, self._pool.hashes)))

    def remove(self, feed: FeedHandle) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)

    def publish(self) -> None:
        """Send what changed in the cache since the last call, if anything did."""
        stored, removed = self._pool.drain_changes()
        if not stored and not removed:
            return
        self._sequence += 1
        delta = BlockDelta(self._sequence, stored, removed)
        for feed in self._feeds:
            self._outbox.post(partial(feed.on_delta, delta))

    def end(self) -> None:
        for feed in self._feeds:
            self._outbox.post(feed.end)
        self._feeds = []
