"""Scrapes of all routers of a model over the last minute -> its Demand. Pure. Owned by the sampler, one per model."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from kvarn_operator.cluster.exposition import Buckets, RouterReading, percentile
from kvarn_operator.scaling.observation import Demand

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class _Increment:
    """What a router's counters gained between two scrapes."""

    since: float
    until: float
    tokens: float
    ttft: Buckets
    itl: Buckets


@dataclass(slots=True)
class _Router:
    last: RouterReading
    gained: list[_Increment] = field(default_factory=list)


class DemandWindow:
    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._routers: dict[str, _Router] = {}

    def add(self, uid: str, reading: RouterReading) -> None:
        router = self._routers.get(uid)
        if router is None or reading.at < router.last.at:  # a clock that was set back begins anew
            self._routers[uid] = _Router(reading)
            return
        if reading.at == router.last.at:
            return
        router.gained.append(_increment(router.last, reading))
        router.gained = [each for each in router.gained if each.until > reading.at - self._window_s]
        router.last = reading

    def keep(self, uids: Collection[str]) -> None:
        """Forget routers that are gone, at once: their load is no more."""
        self._routers = {uid: router for uid, router in self._routers.items() if uid in uids}

    def demand(self, uids: Collection[str], percentile_of_objective: float) -> Demand | None:
        """Of these routers, all of which have just answered; None without any."""
        routers = [self._routers[uid] for uid in uids]
        if not routers:
            return None
        share = percentile_of_objective / 100.0
        gained = [increment for router in routers for increment in router.gained]
        return Demand(
            at=min(router.last.at for router in routers),
            inflight_requests=sum(router.last.in_flight for router in routers),
            held_requests=sum(router.last.held for router in routers),
            uncached_inflight_tokens=sum(router.last.uncached_in_flight for router in routers),
            uncached_tokens_per_s=sum(_rate(router) for router in routers),
            ttft_s=percentile(_added([each.ttft for each in gained]), share),
            itl_s=percentile(_added([each.itl for each in gained]), share),
        )


def _increment(before: RouterReading, after: RouterReading) -> _Increment:
    restarted = after.uncached_total < before.uncached_total or _count(after.ttft) < _count(before.ttft)
    return _Increment(
        since=before.at,
        until=after.at,
        tokens=after.uncached_total - (0.0 if restarted else before.uncached_total),
        ttft=after.ttft if restarted else _difference(before.ttft, after.ttft),
        itl=after.itl if restarted else _difference(before.itl, after.itl),
    )


def _rate(router: _Router) -> float:
    if not router.gained:
        return 0.0
    span_s = router.gained[-1].until - router.gained[0].since
    return sum(each.tokens for each in router.gained) / span_s


def _count(buckets: Buckets) -> float:
    return buckets[-1][1] if buckets else 0.0


def _difference(before: Buckets, after: Buckets) -> Buckets:
    """Never below zero: a histogram that began anew counts from there."""
    known = dict(before)
    gained = tuple((bound, count - known.get(bound, 0.0)) for bound, count in after)
    return after if any(count < 0 for _, count in gained) else gained


def _added(parts: list[Buckets]) -> Buckets:
    counts: dict[float, float] = defaultdict(float)
    for part in parts:
        for bound, count in part:
            counts[bound] += count
    return tuple(sorted(counts.items()))
