"""The stepwise planner: from what each pool has now to what it does next. Called by every reconcile.

It covers a rollout, a rollback, a change of target and all of them at once, and remembers nothing: the next call sees
what this one led to. Of every pool, counting neither draining nor terminating pods:

* at most target + maxSurge pods, and at least target - maxUnavailable serving, wherever that was so before;
* a whole pair (prefill and decode of one layout) serves at every moment once one did, unless the user lets all pods of
  a pool be unavailable and there is no other way;
* old and new serve together what the target should: one pool's rollout never runs ahead of the other's partners;
* the P:D ratio of serving pods stays within its tolerance, as far as whole pods allow.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.rollout.allowance import drainable, within_ratio
from kvarn_operator.rollout.layouts import layout_classes
from kvarn_operator.rollout.progress import Drain, Gate, PodGroup, PoolProgress, PoolStep
from kvarn_operator.rollout.shortage import asked_again, giving_back, with_placeless, yielding
from kvarn_operator.rollout.standing import Standing, complete_layouts
from kvarn_operator.scaling.spec import Role

GroupKey = tuple[str, str]


def next_steps(pools: Sequence[PoolProgress], rollout: Rollout) -> tuple[PoolStep, ...]:
    """One step for each pool, in the order given. An empty step with `Gate.NONE` means that the pool is done.

    A pod that finds no room in a quota counts as one that finds no node, and is asked for again.
    """
    found = _planned(pools, rollout)
    missing = [step.create if pool.lacks_quota else 0 for step, pool in zip(found, pools, strict=True)]
    if not any(missing):
        return found
    found = _planned([with_placeless(pool, count) for pool, count in zip(pools, missing, strict=True)], rollout)
    return tuple(asked_again(step, pool, count) for step, pool, count in zip(found, pools, missing, strict=True))


def _planned(pools: Sequence[PoolProgress], rollout: Rollout) -> tuple[PoolStep, ...]:
    pairings = {pool.pairing for pool in pools} | {group.pairing for pool in pools for group in pool.groups}
    classes = layout_classes(pairings)
    standings = yielding([Standing(pool, rollout, classes) for pool in pools if pool.target > 0])
    allowed = within_ratio(standings, drainable(standings))
    found = _all_steps(standings, allowed)
    if not any(step.create or step.drain for step in found):
        found = _all_steps(giving_back(standings), allowed)
    steps = {step.role: step for step in found}
    return tuple(steps.get(pool.role) or _emptied(pool) for pool in pools)


def would_stay(pools: Sequence[PoolProgress], rollout: Rollout, role: Role, group: PodGroup) -> bool:
    """Whether one draining pod of this revision and pairing, serving again, would be left alone."""
    key = (group.revision, group.pairing)
    mine = next(pool for pool in pools if pool.role is role)
    found = next((each for each in mine.groups if (each.revision, each.pairing) == key), PodGroup(*key))
    back = replace(found, serving=found.serving + 1)
    others = tuple(each for each in mine.groups if each is not found)
    changed = replace(mine, groups=(*others, back), draining=max(0, mine.draining - 1))
    steps = next_steps([changed if pool is mine else pool for pool in pools], rollout)
    drains = {
        (drain.revision, drain.pairing): drain.count for step in steps if step.role is role for drain in step.drain
    }
    return drains.get(key, 0) <= back.idle


def _emptied(pool: PoolProgress) -> PoolStep:
    drains = (Drain(group.revision, group.pairing, group.total) for group in pool.groups)
    return PoolStep(pool.role, drain=tuple(drain for drain in drains if drain.count))


def _all_steps(pools: Sequence[Standing], drains: Sequence[int]) -> list[PoolStep]:
    order = _order(pools)
    return [_step(pool, drained, order) for pool, drained in zip(pools, drains, strict=True)]


def _step(pool: Standing, drained: int, order: Sequence[str]) -> PoolStep:
    drains = _drains(pool, drained, order)
    staying = pool.progress.current.total - pool.excess
    old_left = sum(group.total for group in pool.progress.old) - sum(drains.values())
    room = pool.target + pool.surge - staying - old_left
    create = max(0, min(pool.target - staying, room))
    if pool.excess:
        drains.update(_excess(pool))
    gate = Gate.NONE if create or drains else _gate(pool)
    found = tuple(Drain(revision, pairing, count) for (revision, pairing), count in sorted(drains.items()))
    return PoolStep(pool.progress.role, create, found, gate, _message(pool, gate))


def _drains(pool: Standing, drained: int, order: Sequence[str]) -> Counter[GroupKey]:
    """Idle old pods, since they serve nobody, and `drained` serving ones, the most useful layout last."""
    drains: Counter[GroupKey] = Counter()
    lapsed = sum(group.lapsed for group in pool.progress.old) - pool.spared
    for group in sorted(pool.progress.old, key=lambda group: order.index(pool.classes[group.pairing])):
        serving, hopeless = min(group.serving, drained), min(group.lapsed, lapsed)
        drained, lapsed = drained - serving, lapsed - hopeless
        if count := group.idle - group.lapsed + hopeless + serving:
            drains[group.revision, group.pairing] = count
    assert drained == 0, "more drains were allowed than old pods serve"
    return drains


def _excess(pool: Standing) -> Counter[GroupKey]:
    """Of the wanted revision. Groups differ only in a stale annotation; idle pods go first."""
    groups = [group for group in pool.progress.groups if group.revision == pool.progress.revision]
    drains: Counter[GroupKey] = Counter()
    left = pool.excess
    for idle in (True, False):
        for group in groups:
            count = min(group.idle if idle else group.serving, left)
            left -= count
            if count:
                drains[group.revision, group.pairing] += count
    return drains


def _order(pools: Sequence[Standing]) -> list[str]:
    """Layouts in the order in which their old pods go: without partner first, then by what they can serve; the
    wanted layout last."""
    complete = complete_layouts(pools)
    wanted = {pool.layout for pool in pools}
    layouts = {layout for pool in pools for layout in pool.classes.values()}
    return sorted(layouts, key=lambda layout: (layout in wanted, complete.get(layout, 0), layout))


def _gate(pool: Standing) -> Gate:
    """A pool that is held by the ratio has pods on their way, so it is those that it waits for."""
    current = pool.progress.current
    if current.starting + current.lapsed:
        return Gate.STARTING
    if current.unschedulable:
        return Gate.DRAINING if pool.progress.draining else Gate.UNSCHEDULABLE
    return Gate.PAIRING if pool.progress.old else Gate.NONE


def _message(pool: Standing, gate: Gate) -> str:
    role, current = pool.progress.role.value, pool.progress.current
    old = sum(group.total for group in pool.progress.old)
    if gate is Gate.STARTING:
        return f"{current.starting + current.lapsed} {role} pods are not ready yet"
    if gate is Gate.DRAINING:
        return f"{current.unschedulable} {role} pods find no node until {pool.progress.draining} others have drained"
    if gate is Gate.UNSCHEDULABLE:
        held = (
            f"; the {old} old ones must serve on (replicas {pool.target}, maxUnavailable"
            f" {pool.rollout.max_unavailable}): a larger maxUnavailable lets them go first"
        )
        return f"{current.unschedulable} {role} pods find no node{held if old else ''}"
    if gate is Gate.PAIRING:
        return f"{old} old {role} pods stay until the other pool's new pods serve"
    return ""
