"""Percentiles of measured durations. Pure; used by every benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest ranks; `share` is 0 to 1. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values to take a percentile of")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share is {share}, not between 0 and 1")
    ordered = sorted(values)
    rank = share * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def median(values: Sequence[float]) -> float:
    return percentile(values, 0.5)


@dataclass(frozen=True, slots=True)
class Distribution:
    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    maximum: float


def distribution(values: Sequence[float]) -> Distribution | None:
    """None when nothing was measured: an absent figure must not read as zero."""
    if not values:
        return None
    return Distribution(
        count=len(values),
        mean=sum(values) / len(values),
        p50=percentile(values, 0.5),
        p90=percentile(values, 0.9),
        p99=percentile(values, 0.99),
        maximum=max(values),
    )
