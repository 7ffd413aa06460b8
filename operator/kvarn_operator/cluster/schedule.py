"""When each key is worked on next. Pure: the clock is passed in. Owned by `work_queue`.

A key is in work once at a time; what is added in the meantime counts once; failures wait longer and longer, and only a
refusal does not keep what is new from being looked at; a key that never comes to rest is slowed down.
"""

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Ending(enum.Enum):
    SETTLED = "settled"
    """Nothing had to be done."""

    ACTED = "acted"
    """Something was done, so look again at once."""

    REFUSED = "refused"
    """All was done but what the API server will not have: that is tried again less and less often."""

    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    ending: Ending
    requeue_s: float | None = None
    """Look again after this time; for a failure the least time to wait."""


@dataclass(frozen=True, slots=True)
class Pacing:
    backoff_min_s: float = 0.25
    backoff_max_s: float = 60.0
    refused_pause_s: float = 2.0
    """Between two rounds of a key whose changes meet a refusal."""

    restless_after: int = 10
    """Rounds in a row that acted, after which each further one waits longer and longer."""

    restless_max_s: float = 5.0
    """No longer than this, the time between samples: many pods that start one after the other look the same, and their
    drains and scaling must not wait."""


@dataclass(slots=True)
class _Record:
    """Of a key that is due, in work or has a history."""

    due: float | None = None
    not_before: float = 0.0
    running_since: float | None = None
    failures: int = 0
    acted: int = 0

    @property
    def ready_at(self) -> float | None:
        return None if self.due is None or self.running_since is not None else max(self.due, self.not_before)


class KeyedSchedule(Generic[Key]):
    def __init__(self, pacing: Pacing, draw: Callable[[], float]) -> None:
        """`draw` gives numbers in [0, 1)."""
        self._pacing = pacing
        self._draw = draw
        self._records: dict[Key, _Record] = {}

    def add(self, key: Key, at: float) -> None:
        """Work on the key at this time, or earlier if that is due already."""
        record = self._records.setdefault(key, _Record())
        record.due = at if record.due is None else min(record.due, at)

    def start_next(self, now: float) -> Key | None:
        """The key that has been due the longest; the caller owes a `finish`."""
        times = {key: at for key, record in self._records.items() if (at := record.ready_at) is not None and at <= now}
        if not times:
            return None
        key = min(times, key=times.__getitem__)
        record = self._records[key]
        record.due, record.running_since = None, now
        return key

    def finish(self, key: Key, now: float, outcome: Outcome) -> None:
        record = self._records[key]
        record.running_since = None
        if outcome.ending is Ending.FAILED:
            record.failures += 1
            self._wait(key, record, now, max(self._backoff(record.failures), outcome.requeue_s or 0.0))
            return
        if outcome.ending is Ending.REFUSED:
            record.failures += 1
            wait_s = self._backoff(record.failures)
            self.add(key, now + wait_s)
            record.not_before = now + min(wait_s, self._pacing.refused_pause_s)
            return
        record.failures = 0
        record.not_before = 0.0
        record.acted = record.acted + 1 if outcome.ending is Ending.ACTED else 0
        if (rounds := record.acted - self._pacing.restless_after) > 0:
            self._wait(key, record, now, min(self._backoff(rounds), self._pacing.restless_max_s))
        elif outcome.ending is Ending.ACTED:
            self.add(key, now)
        if outcome.requeue_s is not None:
            self.add(key, now + outcome.requeue_s)
        if record.due is None and not record.acted:
            del self._records[key]

    def drop(self) -> None:
        """Forget everything, also what runs: the caller has ended it."""
        self._records.clear()

    def next_at(self) -> float | None:
        """When the next key is ready; None: not before something is added or finished."""
        return min((at for record in self._records.values() if (at := record.ready_at) is not None), default=None)

    def is_restless(self, key: Key) -> bool:
        record = self._records.get(key)
        return record is not None and record.acted > self._pacing.restless_after

    def depth(self, now: float) -> int:
        """Keys that are ready or in work."""
        records = self._records.values()
        return sum(each.running_since is not None or (each.ready_at or now + 1) <= now for each in records)

    def oldest_s(self, now: float) -> float:
        """How long the oldest key has been ready or in work."""
        since = [each.running_since or each.ready_at for each in self._records.values()]
        return max((now - at for at in since if at is not None and at <= now), default=0.0)

    def _wait(self, key: Key, record: _Record, now: float, wait_s: float) -> None:
        record.not_before = now + wait_s
        self.add(key, record.not_before)

    def _backoff(self, times: int) -> float:
        # The exponent is bounded: an outage of days must not overflow a float.
        limit = min(self._pacing.backoff_max_s, self._pacing.backoff_min_s * 2.0 ** min(times - 1, 32))
        return limit * (1.0 - self._draw() / 2)
