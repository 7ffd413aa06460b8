"""How often one request has been tried, and when that is enough. Pure; kept by `stream`."""

from dataclasses import dataclass

from kvarn_router.retry import Failure


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    max_attempts: int = 4
    """In a row without a token: a long answer may move as often as its workers are replaced."""

    max_turned_away: int = 32
    """Refusals in a row by workers that are just draining; as many as may happen to leave at once."""

    max_worker_losses: int = 4
    """In all: a request that breaks each worker it runs on must not go through the whole pool. A worker that was gone
    before it accepted the request was not broken by it."""


class Attempts:
    def __init__(self, limits: AttemptLimits) -> None:
        self._limits = limits
        self.count = 0
        self.worker_losses = 0
        self._in_vain = 0
        self._turned_away = 0
        self._is_accepted = False

    def begin(self) -> None:
        self.count += 1
        self._is_accepted = False

    def accepted(self) -> None:
        """The worker runs the request."""
        self._is_accepted = True

    def took_tokens(self) -> None:
        self._in_vain = self._turned_away = 0

    def failed(self, failure: Failure) -> None:
        self.worker_losses += self._is_accepted and failure.is_breakage
        if failure is Failure.DRAINING:
            self._turned_away += 1
        else:
            self._in_vain += 1

    @property
    def in_a_row(self) -> int:
        """Failures since the last token."""
        return self._in_vain + self._turned_away

    @property
    def lost_too_many(self) -> bool:
        return self.worker_losses >= self._limits.max_worker_losses

    @property
    def exhausted(self) -> bool:
        limits = self._limits
        return self._in_vain >= limits.max_attempts or self._turned_away >= limits.max_turned_away
