"""Which workers take a request. Pure; the dispatcher calls `choose` and acts on the decision.

Among unsaturated workers the longest cached prefix wins, then the lower load, then a hash of request and worker.
Workers of several KV layouts may be there at once: a decode worker with prefill workers of its own layout comes before
one that has none, and only those are its peers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvarn_engine.core.ids import Incarnation, RequestId

from kvarn_router.routing.cost import SaturationLimits, WorkerView, load_of, saturation, tie_break

MAX_PREFILL_PEERS = 2


@dataclass(frozen=True, slots=True)
class LayoutViews:
    """Candidates of one KV layout: only these can hand blocks to each other."""

    fingerprint: str
    block_size: int
    num_blocks: int
    """Full blocks of the request in this layout."""

    decode: Sequence[WorkerView]
    prefill: Sequence[WorkerView]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One candidate with its place, kept for the explanation."""

    view: WorkerView
    is_alone: bool
    """A decode worker without any prefill worker of its layout."""

    saturated: str
    """Empty when the worker is below every limit."""


@dataclass(frozen=True, slots=True)
class Decision:
    request_id: RequestId
    layout: LayoutViews
    """That of the chosen worker."""

    decode: tuple[Ranked, ...]
    """Every candidate of every layout, best first; never empty."""

    prefill: tuple[Ranked, ...]
    """Those of the chosen layout; empty when the decode worker must prefill."""

    @property
    def num_blocks(self) -> int:
        return self.layout.num_blocks

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

    @property
    def predicted_tokens(self) -> int:
        return self.predicted_blocks * self.layout.block_size

    def explain(self) -> str:
        """One line of ASCII, fit for a response header and a log line."""
        decode = "; ".join(_describe(ranked) for ranked in self.decode)
        prefill = "; ".join(_describe(ranked) for ranked in self.prefill) or "none, prefilled on the decode worker"
        return f"blocks={self.num_blocks} decode: {decode} | prefill: {prefill}"


def choose(
    request_id: RequestId, layouts: Sequence[LayoutViews], limits: SaturationLimits, use_peers: bool = True
) -> Decision | None:
    """None when there is no decode worker at all."""
    places = [(layout, view) for layout in layouts for view in layout.decode]
    if not places:
        return None
    layout_of = {view.incarnation: layout for layout, view in places}
    decode = _rank(request_id, [Ranked(view, not layout.prefill, saturation(view, limits)) for layout, view in places])
    layout = layout_of[decode[0].view.incarnation]
    prefill = [Ranked(view, False, saturation(view, limits)) for view in layout.prefill if use_peers]
    return Decision(request_id, layout, decode, _rank(request_id, prefill))


def _rank(request_id: RequestId, candidates: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """Best first. Saturated workers come last, the least loaded of them first."""
    return tuple(sorted(candidates, key=lambda candidate: _order(request_id, candidate)))


def _order(request_id: RequestId, candidate: Ranked) -> tuple[bool, bool, int, tuple[int, int], bytes]:
    view = candidate.view
    affinity = 0 if candidate.saturated else -view.cached_tokens
    tie = tie_break(request_id, view.incarnation)
    return candidate.is_alone, bool(candidate.saturated), affinity, load_of(view), tie


def _describe(ranked: Ranked) -> str:
    view = ranked.view
    suffix = f", saturated: {ranked.saturated}" if ranked.saturated else ""
    suffix += ", no prefill worker of its layout" if ranked.is_alone else ""
    return f"{view.worker_id} cached={view.cached_blocks} in_flight={view.in_flight} waiting={view.waiting}{suffix}"
