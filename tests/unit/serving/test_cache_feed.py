"""The cache feed: a snapshot and deltas without a gap always add up to what is cached."""

import asyncio
from collections.abc import AsyncIterator

from kvarn_engine.core.block_pool import BlockPool
from kvarn_engine.core.hashing import block_hashes
from kvarn_engine.core.ids import BlockHash
from kvarn_engine.serving.cache_feed import CacheFeedHub, FeedHandle
from kvarn_engine.serving.loop import Outbox
from kvarn_engine.serving.protocol import BlockDelta, CacheSnapshot

from tests.unit.serving.engine_builders import ROOT, generate, prompt, request, runner, running, until


async def follow(known: set[bytes], sequence: int, deltas: AsyncIterator[BlockDelta], until_sequence: int) -> int:
    while sequence < until_sequence:
        delta = await anext(deltas)
        assert delta.sequence == sequence + 1
        assert known.isdisjoint(delta.stored)
        assert known.issuperset(delta.removed)
        known |= set(delta.stored)
        known -= set(delta.removed)
        sequence = delta.sequence
    return sequence


async def test_a_follower_from_any_moment_knows_the_cache() -> None:
    """The pool is small, so that most of what is stored is removed again."""
    async with running(runner(num_blocks=24)) as engine, engine.watch_cache() as early:
        assert (early.snapshot.sequence, early.snapshot.hashes) == (0, ())
        known: set[bytes] = set()
        sequence = 0
        deltas = early.deltas()
        for seed in range(12):
            await asyncio.gather(*(generate(engine, request(prompt(17, seed + part))) for part in (0, 100)))
            await until(lambda: engine.load().blocks_in_use == 0, "blocks are still held")
            async with engine.watch_cache() as late:
                sequence = await follow(known, sequence, deltas, late.snapshot.sequence)
                assert known == set(late.snapshot.hashes)
                assert len(known) == engine.load().blocks_cached
        assert sequence > 12


async def test_stored_hashes_are_the_chain_of_the_tokens() -> None:
    async with running() as engine:
        await generate(engine, request(prompt(12), 1))
        async with engine.watch_cache() as feed:
            assert set(feed.snapshot.hashes) == set(block_hashes(ROOT, prompt(12), 4))


async def test_a_subscriber_that_lags_behind_is_ended() -> None:
    async with running(feed_bound=2) as engine, engine.watch_cache() as feed:
        for seed in range(4):
            await generate(engine, request(prompt(8, seed), 8))
        assert [delta.sequence async for delta in feed.deltas()] == [1, 2]


async def test_stop_ends_the_feed() -> None:
    async with running() as engine, engine.watch_cache() as feed:
        await engine.stop()
        assert [delta async for delta in feed.deltas()] == []


async def test_changes_before_a_subscription_are_in_its_snapshot_alone() -> None:
    pool, outbox = BlockPool(4), Outbox()
    outbox.bind(asyncio.get_running_loop())
    hub = CacheFeedHub(pool, outbox)
    one, two = pool.allocate(2)
    pool.publish(one, BlockHash(b"one"))
    feed = FeedHandle(8)
    hub.add(feed)
    pool.publish(two, BlockHash(b"two"))
    hub.publish()
    outbox.flush()
    await feed.ready
    assert feed.snapshot == CacheSnapshot(1, (BlockHash(b"one"),))
    assert await anext(feed.deltas()) == BlockDelta(2, (BlockHash(b"two"),), ())
