"""Which Events to write: one for the same thing again and again, and never more than a few per object. Pure.

A repeat within the window counts up the series of the Event that exists, at most once in a while.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple


class EventKey(NamedTuple):
    uid: str
    """Of the object that the Event is about."""

    reason: str
    message: str
    warning: bool


class Verdict(enum.Enum):
    WRITE = "write"
    COUNT_UP = "count up"
    KEEP_QUIET = "keep quiet"


@dataclass(frozen=True, slots=True)
class EventLimits:
    window_s: float = 600.0
    """A repeat after this much silence is a new Event."""

    series_interval_s: float = 60.0
    burst: int = 25
    """Of one object; then one per `refill_s`."""

    refill_s: float = 30.0


@dataclass(slots=True)
class Known:
    name: str
    """Of the Event object; empty until it is written."""

    count: int
    seen_at: float
    written_at: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class EventLedger:
    def __init__(self, limits: EventLimits) -> None:
        self._limits = limits
        self._known: dict[EventKey, Known] = {}
        self._buckets: dict[str, _Bucket] = {}

    def judge(self, key: EventKey, now: float) -> Verdict:
        """What to do about this one; the answer takes it into account."""
        self._forget(now)
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            known.seen_at = now
            if not known.name or now < known.written_at + self._limits.series_interval_s:
                return Verdict.KEEP_QUIET
            return Verdict.COUNT_UP if self._take(key.uid, now) else Verdict.KEEP_QUIET
        if not self._take(key.uid, now):
            return Verdict.KEEP_QUIET
        self._known[key] = Known("", 1, now, now)
        return Verdict.WRITE

    def written(self, key: EventKey, name: str, now: float) -> None:
        known = self._known.get(key)
        if known is not None:
            known.name, known.written_at = name, now

    def known(self, key: EventKey) -> Known | None:
        return self._known.get(key)

    def lost(self, key: EventKey) -> None:
        """It could not be written, or is gone: the next one is new."""
        self._known.pop(key, None)

    def _take(self, uid: str, now: float) -> bool:
        bucket = self._buckets.setdefault(uid, _Bucket(float(self._limits.burst), now))
        gained = (now - bucket.at) / self._limits.refill_s
        bucket.tokens, bucket.at = min(float(self._limits.burst), bucket.tokens + gained), now
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _forget(self, now: float) -> None:
        horizon = now - self._limits.window_s
        self._known = {key: known for key, known in self._known.items() if known.seen_at >= horizon}
        full_after_s = self._limits.burst * self._limits.refill_s
        self._buckets = {uid: bucket for uid, bucket in self._buckets.items() if bucket.at >= now - full_after_s}
