"""Numbers out of the metrics pages of workers and routers. Pure; used by `status` and `drain`."""

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class WorkerReading:
    in_flight: int
    running: int
    waiting: int
    kv_usage: float
    """Share of the blocks held by sequences."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound in seconds, of any number of routers together."""

    counts: tuple[tuple[float, float], ...] = ()

    def __add__(self, other: "Histogram") -> "Histogram":
        total = dict(self.counts)
        for bound, count in other.counts:
            total[bound] = total.get(bound, 0.0) + count
        return Histogram(tuple(sorted(total.items())))

    def percentile(self, percent: float) -> float | None:
        """Upper bound of the bucket that holds the percentile; None without observations."""
        if not self.counts or self.counts[-1][1] <= 0:
            return None
        rank = self.counts[-1][1] * percent / 100
        return next(bound for bound, count in self.counts if count >= rank)


@dataclass(frozen=True, slots=True)
class RouterReading:
    in_flight: int
    held: int
    ttft: Histogram
    itl: Histogram


def worker_reading(page: str) -> WorkerReading:
    """Raises ValueError for what is no metrics page."""
    values = _Values(page)
    total = values.one("kvarn_kv_blocks", state="total")
    return WorkerReading(
        in_flight=int(values.one("kvarn_requests_in_flight")),
        running=int(values.one("kvarn_running_requests")),
        waiting=int(values.one("kvarn_waiting_requests")),
        kv_usage=values.one("kvarn_kv_blocks", state="in_use") / total if total else 0.0,
    )


def router_reading(page: str) -> RouterReading:
    """Raises ValueError for what is no metrics page."""
    values = _Values(page)
    return RouterReading(
        in_flight=int(values.one("kvarn_router_requests_in_flight")),
        held=int(values.one("kvarn_router_requests_held")),
        ttft=values.histogram("kvarn_api_ttft_seconds"),
        itl=values.histogram("kvarn_api_itl_seconds"),
    )


def total(histograms: Iterable[Histogram]) -> Histogram:
    return sum(histograms, Histogram())


class _Values:
    def __init__(self, page: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def one(self, name: str, **labels: str) -> float:
        """The sum over all label values not named; 0 where the metric is missing."""
        return sum(
            sample.value for sample in self._samples if sample.name == name and labels.items() <= sample.labels.items()
        )

    def histogram(self, name: str) -> Histogram:
        found = Histogram()
        for sample in self._samples:
            if sample.name == f"{name}_bucket":
                found += Histogram(((float(sample.labels["le"]), sample.value),))
        return found
