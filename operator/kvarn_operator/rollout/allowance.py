"""How many serving old pods of each pool may start to drain now. Called by `steps`.

Three bounds: what the user lets be unavailable; what the other pools' old pods still need for a partner; and the P:D
ratio. The last two never hold a pool for good: something else is on its way then, or they let one pod go.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from kvarn_operator.rollout.shortage import nothing_moves
from kvarn_operator.rollout.standing import Standing, complete_layouts
from kvarn_operator.scaling.spec import Role

_HALF = Fraction(1, 2)


def drainable(pools: Sequence[Standing]) -> tuple[int, ...]:
    """For each pool, before the ratio is looked at."""
    kept = foreign_to_keep(pools)
    settled = not any(pool.foreign for pool in pools)
    return tuple(
        min(_by_floor(pools, pool), pool.alike if settled else max(0, pool.foreign - keep))
        for pool, keep in zip(pools, kept, strict=True)
    )


def foreign_to_keep(pools: Sequence[Standing]) -> tuple[int, ...]:
    """Serving old pods of another layout that must stay, so that whole pairs of either layout serve the whole.

    With a share x of every pool renewed, the old pods have to serve 1 - x of the target, less what may be unavailable.
    The pool with the least x is held only by its own x, so it can always go on. An old pod without partner in another
    pool never gets one any more, so nothing is kept for it.
    """
    complete = complete_layouts(pools)
    paired = [sum(pool.serving_in(layout) for layout in complete if layout != pool.layout) for pool in pools]
    renewed = min((_counted_renewed(pool) for pool in pools), default=Fraction(1))
    kept = [min(_share_to_keep(pool, renewed), most) for pool, most in zip(pools, paired, strict=True)]
    old_pair_needed, old_stays = _old_pair_needed(pools), any(kept)
    for index, pool in enumerate(pools):
        partner = old_pair_needed or (old_stays and _counted_renewed(pool) > renewed)
        if partner and not may_drop_last(pools, pool):
            kept[index] = max(kept[index], 1)
    return tuple(kept)


def may_drop_last(pools: Sequence[Standing], pool: Standing) -> bool:
    """The last pod of a pair may go when the user lets the pool have none, and either nothing moves otherwise, or the
    other pools have as much to gain as to lose, or they have to interrupt service too."""
    if pool.rollout.max_unavailable >= pool.target and nothing_moves(pools):
        return True
    if not pool.gives_up_last:
        return False
    others = [other for other in pools if other is not pool]
    return not _old_pair_needed(pools) or all(other.renewed >= _HALF or other.gives_up_last for other in others)


def within_ratio(pools: Sequence[Standing], drains: Sequence[int]) -> tuple[int, ...]:
    """`drains`, less what would leave a pool too small beside the other one.

    A pool that is not behind may always move by one pod, or else a small pool never could; one that is behind has pods
    on their way, and waits for them. Surplus pods count for nothing, so that a surge cannot hold the other pool.
    """
    allowed = list(drains)
    least = [_least(pools, index, drains[index]) for index in range(len(pools))]
    while (short := _short(pools, allowed)) is not None and allowed[short] > least[short]:
        allowed[short] -= 1
    return tuple(allowed)


def _by_floor(pools: Sequence[Standing], pool: Standing) -> int:
    floor = pool.target - pool.rollout.max_unavailable
    if _serves_nobody(pools, pool):
        floor = min(floor, pool.serving - 1)
    elif floor < 1:
        floor = 0 if may_drop_last(pools, pool) else 1
    return max(0, pool.serving - floor)


def _serves_nobody(pools: Sequence[Standing], pool: Standing) -> bool:
    """No pair serves at all, and an old pod without partner holds the node that its successor needs."""
    return pool.lacks_node and pool.foreign > 0 and not complete_layouts(pools)


def _counted_renewed(pool: Standing) -> Fraction:
    """A pool that must interrupt service does so half-way: until then it does not hold the others back."""
    swaps = pool.swaps and pool.rollout.max_unavailable >= pool.target
    return max(pool.renewed, _HALF) if swaps else pool.renewed


def _share_to_keep(pool: Standing, renewed: Fraction) -> int:
    return max(0, math.ceil(pool.target * (1 - renewed)) - pool.rollout.max_unavailable)


def _old_pair_needed(pools: Sequence[Standing]) -> bool:
    """An old pair serves, and no pair of the wanted layout does yet."""
    complete = complete_layouts(pools)
    return bool(complete) and not any(pool.layout in complete for pool in pools)


def _share(pool: Standing, drained: int) -> float:
    return min(1.0, (pool.serving - drained) / pool.target)


def _least(pools: Sequence[Standing], index: int, drained: int) -> int:
    pool = pools[index]
    behind = any(_share(pool, 0) < _share(other, 0) for other in pools)
    return 0 if behind and not pool.lacks_node else min(1, drained)


def _short(pools: Sequence[Standing], drains: Sequence[int]) -> int | None:
    """Index of the pool that would be too small beside the other."""
    by_role = {pool.progress.role: index for index, pool in enumerate(pools)}
    if set(by_role) != {Role.PREFILL, Role.DECODE}:
        return None
    prefill, decode = by_role[Role.PREFILL], by_role[Role.DECODE]
    ours, theirs = _share(pools[prefill], drains[prefill]), _share(pools[decode], drains[decode])
    tolerance = pools[prefill].rollout.ratio_tolerance
    if ours < theirs * (1 - tolerance) - 1e-9:
        return prefill
    return decode if ours > theirs * (1 + tolerance) + 1e-9 else None
