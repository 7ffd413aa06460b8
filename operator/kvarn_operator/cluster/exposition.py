"""Prometheus text of a worker or router -> the numbers the planner needs. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvarn_operator.reconcile.observed import WorkerReading
from kvarn_operator.scaling.observation import PodMetrics

Buckets = tuple[tuple[float, float], ...]
"""Upper bound and cumulative count, by bound."""


class BadExposition(ValueError):
    """Not Prometheus text, or without a metric that must be there."""


@dataclass(frozen=True, slots=True)
class RouterReading:
    """One scrape of a router."""

    at: float
    in_flight: int
    held: int
    uncached_in_flight: float
    uncached_total: float
    ttft: Buckets
    itl: Buckets


def read_worker(text: str, at: float) -> WorkerReading:
    """Raises BadExposition."""
    samples = _Samples(text)
    blocks = {state: samples.total("kvarn_kv_blocks", 0.0, state=state) for state in ("in_use", "cached", "total")}
    rate = samples.total("kvarn_prefill_tokens_per_second", 0.0)
    metrics = PodMetrics(
        at=at,
        prefill_rate=rate if rate > 0 else None,
        kv_usage=blocks["in_use"] / blocks["total"] if blocks["total"] > 0 else 0.0,
        running=int(samples.total("kvarn_running_requests", 0.0)),
        waiting=int(samples.total("kvarn_waiting_requests", 0.0)),
    )
    return WorkerReading(metrics, int(samples.total("kvarn_requests_in_flight")), int(blocks["cached"]))


def read_router(text: str, at: float) -> RouterReading:
    """Raises BadExposition."""
    samples = _Samples(text)
    return RouterReading(
        at=at,
        in_flight=int(samples.total("kvarn_router_requests_in_flight")),
        held=int(samples.total("kvarn_router_requests_held", 0.0)),
        uncached_in_flight=samples.total("kvarn_router_uncached_tokens_in_flight", 0.0),
        uncached_total=samples.total("kvarn_router_uncached_tokens_total", 0.0),
        ttft=samples.buckets("kvarn_api_ttft_seconds"),
        itl=samples.buckets("kvarn_api_itl_seconds"),
    )


class _Samples:
    def __init__(self, text: str) -> None:
        self._by_name: dict[str, list[Sample]] = defaultdict(list)
        try:
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    self._by_name[sample.name].append(sample)
        except ValueError as error:
            raise BadExposition(str(error)) from error

    def total(self, name: str, default: float | None = None, **labels: str) -> float:
        """The sum over all other labels. Without a default the metric must be there."""
        found = [sample.value for sample in self._by_name.get(name, ()) if _fits(sample, labels)]
        if found:
            return sum(found)
        if default is None:
            raise BadExposition(f"{name} is missing")
        return default

    def buckets(self, name: str) -> Buckets:
        counts: dict[float, float] = defaultdict(float)
        for sample in self._by_name.get(f"{name}_bucket", ()):
            counts[float(sample.labels["le"])] += sample.value
        return tuple(sorted(counts.items()))


def _fits(sample: Sample, labels: dict[str, str]) -> bool:
    return all(sample.labels.get(name) == value for name, value in labels.items())


def percentile(buckets: Sequence[tuple[float, float]], share: float) -> float | None:
    """The value that `share` of the observations do not exceed, taken as evenly spread within a bucket.

    In the last, unbounded bucket it is that bucket's lower bound. None without observations.
    """
    count = buckets[-1][1] if buckets else 0.0
    if count <= 0:
        return None
    lower, below = 0.0, 0.0
    for upper, reached in buckets:
        if reached >= share * count and reached > below:
            inside = (share * count - below) / (reached - below)
            return lower if upper == float("inf") else lower + (upper - lower) * max(0.0, inside)
        lower, below = (lower if upper == float("inf") else upper), reached
    return lower
