"""When nodes run out while both pools change their layout. Called by `steps`.

A pool's surge may take the node that the other pool's share of the target needs. Neither can then go on: the one has
no node, and the other's old pods wait for its new ones. So a pool does not surge ahead of one that starves, and when
nothing moves any more, gives one pod beyond its target back. Room in a quota runs out in the same way.
"""

from collections.abc import Sequence
from dataclasses import replace

from kvarn_operator.rollout.progress import PodGroup, PoolProgress, PoolStep
from kvarn_operator.rollout.standing import Standing


def yielding(pools: Sequence[Standing]) -> list[Standing]:
    """Marks pools that could not go on with a surge anyway before another one that starves has."""
    return [replace(pool, yields=any(_goes_first(other, pool) for other in pools)) for pool in pools]


def nothing_moves(pools: Sequence[Standing]) -> bool:
    """Pods find no node, none is on its way to ready, and none that drains will make room."""
    current = [pool.progress.current for pool in pools]
    waits = any(group.starting + group.lapsed for group in current) or any(pool.progress.draining for pool in pools)
    return not waits and any(group.unschedulable for group in current)


def giving_back(pools: Sequence[Standing]) -> list[Standing]:
    """A pool that holds more nodes than its target while another has fewer gives a wanted pod's node back: the old ones
    serve in pairs. With it go the pods that have no node and would take it again."""
    found = list(pools)
    if nothing_moves(pools) and any(pool.starves for pool in pools):
        for index, pool in enumerate(pools):
            current = pool.progress.current
            if pool.foreign and current.serving and pool.placed > pool.target:
                found[index] = replace(pool, gives=current.idle + 1)
                break
    return found


def with_placeless(pool: PoolProgress, count: int) -> PoolProgress:
    """As if so many wanted pods were there that were refused."""
    groups = (PodGroup(pool.revision, pool.pairing, unschedulable=count),) if count else ()
    return replace(pool, groups=(*pool.groups, *groups))


def asked_again(step: PoolStep, pool: PoolProgress, placeless: int) -> PoolStep:
    """The step of a pool that was seen with placeless pods: they are made anew, save those that should go."""
    drains, left = [], placeless
    for drain in step.drain:
        gone = min(left, drain.count) if (drain.revision, drain.pairing) == (pool.revision, pool.pairing) else 0
        left -= gone
        drains += [replace(drain, count=drain.count - gone)] if drain.count > gone else []
    return replace(step, create=step.create + left, drain=tuple(drains))


def _goes_first(other: Standing, pool: Standing) -> bool:
    return other is not pool and other.starves and other.foreign > 0 < pool.foreign and other.renewed <= pool.renewed
