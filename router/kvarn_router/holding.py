"""Requests that wait because no worker can take them, and prompt tokens that wait to be computed: what scaling sees.

Counted by `stream`, shown by `metrics`. Knows neither requests nor workers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvarn_router.errors import NoWorker


@dataclass(frozen=True, slots=True)
class HoldLimits:
    hold_s: float = 30.0
    max_held: int = 256
    retry_after_s: float = 5.0
    """Told to those that were held in vain: workers take longer to start than a hold lasts."""


class Holding:
    """One event loop owns it: between the look at the bound and the count there is no await."""

    def __init__(self, limits: HoldLimits) -> None:
        self.limits = limits
        self._new = 0
        self._moving = 0

    @property
    def count(self) -> int:
        return self._new + self._moving

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A place for a request that no worker has seen yet. Raises NoWorker when holding is off or full."""
        if self.limits.hold_s <= 0:
            raise NoWorker("no worker can take the request now")
        if self._new >= self.limits.max_held:
            raise NoWorker(f"no worker can take the request now, and {self._new} requests wait for one already")
        self._new += 1
        try:
            yield
        finally:
            self._new -= 1

    @contextmanager
    def move(self) -> Iterator[None]:
        """A request that has lost its worker waits for another one; it was let in before, so nothing bounds it here."""
        self._moving += 1
        try:
            yield
        finally:
            self._moving -= 1

    def refusal(self) -> NoWorker:
        error = NoWorker(f"no worker could take the request within {self.limits.hold_s:g} s")
        error.retry_after_s = self.limits.retry_after_s
        return error


class UncachedTokens:
    """Tokens that requests still need computed before their first token, as far as routing can tell."""

    def __init__(self, on_arrival: Callable[[int], None]) -> None:
        """`on_arrival` gets the tokens of each request once: when it is held, else when it is placed."""
        self.in_flight = 0
        self.on_arrival = on_arrival

    def open(self) -> "UncachedShare":
        return UncachedShare(self)


class UncachedShare:
    """The part of one request. Whoever opens it ends with `set(0)`."""

    def __init__(self, total: UncachedTokens) -> None:
        self._total = total
        self._tokens = 0
        self._has_arrived = False

    def set(self, tokens: int) -> None:
        self._total.in_flight += tokens - self._tokens
        self._tokens = tokens

    def arrive(self, tokens: int) -> None:
        """As `set`; the first time it also counts as arrived."""
        if not self._has_arrived:
            self._has_arrived = True
            self._total.on_arrival(tokens)
        self.set(tokens)
