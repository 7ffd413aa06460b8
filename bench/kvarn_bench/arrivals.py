"""When requests arrive. Pure: the same seed gives the same schedule on every machine."""

import random


def poisson_arrivals(rate_per_s: float, count: int, seed: int) -> tuple[float, ...]:
    """Seconds from the start, never going back. Exponential gaps: an open loop that does not wait for answers."""
    if rate_per_s <= 0:
        raise ValueError(f"rate is {rate_per_s} requests/s, not above 0")
    if count < 1:
        raise ValueError(f"{count} requests, at least 1 is needed")
    source = random.Random(seed)
    now = 0.0
    times = []
    for _ in range(count):
        now += source.expovariate(rate_per_s)
        times.append(now)
    return tuple(times)
