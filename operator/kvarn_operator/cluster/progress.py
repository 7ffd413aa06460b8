"""Whether the process still gets on. Each part marks its progress under a name; one that is silent too long is stalled.

Marks come from the event loop, the question from the health server's thread; a dict's single reads and writes are
atomic.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stall:
    part: str
    silent_s: float
    limit_s: float


class Progress:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._marks: dict[str, tuple[float, float]] = {}  # part -> last mark, limit

    def mark(self, part: str, limit_s: float, lag_s: float = 0.0) -> None:
        """`part` got on until `lag_s` ago, and must again within `limit_s`."""
        self._marks[part] = (self._clock() - lag_s, limit_s)

    def stalls(self) -> tuple[Stall, ...]:
        now = self._clock()
        marks = sorted(dict(self._marks).items())
        return tuple(Stall(part, now - at, limit) for part, (at, limit) in marks if now - at > limit)

    def ages_s(self) -> Mapping[str, float]:
        """Time since each part's last mark."""
        now = self._clock()
        return {part: now - at for part, (at, _) in sorted(dict(self._marks).items())}
