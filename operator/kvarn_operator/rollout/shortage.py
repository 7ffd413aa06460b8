"""When nodes run out while both pools change their layout. Called by `steps`.

A pool's surge may take the node that the other pool's share of the target needs. Neither can then go on: the one has
no node, and the other's old pods wait for its new ones. So a pool does not surge ahead of one that starves, and when
nothing moves any more, gives one pod beyond its target back.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvarn_operator.rollout.standing import Standing


def yielding(pools: Sequence[Standing]) -> list[Standing]:
    """Marks pools that could not go on with a surge anyway before another one that starves has."""
    return [replace(pool, yields=any(_goes_first(other, pool) for other in pools)) for pool in pools]


def nothing_moves(pools: Sequence[Standing]) -> bool:
    """Pods find no node, none is on its way to ready, and none that drains will make room."""
    current = [pool.progress.current for pool in pools]
    waits = any(group.starting + group.lapsed for group in current) or any(pool.progress.draining for pool in pools)
    return not waits and any(group.unschedulable for group in current)


def giver(pools: Sequence[Standing]) -> int | None:
    """Index of the pool that holds more nodes than its target while another has fewer."""
    if not nothing_moves(pools) or not any(pool.starves for pool in pools):
        return None
    return next((index for index, pool in enumerate(pools) if pool.foreign and pool.placed > pool.target), None)


def _goes_first(other: Standing, pool: Standing) -> bool:
    return other is not pool and other.starves and other.foreign > 0 < pool.foreign and other.renewed <= pool.renewed
