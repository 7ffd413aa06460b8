"""Block pool: holders, states, order of eviction, prefix cache, changes for the feed."""

import pytest
from kvarn_engine.core.block_pool import BlockPool, BlockState
from kvarn_engine.core.ids import BlockHash, BlockIndex


def name(text: str) -> BlockHash:
    return BlockHash(text.encode())


def cached(pool: BlockPool, *names: str) -> list[BlockIndex]:
    """Blocks that held this content as one sequence and were released."""
    blocks = pool.allocate(len(names))
    for block, text in zip(blocks, names, strict=True):
        pool.publish(block, name(text))
    pool.release(blocks)
    return blocks


def test_blocks_without_hash_go_back_to_free() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(2)
    assert (pool.num_available, pool.num_in_use) == (1, 2)
    pool.release(blocks)
    assert [pool.state(block) for block in blocks] == [BlockState.FREE] * 2
    assert pool.num_available == 3
    pool.check_integrity()


def test_tails_are_evicted_before_prefixes_and_old_before_new() -> None:
    pool = BlockPool(4)
    cached(pool, "a0", "a1")
    cached(pool, "b0", "b1")
    for gone in ("a1", "a0", "b1", "b0"):
        assert pool.match([name(gone)])
        pool.allocate(1)
        assert not pool.match([name(gone)])
    pool.check_integrity()


def test_free_blocks_are_used_before_cached_ones() -> None:
    pool = BlockPool(3)
    cached(pool, "a0")
    pool.allocate(2)
    assert pool.match([name("a0")])


def test_a_used_prefix_is_evicted_last() -> None:
    pool = BlockPool(2)
    (first,) = cached(pool, "a")
    cached(pool, "b")
    pool.acquire([first])
    pool.release([first])
    pool.allocate(1)
    assert pool.match([name("a")]) == [first]
    assert pool.match([name("b")]) == []


def test_match_ends_at_the_first_gap() -> None:
    pool = BlockPool(4)
    blocks = cached(pool, "0", "1", "2")
    assert pool.match(map(name, "012")) == blocks
    assert pool.match(map(name, "0x2")) == blocks[:1]
    assert pool.match(map(name, "x12")) == []


def test_a_twin_is_given_back_for_the_cached_block() -> None:
    pool = BlockPool(3)
    first, second = pool.allocate(2)
    assert pool.publish(first, name("a")) == first
    assert pool.publish(second, name("a")) == first
    assert pool.state(second) is BlockState.FREE
    pool.release([first])
    assert pool.state(first) is BlockState.OWNED
    pool.release([first])
    assert pool.state(first) is BlockState.CACHED
    pool.check_integrity()


def test_a_twin_with_two_holders_stays() -> None:
    pool = BlockPool(2)
    first, second = pool.allocate(2)
    pool.acquire([second])
    pool.publish(first, name("a"))
    assert pool.publish(second, name("a")) == second
    pool.release([second])
    pool.release([second])
    assert pool.state(second) is BlockState.FREE


def test_exports_pin_a_block_beyond_its_sequence() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1)
    pool.publish(block, name("a"))
    pool.begin_export([block])
    pool.begin_export([block])
    assert pool.state(block) is BlockState.EXPORTING
    pool.release([block])
    pool.end_export([block])
    assert pool.state(block) is BlockState.EXPORTING
    assert pool.num_available == 0
    pool.end_export([block])
    assert pool.state(block) is BlockState.CACHED
    pool.check_integrity()


def test_importing_blocks_are_not_shared_or_published() -> None:
    pool = BlockPool(1)
    (block,) = pool.allocate(1, BlockState.IMPORTING)
    with pytest.raises(AssertionError):
        pool.publish(block, name("a"))
    with pytest.raises(AssertionError):
        pool.acquire([block])
    with pytest.raises(AssertionError, match="importing to exporting"):
        pool.begin_export([block])
    pool.finish_import(block)
    pool.publish(block, name("a"))
    assert pool.state(block) is BlockState.OWNED


def test_writable_means_alone_and_not_findable() -> None:
    pool = BlockPool(2)
    shared, published = pool.allocate(2)
    assert pool.is_writable(shared)
    pool.acquire([shared])
    pool.publish(published, name("a"))
    assert not pool.is_writable(shared)
    assert not pool.is_writable(published)


def test_changes_are_net() -> None:
    pool = BlockPool(1)
    cached(pool, "a")
    assert pool.drain_changes() == ((name("a"),), ())
    assert pool.drain_changes() == ((), ())
    cached(pool, "b")
    cached(pool, "c")
    assert pool.drain_changes() == ((name("c"),), (name("a"),))
    cached(pool, "d")
    cached(pool, "c")
    assert pool.drain_changes() == ((), ())
    assert pool.hashes == (name("c"),)


def test_defects_are_found() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.check_holders({block: 1})
    with pytest.raises(AssertionError, match="1 references, 0 holders"):
        pool.check_holders({})
    pool.release([block])
    with pytest.raises(AssertionError):
        pool.release([block])
    with pytest.raises(AssertionError):
        pool.allocate(3)
