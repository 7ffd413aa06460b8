"""A model under a constant stream of long requests: was a change noticed by anybody?"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.cluster.support.served_model import ServedModel
from tests.cluster.support.streams import LongStreams, problems
from tests.support.process import wait_until


@dataclass(slots=True)
class Change:
    """What came of it, once its block is over."""

    moved: float = 0.0
    """Answers that went on at another worker."""

    broken: float = 0.0
    """Hand-offs that their prefill worker did not end, and that another one or the decode worker itself made good."""


@dataclass(frozen=True)
class Watched:
    """The model, its clients, and what they notice."""

    served: ServedModel
    streams: LongStreams
    tell: Callable[[str], None]
    changes: list[Change] = field(default_factory=list)

    @contextmanager
    def change(self, what: str) -> Iterator[Change]:
        """Begins when every client is amid a stream, and ends when those streams have ended."""
        first, began, change = self.streams.wait_under_way(), time.monotonic(), Change()
        moved, broken = self.served.moved(), self.served.broken_handoffs()
        self.changes.append(change)
        yield change
        seconds = time.monotonic() - began
        wait_until(lambda: all(stream.is_over for stream in first), "all streams end that the change met", 120)
        touched = self.streams.touched(first)
        assert problems(touched) == [], self.served.kubectl.describe_all()
        change.moved = _growth(moved, self.served.moved())
        change.broken = _growth(broken, self.served.broken_handoffs())
        tokens = sum(stream.tokens for stream in touched)
        pause_s = max(stream.longest_pause_s for stream in touched)
        self.tell(
            f"{what}: {seconds:.0f} s, {len(touched)} streams met it, {tokens} tokens, {change.moved:.0f} moved, "
            f"{change.broken:.0f} hand-offs anew, longest pause {pause_s:.1f} s"
        )


def _growth(before: Mapping[str, float], now: Mapping[str, float]) -> float:
    """Of counters by pod; one that began in between counted from 0."""
    return sum(count - before.get(pod, 0.0) for pod, count in now.items())
