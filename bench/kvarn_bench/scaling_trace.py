"""The load of `bench scaling`: seeded arrivals with prompt and output lengths. Pure; read by the simulated fleet."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Arrival(NamedTuple):
    at: float
    prompt: int
    output: int


class Load(NamedTuple):
    rate_per_s: float
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    duration_s: float
    arrivals: tuple[Arrival, ...]


PEAK_PER_S = 30.0
SHAPES = (Load(2.5, 8192, 256), Load(4.0, 2048, 2048), Load(3.0, 256, 4096))
"""Prefill-heavy, symmetric, decode-heavy: llm-d's three published shapes of prompt and output tokens."""


def bursty(duration_s: float, seed: int) -> Trace:
    """Quiet, with bursts of five times the load for two minutes, at random times about ten minutes apart."""
    source = random.Random(seed)
    starts, at = [], 0.0
    while at < duration_s:
        at += source.uniform(360.0, 840.0)
        starts.append(at)

    def load(now: float) -> Load:
        burst = any(start <= now < start + 120.0 for start in starts)
        return Load(20.0 if burst else 4.0, 3000, 300)

    return Trace("bursty", duration_s, tuple(_arrivals(load, duration_s, source)))


def diurnal(duration_s: float, seed: int) -> Trace:
    """A day in `duration_s`: a sine from 2 to 26 requests/s."""

    def load(now: float) -> Load:
        return Load(14.0 - 12.0 * math.cos(2 * math.pi * now / duration_s), 3000, 300)

    return Trace("diurnal", duration_s, tuple(_arrivals(load, duration_s, random.Random(seed))))


def shifting(duration_s: float, seed: int) -> Trace:
    """The shape flips from prefill-heavy over symmetric to decode-heavy and back."""
    order = (*SHAPES, SHAPES[0])

    def load(now: float) -> Load:
        return order[min(int(now / duration_s * len(order)), len(order) - 1)]

    return Trace("P/D shift", duration_s, tuple(_arrivals(load, duration_s, random.Random(seed))))


def _arrivals(load: Callable[[float], Load], duration_s: float, source: random.Random) -> Iterator[Arrival]:
    """Poisson with a changing rate, by thinning; lengths vary by half around their mean."""
    now = 0.0
    while (now := now + source.expovariate(PEAK_PER_S)) < duration_s:
        present = load(now)
        if source.random() * PEAK_PER_S < present.rate_per_s:
            spread = source.uniform(0.5, 1.5)
            yield Arrival(now, int(present.prompt * spread), max(1, int(present.output * source.uniform(0.5, 1.5))))
