"""Which workers take a request. Pure; the dispatcher calls `choose` and acts on the decision.

Among unsaturated workers the longest cached prefix wins, then the lower load, then a hash of request and worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvarn_engine.core.ids import Incarnation, RequestId

from kvarn_router.routing.cost import SaturationLimits, WorkerView, load_of, saturation, tie_break

MAX_PREFILL_PEERS = 2


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate with its place, kept for the explanation."""

    view: WorkerView
    saturated: str
    """Empty when the worker is below every limit."""


@dataclass(frozen=True, slots=True)
class Decision:
    request_id: RequestId
    num_blocks: int
    """Full blocks of the request."""

    decode: tuple[Ranked, ...]
    """Every candidate, best first; never empty."""

    prefill: tuple[Ranked, ...]

    @property
    def decode_worker(self) -> WorkerView:
        return self.decode[0].view

    @property
    def prefill_peers(self) -> tuple[Incarnation, ...]:
        return tuple(ranked.view.incarnation for ranked in self.prefill[:MAX_PREFILL_PEERS])

    @property
    def predicted_blocks(self) -> int:
        """Leading blocks that neither worker should have to compute."""
        return max(ranked.view.cached_blocks for ranked in (self.decode[0], *self.prefill[:1]))

    def explain(self) -> str:
        """One line of ASCII, fit for a response header and a log line."""
        decode = "; ".join(_describe(ranked) for ranked in self.decode)
        prefill = "; ".join(_describe(ranked) for ranked in self.prefill) or "none, prefilled on the decode worker"
        return f"blocks={self.num_blocks} decode: {decode} | prefill: {prefill}"


def choose(
    request_id: RequestId,
    num_blocks: int,
    decode: Sequence[WorkerView],
    prefill: Sequence[WorkerView],
    limits: SaturationLimits,
) -> Decision | None:
    """None when there is no decode worker at all."""
    if not decode:
        return None
    return Decision(request_id, num_blocks, rank(request_id, decode, limits), rank(request_id, prefill, limits))


def rank(request_id: RequestId, views: Sequence[WorkerView], limits: SaturationLimits) -> tuple[Ranked, ...]:
    """Best first. Saturated workers come last, the least loaded of them first."""
    ranked = [Ranked(view, saturation(view, limits)) for view in views]
    return tuple(sorted(ranked, key=lambda candidate: _order(request_id, candidate)))


def _order(request_id: RequestId, candidate: Ranked) -> tuple[bool, int, tuple[int, int], bytes]:
    view = candidate.view
    affinity = 0 if candidate.saturated else -view.cached_blocks
    return bool(candidate.saturated), affinity, load_of(view), tie_break(request_id, view.incarnation)


def _describe(ranked: Ranked) -> str:
    view = ranked.view
    suffix = f", saturated: {ranked.saturated}" if ranked.saturated else ""
    return f"{view.worker_id} cached={view.cached_blocks} in_flight={view.in_flight} waiting={view.waiting}{suffix}"
