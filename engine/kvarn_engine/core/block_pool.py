"""Who holds which KV block, and which complete blocks can be found by hash.

Called by `KvManager` only. Knows block numbers and hashes; knows neither tokens, sequences nor the bytes in a block.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from kvarn_engine.core.ids import BlockHash, BlockIndex


class BlockState(Enum):
    FREE = "free"
    """Nobody holds it and its content means nothing."""

    OWNED = "owned"
    """Held by one or more sequences."""

    IMPORTING = "importing"
    """Held by one sequence; a peer may be writing into it."""

    EXPORTING = "exporting"
    """Complete, and pinned by at least one hand-off beside the sequences that hold it."""

    CACHED = "cached"
    """Nobody holds it; complete, found by its hash, evicted when room is needed."""


_B = BlockState

TRANSITIONS: Mapping[BlockState, frozenset[BlockState]] = MappingProxyType({
    _B.FREE: frozenset({_B.OWNED, _B.IMPORTING}),
    _B.OWNED: frozenset({_B.FREE, _B.CACHED, _B.EXPORTING}),
    _B.IMPORTING: frozenset({_B.OWNED, _B.FREE}),
    _B.EXPORTING: frozenset({_B.OWNED}),
    _B.CACHED: frozenset({_B.OWNED, _B.FREE}),
})


class CacheChanges(NamedTuple):
    """Hashes that came to and went from the prefix cache since the last drain; none is in both."""

    stored: tuple[BlockHash, ...]
    removed: tuple[BlockHash, ...]


@dataclass(slots=True)
class _Block:
    state: BlockState = BlockState.FREE
    refs: int = 0
    exports: int = 0
    hash: BlockHash | None = None


class BlockPool:
    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0
        self._blocks = [_Block() for _ in range(num_blocks)]
        self._free: deque[BlockIndex] = deque(BlockIndex(index) for index in range(num_blocks))
        self._cached: OrderedDict[BlockIndex, None] = OrderedDict()
        """Evictable blocks, the first to go first."""

        self._by_hash: dict[BlockHash, BlockIndex] = {}
        self._changes: dict[BlockHash, bool] = {}
        """Net change for each hash since the last drain: True is stored."""

    # ---- what there is ----

    @property
    def num_blocks(self) -> int:
        return len(self._blocks)

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give, cached ones included."""
        return len(self._free) + len(self._cached)

    @property
    def num_cached(self) -> int:
        return len(self._cached)

    @property
    def num_in_use(self) -> int:
        return self.num_blocks - self.num_available

    @property
    def hashes(self) -> tuple[BlockHash, ...]:
        return tuple(self._by_hash)

    def state(self, index: BlockIndex) -> BlockState:
        return self._blocks[index].state

    def is_held(self, index: BlockIndex) -> bool:
        return self._blocks[index].refs > 0

    def is_writable(self, index: BlockIndex) -> bool:
        """Held by exactly one sequence, and not to be found by anybody else."""
        block = self._blocks[index]
        return block.refs == 1 and block.exports == 0 and block.hash is None

    def match(self, hashes: Iterable[BlockHash]) -> list[BlockIndex]:
        """The longest run of leading hashes that are in the cache. Takes nothing."""
        found: list[BlockIndex] = []
        for block_hash in hashes:
            index = self._by_hash.get(block_hash)
            if index is None:
                break
            found.append(index)
        return found

    # ---- holding and letting go ----

    def allocate(self, count: int, state: BlockState = BlockState.OWNED) -> list[BlockIndex]:
        """`count` blocks with one holder each. The caller has checked `num_available`."""
        assert count <= self.num_available
        return [self._take_one(state) for _ in range(count)]

    def acquire(self, indexes: Iterable[BlockIndex]) -> None:
        """One more holder for each of these complete or shared blocks."""
        for index in indexes:
            block = self._blocks[index]
            assert block.state not in (BlockState.FREE, BlockState.IMPORTING)
            if block.state is BlockState.CACHED:
                del self._cached[index]
                self._move(block, BlockState.OWNED)
            block.refs += 1

    def release(self, indexes: Sequence[BlockIndex]) -> None:
        """One holder less, last block first: tails are evicted before the prefixes that more requests share."""
        for index in reversed(indexes):
            block = self._blocks[index]
            assert block.refs > block.exports
            block.refs -= 1
            if block.refs == 0:
                self._retire(index, block)

    def finish_import(self, index: BlockIndex) -> None:
        self._move(self._blocks[index], BlockState.OWNED)

    def begin_export(self, indexes: Iterable[BlockIndex]) -> None:
        for index in indexes:
            block = self._blocks[index]
            if block.exports == 0:
                self._move(block, BlockState.EXPORTING)
            block.exports += 1
            block.refs += 1

    def end_export(self, indexes: Sequence[BlockIndex]) -> None:
        for index in reversed(indexes):
            block = self._blocks[index]
            assert block.exports > 0
            block.exports -= 1
            if block.exports == 0:
                self._move(block, BlockState.OWNED)
            self.release([index])

    # ---- the prefix cache ----

    def publish(self, index: BlockIndex, block_hash: BlockHash) -> BlockIndex:
        """Make a complete block findable. When the cache has its content already, the holder moves to that block and
        this one goes back; a block with further holders stays as it is. Returns the block to hold from now on."""
        block = self._blocks[index]
        assert block.refs > 0
        assert block.state is not BlockState.IMPORTING
        known = self._by_hash.get(block_hash)
        if known is None:
            if block.hash is None:
                block.hash = block_hash
                self._by_hash[block_hash] = index
                self._record(block_hash, stored=True)
            return index
        if known == index or block.refs > 1:
            return index
        self.acquire([known])
        self.release([index])
        return known

    def drain_changes(self) -> CacheChanges:
        changes, self._changes = self._changes, {}
        return CacheChanges(
            stored=tuple(block_hash for block_hash, stored in changes.items() if stored),
            removed=tuple(block_hash for block_hash, stored in changes.items() if not stored),
        )

    def check_integrity(self) -> None:
        """Raise AssertionError when the lists, the counts and the states of the blocks contradict each other."""
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a block is twice in the free list"
        for number, block in enumerate(self._blocks):
            index = BlockIndex(number)
            assert (index in free) == (block.state is BlockState.FREE), f"block {index}: free list against state"
            assert (index in cached) == (block.state is BlockState.CACHED), f"block {index}: cache list against state"
            assert (block.refs == 0) == (block.state in (BlockState.FREE, BlockState.CACHED)), f"block {index}: holders"
            assert (block.exports > 0) == (block.state is BlockState.EXPORTING), f"block {index}: exports"
            assert block.refs >= block.exports, f"block {index}: more exports than holders"
            if block.state in (BlockState.FREE, BlockState.IMPORTING):
                assert block.hash is None, f"block {index}: {block.state.value} with a hash"
            if block.state is BlockState.CACHED:
                assert block.hash is not None, f"block {index}: cached without a hash"
            if block.hash is not None:
                assert self._by_hash.get(block.hash) == index, f"block {index}: hash leads elsewhere"
        assert len(self._by_hash) == sum(block.hash is not None for block in self._blocks), "a hash without a block"

    def check_holders(self, holders: Mapping[BlockIndex, int]) -> None:
        """Raise AssertionError unless every block has exactly as many holders as `holders` says."""
        for number, block in enumerate(self._blocks):
            expected = holders.get(BlockIndex(number), 0)
            assert block.refs == expected, f"block {number}: {block.refs} references, {expected} holders"

    # ---- inside ----

    def _take_one(self, state: BlockState) -> BlockIndex:
        if self._free:
            index = self._free.popleft()
            block = self._blocks[index]
        else:
            index, _ = self._cached.popitem(last=False)
            block = self._blocks[index]
            self._forget(block)
            self._move(block, BlockState.FREE)
        self._move(block, state)
        block.refs = 1
        return index

    def _retire(self, index: BlockIndex, block: _Block) -> None:
        if block.hash is None:
            self._move(block, BlockState.FREE)
            self._free.append(index)
        else:
            self._move(block, BlockState.CACHED)
            self._cached[index] = None

    def _forget(self, block: _Block) -> None:
        assert block.hash is not None
        del self._by_hash[block.hash]
        self._record(block.hash, stored=False)
        block.hash = None

    def _record(self, block_hash: BlockHash, *, stored: bool) -> None:
        if self._changes.pop(block_hash, None) is None:
            self._changes[block_hash] = stored

    def _move(self, block: _Block, state: BlockState) -> None:
        assert state in TRANSITIONS[block.state], f"a block cannot go from {block.state.value} to {state.value}"
        block.state = state
