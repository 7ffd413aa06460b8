"""Waits between tries: they double up to a limit, each shortened by up to a half so that routers do not try in step."""

from collections.abc import Callable


class Backoff:
    def __init__(self, min_s: float, max_s: float, draw: Callable[[], float]) -> None:
        """`draw` gives numbers in [0, 1)."""
        self._min_s = min_s
        self._max_s = max_s
        self._draw = draw
        self._failures = 0

    @property
    def failures(self) -> int:
        """Since the last success."""
        return self._failures

    def succeeded(self) -> None:
        self._failures = 0

    def next_wait_s(self) -> float:
        """Count one failure; how long to wait before the next try."""
        # The exponent is bounded: an outage of days must not overflow a float.
        limit = min(self._max_s, self._min_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return limit * (1.0 - self._draw() / 2)
