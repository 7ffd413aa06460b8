"""Windows and rate limits against flapping. Pure; applied by the planner between the law and the budget."""

import math

from kvarn_operator.scaling.memory import PoolMemory
from kvarn_operator.scaling.spec import Behaviour, RateLimit


def stabilised(behaviour: Behaviour, memory: PoolMemory, current: int, wanted: int, now: float) -> int:
    """Down to the highest number wanted in the down window, up to the lowest in the up window, else unchanged."""
    highest = max([wanted, *(each.value for each in memory.wanted if each.at > now - behaviour.down_window_s)])
    lowest = min([wanted, *(each.value for each in memory.wanted if each.at > now - behaviour.up_window_s)])
    if highest < current:
        return highest
    return max(current, lowest)


def rate_limited(behaviour: Behaviour, memory: PoolMemory, current: int, target: int, now: float) -> int:
    """Counted from the replicas at the start of the period, so many small calls move no further than one."""
    if target > current:
        start = current - _moved(memory, behaviour.up_limit, now, sign=1)
        return max(current, min(target, start + _allowance(behaviour.up_limit, start)))
    start = current + _moved(memory, behaviour.down_limit, now, sign=-1)
    return min(current, max(target, start - _allowance(behaviour.down_limit, start)))


def _moved(memory: PoolMemory, limit: RateLimit, now: float, sign: int) -> int:
    steps = [each.value * sign for each in memory.changes if each.at > now - limit.period_s]
    return sum(step for step in steps if step > 0)


def _allowance(limit: RateLimit, start: int) -> int:
    return max(limit.pods, math.ceil(max(start, 0) * limit.share))
