"""How loaded a worker is, as far as this router knows. Pure; used by `policy`, which compares workers by it."""

import hashlib
from dataclasses import dataclass

from kvarn_engine.core.ids import Incarnation, RequestId, WorkerId


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One candidate, as seen at the instant of a decision."""

    incarnation: Incarnation
    worker_id: WorkerId
    cached_blocks: int
    """Leading blocks of the request expected there."""

    cached_tokens: int
    """The same in tokens, so that workers of different block sizes can be compared."""

    in_flight: int
    """Requests this router has on the worker; counted at selection, so it is never late."""

    in_flight_tokens: int
    """Tokens of those requests that were not expected in the worker's cache."""

    waiting: int
    """From the worker's last report: requests of every router that wait there."""

    queued_prefill_tokens: int
    kv_usage: float
    """0 to 1; cached blocks that nobody uses do not count."""


@dataclass(frozen=True, slots=True)
class SaturationLimits:
    """A worker over one of these is chosen only when every other one is over them too."""

    max_in_flight: int = 64
    max_waiting: int = 16
    max_kv_usage: float = 0.95


def saturation(view: WorkerView, limits: SaturationLimits) -> str:
    """Why the worker should be spared, or an empty string."""
    if view.in_flight >= limits.max_in_flight:
        return f"in flight {view.in_flight} of {limits.max_in_flight}"
    if view.waiting > limits.max_waiting:
        return f"waiting {view.waiting} over {limits.max_waiting}"
    if view.kv_usage > limits.max_kv_usage:
        return f"KV usage {view.kv_usage:.2f} over {limits.max_kv_usage:.2f}"
    return ""


def load_of(view: WorkerView) -> tuple[int, int]:
    """Compared after the cached prefix: requests first, then the tokens still to compute.

    The worker's own report is late and this router's count leaves out the other routers', so each takes the larger.
    """
    return max(view.in_flight, view.waiting), max(view.in_flight_tokens, view.queued_prefill_tokens)


def tie_break(request_id: RequestId, incarnation: Incarnation) -> bytes:
    """Spreads equal workers over requests without regard to the order in which they registered."""
    return hashlib.blake2b(f"{request_id}|{incarnation}".encode(), digest_size=8).digest()
