"""Which blocks each live worker holds. Fed by `Worker.Watch` through registration, asked by the dispatcher.

Pure: time is passed in, and a worker is only an incarnation. A *predicted* entry says that a decision has sent a prefix
to a worker whose event has not arrived yet; it expires, so a prediction that never comes true is forgotten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvarn_engine.core.ids import BlockHash, Incarnation


class SequenceGap(Exception):
    """A delta does not follow the last one: this worker's entries are void until its next snapshot."""

    def __init__(self, expected: int, got: int) -> None:
        super().__init__(f"cache event {got} arrived where {expected} was due")
        self.expected = expected
        self.got = got


class PrefixMatch(NamedTuple):
    """Leading blocks of a request that one worker holds."""

    blocks: int
    """Confirmed and predicted together, without a gap."""

    confirmed: int
    """How many of them the worker itself has announced; the confirmed ones need not come first."""


@dataclass(frozen=True, slots=True)
class IndexLimits:
    max_blocks_per_worker: int = 1_000_000
    max_predicted_per_worker: int = 100_000
    predicted_ttl_s: float = 15.0


@dataclass(slots=True)
class _WorkerEntries:
    sequence: int = -1
    stored: dict[BlockHash, None] = field(default_factory=dict)
    """Insertion order is age, so that the oldest entry goes first when the bound is reached."""

    predicted: dict[BlockHash, float] = field(default_factory=dict)
    """Hash to the time it expires, soonest first: every renewal moves an entry to the end."""


class PrefixIndex:
    def __init__(self, limits: IndexLimits) -> None:
        self._limits = limits
        self._workers: dict[Incarnation, _WorkerEntries] = {}

    def reset(self, incarnation: Incarnation, sequence: int, hashes: Iterable[BlockHash]) -> None:
        """Take a snapshot. Predictions stay: what they wait for may come after it."""
        entries = self._workers.setdefault(incarnation, _WorkerEntries())
        entries.sequence = sequence
        entries.stored = {}
        self._store(entries, hashes)

    def apply(
        self, incarnation: Incarnation, sequence: int, stored: Iterable[BlockHash], removed: Iterable[BlockHash]
    ) -> None:
        """Take the delta after the last one. Raises SequenceGap, and then holds nothing of this worker as confirmed."""
        entries = self._workers.get(incarnation)
        if entries is None or sequence != entries.sequence + 1:
            expected = 0 if entries is None else entries.sequence + 1
            self.forget(incarnation)
            raise SequenceGap(expected, sequence)
        entries.sequence = sequence
        for block_hash in removed:
            entries.stored.pop(block_hash, None)
            entries.predicted.pop(block_hash, None)
        self._store(entries, stored)

    def forget(self, incarnation: Incarnation) -> None:
        self._workers.pop(incarnation, None)

    def predict(self, incarnation: Incarnation, hashes: Iterable[BlockHash], now: float) -> None:
        """Expect these blocks on a worker known to the index; unknown workers are ignored."""
        entries = self._workers.get(incarnation)
        if entries is None:
            return
        expires = now + self._limits.predicted_ttl_s
        for block_hash in hashes:
            if block_hash not in entries.stored:
                entries.predicted.pop(block_hash, None)
                entries.predicted[block_hash] = expires
        self._expire(entries, now)

    def match(self, incarnation: Incarnation, hashes: Sequence[BlockHash], now: float) -> PrefixMatch:
        """Longest leading run of `hashes` on one worker."""
        entries = self._workers.get(incarnation)
        if entries is None:
            return PrefixMatch(0, 0)
        blocks = confirmed = 0
        for block_hash in hashes:
            if block_hash in entries.stored:
                confirmed += 1
            elif entries.predicted.get(block_hash, now) <= now:
                break
            blocks += 1
        return PrefixMatch(blocks, confirmed)

    def sequence(self, incarnation: Incarnation) -> int:
        """Of the last event taken; -1 before the first snapshot."""
        entries = self._workers.get(incarnation)
        return -1 if entries is None else entries.sequence

    def size(self, incarnation: Incarnation) -> int:
        """Confirmed blocks."""
        entries = self._workers.get(incarnation)
        return 0 if entries is None else len(entries.stored)

    def predicted_size(self, incarnation: Incarnation) -> int:
        entries = self._workers.get(incarnation)
        return 0 if entries is None else len(entries.predicted)

    def _store(self, entries: _WorkerEntries, hashes: Iterable[BlockHash]) -> None:
        for block_hash in hashes:
            entries.predicted.pop(block_hash, None)
            entries.stored.pop(block_hash, None)
            entries.stored[block_hash] = None
        while len(entries.stored) > self._limits.max_blocks_per_worker:
            del entries.stored[next(iter(entries.stored))]

    def _expire(self, entries: _WorkerEntries, now: float) -> None:
        while entries.predicted:
            oldest = next(iter(entries.predicted))
            if entries.predicted[oldest] > now and len(entries.predicted) <= self._limits.max_predicted_per_worker:
                return
            del entries.predicted[oldest]
