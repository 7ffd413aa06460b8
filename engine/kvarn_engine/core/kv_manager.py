"""Which blocks a sequence gets: prefix match, growth, fork with copy on write, publication, release.

Called by the scheduler. Policy for one sequence at a time; who goes first is the scheduler's business.
"""

from collections import Counter
from collections.abc import Iterable

from kvarn_engine.core.block_pool import BlockPool, BlockState
from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.plan import BlockCopy
from kvarn_engine.core.sequence import Sequence


class KvManager:
    def __init__(self, pool: BlockPool, block_size: int) -> None:
        self.pool = pool
        self.block_size = block_size

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def last_block(self, sequence: Sequence) -> int:
        """The block of the last token. It is never taken from the cache: drawing needs that token computed again, and
        computing writes into its block."""
        return (sequence.num_tokens - 1) // self.block_size

    def demand(self, sequence: Sequence) -> int:
        """How far admitting this sequence lowers `pool.num_available`."""
        held = sum(self.pool.is_held(index) for index in self._match(sequence))
        return self.blocks_for(sequence.num_tokens) - held

    def admit(self, sequence: Sequence) -> None:
        """Give room for every token that the sequence has. The caller has checked `demand`."""
        assert not sequence.block_table
        matched = self._match(sequence)
        self.pool.acquire(matched)
        state = BlockState.IMPORTING if sequence.imports else BlockState.OWNED
        fresh = self.pool.allocate(self.blocks_for(sequence.num_tokens) - len(matched), state)
        sequence.block_table = matched + fresh
        sequence.num_published = len(matched)
        sequence.num_computed = sequence.num_cached = len(matched) * self.block_size

    def grow(self, sequence: Sequence, copies: list[BlockCopy]) -> bool:
        """Make room for every token, and make the block that the next step writes first this sequence's alone."""
        table = sequence.block_table
        missing = self.blocks_for(sequence.num_tokens) - len(table)
        first = sequence.num_computed // self.block_size
        is_shared = first < len(table) and not self.pool.is_writable(table[first])
        if missing + is_shared > self.pool.num_available:
            return False
        if is_shared:
            (target,) = self.pool.allocate(1)
            copies.append(BlockCopy(source=table[first], target=target))
            self.pool.release([table[first]])
            table[first] = target
        table.extend(self.pool.allocate(missing))
        return True

    def fork(self, sequence: Sequence, choice: int) -> Sequence:
        twin = sequence.fork(choice)
        self.pool.acquire(twin.block_table)
        return twin

    def take_import(self, sequence: Sequence, num_blocks: int) -> None:
        """The leading `num_blocks` have been received whole. The last token's block stays unpublished until it is
        known whether that token must be computed here."""
        self._accept(sequence, min(num_blocks, self.last_block(sequence)))

    def end_import(self, sequence: Sequence, num_blocks: int, num_computed: int) -> None:
        """No more blocks come: `num_blocks` were received and count as `num_computed` tokens; the rest is free to be
        computed here."""
        self._accept(sequence, min(num_blocks, self.last_block(sequence)))
        for index in sequence.block_table:
            if self.pool.state(index) is BlockState.IMPORTING:
                self.pool.finish_import(index)
        sequence.num_computed = num_computed
        self.publish(sequence)

    def publish(self, sequence: Sequence) -> None:
        """Make the sequence's newly complete blocks findable."""
        complete = sequence.num_computed // self.block_size
        if complete <= sequence.num_published:
            return
        hashes = sequence.chain(complete, self.block_size)
        for position in range(sequence.num_published, complete):
            index = sequence.block_table[position]
            sequence.block_table[position] = self.pool.publish(index, hashes[position])
        sequence.num_published = complete

    def free(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        sequence.block_table = []
        sequence.num_computed = sequence.num_published = 0

    def check_integrity(self, sequences: Iterable[Sequence], pinned: Iterable[BlockIndex] = ()) -> None:
        """`sequences` are all that hold blocks; `pinned` names a block once for each export of it."""
        holders = Counter(index for sequence in sequences for index in sequence.block_table)
        holders.update(pinned)
        self.pool.check_integrity()
        self.pool.check_holders(holders)

    def _match(self, sequence: Sequence) -> list[BlockIndex]:
        return self.pool.match(sequence.chain(self.last_block(sequence), self.block_size))

    def _accept(self, sequence: Sequence, num_blocks: int) -> None:
        for index in sequence.block_table[sequence.num_published : num_blocks]:
            self.pool.finish_import(index)
        sequence.num_computed = max(sequence.num_computed, num_blocks * self.block_size)
        self.publish(sequence)
