"""The block pool against a model that keeps lists and nothing else."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule
from kvarn_engine.core.block_pool import BlockPool, BlockState
from kvarn_engine.core.ids import BlockHash, BlockIndex

_NUM_BLOCKS = 6
_HASHES = st.integers(0, 9).map(lambda number: BlockHash(bytes([number])))


class PoolAgainstModel(RuleBasedStateMachine):
    """The model: who holds what, which hash is on which block, and the order in which blocks may be evicted."""

    held = Bundle("held")

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(_NUM_BLOCKS)
        self.holders: list[BlockIndex] = []
        self.exports: list[BlockIndex] = []
        self.content: dict[BlockIndex, BlockHash] = {}
        self.evictable: list[BlockIndex] = []
        self.reported: set[BlockHash] = set()

    def let_go(self, index: BlockIndex) -> None:
        self.holders.remove(index)
        if index not in self.holders and index in self.content:
            self.evictable.append(index)

    def unheld(self) -> int:
        return _NUM_BLOCKS - len(set(self.holders))

    @precondition(lambda self: self.unheld() > 0)
    @rule(target=held, is_import=st.booleans())
    def allocate(self, is_import: bool) -> BlockIndex:
        blank = self.unheld() - len(self.evictable)
        victim = None if blank else self.evictable.pop(0)
        (index,) = self.pool.allocate(1, BlockState.IMPORTING if is_import else BlockState.OWNED)
        if is_import:
            self.pool.finish_import(index)
        if victim is not None:
            assert index == victim
            del self.content[victim]
        assert index not in self.holders
        self.holders.append(index)
        return index

    @rule(target=held, index=held)
    def share(self, index: BlockIndex) -> BlockIndex:
        self.pool.acquire([index])
        self.holders.append(index)
        return index

    @rule(index=consumes(held))
    def release(self, index: BlockIndex) -> None:
        self.pool.release([index])
        self.let_go(index)

    @rule(target=held, index=consumes(held), block_hash=_HASHES)
    def publish(self, index: BlockIndex, block_hash: BlockHash) -> BlockIndex:
        twin = next((other for other, known in self.content.items() if known == block_hash), None)
        is_alone = self.holders.count(index) == 1
        result = self.pool.publish(index, block_hash)
        if twin is None:
            assert result == index
            self.content.setdefault(index, block_hash)
        elif twin == index or not is_alone:
            assert result == index
        else:
            assert result == twin
            if twin in self.evictable:
                self.evictable.remove(twin)
            self.holders.append(twin)
            self.let_go(index)
        return result

    @rule(target=held, hashes=st.lists(_HASHES, max_size=4))
    def match(self, hashes: list[BlockHash]) -> object:
        where = {known: index for index, known in self.content.items()}
        expected = []
        for block_hash in hashes:
            if block_hash not in where:
                break
            expected.append(where[block_hash])
        found = self.pool.match(hashes)
        assert found == expected
        self.pool.acquire(found)
        for index in found:
            self.holders.append(index)
            if index in self.evictable:
                self.evictable.remove(index)
        return multiple(*found)

    @rule(index=held)
    def export(self, index: BlockIndex) -> None:
        self.pool.begin_export([index])
        self.holders.append(index)
        self.exports.append(index)

    @precondition(lambda self: self.exports)
    @rule(data=st.data())
    def end_export(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(self.exports))
        self.exports.remove(index)
        self.pool.end_export([index])
        self.let_go(index)

    @rule()
    def drain(self) -> None:
        stored, removed = self.pool.drain_changes()
        assert self.reported.isdisjoint(stored)
        assert self.reported.issuperset(removed)
        self.reported |= set(stored)
        self.reported -= set(removed)
        assert self.reported == set(self.content.values())

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity()
        self.pool.check_holders({index: self.holders.count(index) for index in self.holders})
        assert set(self.pool.hashes) == set(self.content.values())
        assert self.pool.num_available == self.unheld()
        assert self.pool.num_cached == len(self.evictable)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
