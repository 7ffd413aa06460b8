"""Shares a model's GPUs between its pools. Pure; the planner's last rule.

Never more than the budget: a pool grows only into GPUs that are free now, so a decrease elsewhere comes first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvarn_operator.scaling.spec import Budget, BudgetPolicy, Role


@dataclass(frozen=True, slots=True)
class Claim:
    role: Role
    gpus_per_pod: int
    floor: int
    """Given first."""

    target: int
    current: int
    footprint: int
    """Pods that hold GPUs now, or were asked for."""


def shrunk(claims: Sequence[Claim], budget: Budget) -> list[int]:
    """Targets that fit; a pool never gets less than its floor, even where the floors alone do not fit."""
    if sum(claim.target * claim.gpus_per_pod for claim in claims) <= budget.gpus:
        return [claim.target for claim in claims]
    granted = [min(claim.floor, claim.target) for claim in claims]
    free = budget.gpus - _gpus(claims, granted)
    if budget.policy is BudgetPolicy.PROPORTIONAL:
        granted = _in_proportion(claims, granted, free)
        free = budget.gpus - _gpus(claims, granted)
    for index in _order(claims, granted, budget.policy):
        extra = _fitting(claims[index], claims[index].target - granted[index], free)
        granted[index] += extra
        free -= extra * claims[index].gpus_per_pod
    return granted


def growth_that_fits_now(claims: Sequence[Claim], targets: Sequence[int], budget: Budget) -> list[int]:
    free = budget.gpus - sum(claim.footprint * claim.gpus_per_pod for claim in claims)
    granted = []
    for claim, target in zip(claims, targets, strict=True):
        extra = _fitting(claim, target - claim.current, free) if target > claim.current else target - claim.current
        free -= max(extra, 0) * claim.gpus_per_pod
        granted.append(claim.current + extra)
    return granted


def _gpus(claims: Sequence[Claim], replicas: Sequence[int]) -> int:
    return sum(claim.gpus_per_pod * count for claim, count in zip(claims, replicas, strict=True))


def _fitting(claim: Claim, pods: int, free: int) -> int:
    return pods if claim.gpus_per_pod == 0 else max(0, min(pods, free // claim.gpus_per_pod))


def _in_proportion(claims: Sequence[Claim], granted: Sequence[int], free: int) -> list[int]:
    missing = [claim.target - count for claim, count in zip(claims, granted, strict=True)]
    needed = _gpus(claims, missing)
    share = max(free, 0) / needed if needed else 0.0
    return [count + int(more * min(share, 1.0)) for count, more in zip(granted, missing, strict=True)]


def _order(claims: Sequence[Claim], granted: Sequence[int], policy: BudgetPolicy) -> list[int]:
    """Who takes what is left: the preferred role, or whoever misses the largest share of its target."""
    preferred = {BudgetPolicy.PREFILL_FIRST: Role.PREFILL, BudgetPolicy.DECODE_FIRST: Role.DECODE}.get(policy)

    def key(index: int) -> tuple[bool, float, int]:
        claim = claims[index]
        return claim.role is not preferred, granted[index] / max(claim.target, 1), index

    return sorted(range(len(claims)), key=key)
