"""Which failure of a decode worker may be answered by another attempt. A table, so that it can be read and tested.

Tokens already sent never change what is exact, only who is told: before the first token the client can still get a
true status, after it the stream must go on or end with an error event.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType


class Failure(Enum):
    LOST = auto()
    """The connection broke, or the peer ended the stream without an end event."""

    FROZEN = auto()
    """Nothing was heard for too long; the connection still stands."""

    DRAINING = auto()
    OVERLOADED = auto()
    FAILED = auto()
    """The engine broke; its process may live on."""

    MISMATCHED = auto()
    """The worker does not share our fingerprints."""

    INVALID = auto()
    """The worker refused what the request asks for."""

    @property
    def is_breakage(self) -> bool:
        """Something went wrong with the worker, and the request may be why."""
        return self in (Failure.LOST, Failure.FROZEN, Failure.FAILED)


class Phase(Enum):
    BEFORE_TOKENS = auto()
    AFTER_TOKENS = auto()


class FinalError(Enum):
    """What the client is told when no attempt is left."""

    INVALID_INPUT = auto()
    TOO_MANY_REQUESTS = auto()
    NO_WORKER = auto()
    WORKER_LOST = auto()
    INTERNAL = auto()


@dataclass(frozen=True, slots=True)
class Verdict:
    retry: bool
    suspect: bool
    """Leave the worker out for every request until it is heard of again."""

    wait: bool
    """Wait for a worker to appear when none is left; otherwise give up at once."""

    final: FinalError


_B, _A = Phase.BEFORE_TOKENS, Phase.AFTER_TOKENS

VERDICTS: Mapping[tuple[Failure, Phase], Verdict] = MappingProxyType(
    {
        (Failure.LOST, _B): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.LOST, _A): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.FROZEN, _B): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.FROZEN, _A): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.DRAINING, _B): Verdict(retry=True, suspect=True, wait=True, final=FinalError.NO_WORKER),
        (Failure.DRAINING, _A): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.OVERLOADED, _B): Verdict(retry=True, suspect=False, wait=False, final=FinalError.TOO_MANY_REQUESTS),
        (Failure.OVERLOADED, _A): Verdict(retry=True, suspect=False, wait=True, final=FinalError.WORKER_LOST),
        (Failure.FAILED, _B): Verdict(retry=True, suspect=False, wait=False, final=FinalError.WORKER_LOST),
        (Failure.FAILED, _A): Verdict(retry=True, suspect=False, wait=True, final=FinalError.WORKER_LOST),
        (Failure.MISMATCHED, _B): Verdict(retry=True, suspect=True, wait=False, final=FinalError.NO_WORKER),
        (Failure.MISMATCHED, _A): Verdict(retry=True, suspect=True, wait=True, final=FinalError.WORKER_LOST),
        (Failure.INVALID, _B): Verdict(retry=False, suspect=False, wait=False, final=FinalError.INVALID_INPUT),
        (Failure.INVALID, _A): Verdict(retry=False, suspect=False, wait=False, final=FinalError.INTERNAL),
    }
)


def verdict(failure: Failure, phase: Phase) -> Verdict:
    return VERDICTS[failure, phase]
