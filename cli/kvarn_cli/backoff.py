"""How long to wait before a crashed process is started again."""

FIRST_S = 0.5
LIMIT_S = 10.0
CALM_S = 30.0
"""A process that ran this long has earned a quick restart again."""


class Backoff:
    def __init__(self) -> None:
        self._next_s = FIRST_S

    def delay_s(self, ran_s: float) -> float:
        """Doubles with every crash; `ran_s` is how long the process lived."""
        if ran_s >= CALM_S:
            self._next_s = FIRST_S
        delay = self._next_s
        self._next_s = min(LIMIT_S, 2 * delay)
        return delay
