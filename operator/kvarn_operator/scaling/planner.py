"""The planner: what is asked, seen and remembered in; one decision per pool out. The central function is `plan`.

Called by the operator's reconcile at each tick and by `bench scaling`. Knows neither Kubernetes nor the time.
Order of the rules: law, missing metrics, objective, windows, rate, minimum and maximum, override, budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvarn_operator.scaling.decision import Decision, Reason, Step
from kvarn_operator.scaling.gpu_budget import Claim, growth_that_fits_now, shrunk
from kvarn_operator.scaling.law import Want, want
from kvarn_operator.scaling.memory import PoolMemory, ServiceMemory
from kvarn_operator.scaling.observation import Demand, PoolObservation, ServiceObservation
from kvarn_operator.scaling.override import with_foreign_write
from kvarn_operator.scaling.spec import Budget, Law, PoolScaling, ScalingMode, ServiceScaling
from kvarn_operator.scaling.stabilisation import rate_limited, stabilised


@dataclass(frozen=True, slots=True)
class Plan:
    decisions: tuple[Decision, ...]
    """In the order of the spec's pools; a pool that was not observed has none."""

    memory: ServiceMemory


@dataclass(frozen=True, slots=True)
class _Draft:
    spec: PoolScaling
    pool: PoolObservation
    memory: PoolMemory
    want: Want
    target: int
    steps: tuple[Step, ...]


def plan(spec: ServiceScaling, seen: ServiceObservation, memory: ServiceMemory, now: float) -> Plan:
    observed = {pool.pool: pool for pool in seen.pools}
    drafts = [
        _draft(pool, spec.law, observed[pool.pool], seen.demand, memory.of(pool.pool), now)
        for pool in spec.pools
        if pool.pool in observed
    ]
    if spec.budget is not None:
        drafts = _within_budget(drafts, spec.budget)
    decisions = tuple(_decision(draft, now) for draft in drafts)
    remembered = tuple(
        (draft.spec.pool, draft.memory.with_change(now, draft.target - draft.pool.replicas, draft.spec.behaviour))
        for draft in drafts
    )
    return Plan(decisions, ServiceMemory(remembered))


def _draft(
    spec: PoolScaling, law: Law, pool: PoolObservation, demand: Demand | None, known: PoolMemory | None, now: float
) -> _Draft:
    memory = with_foreign_write(spec, pool, known, now)
    if known is None:
        memory = memory.with_want(now, pool.replicas, spec.behaviour)
    found = want(law, spec.role, pool, demand, memory.rate, now)
    busy = demand is None or not found.complete or found.replicas > 0 or demand.inflight_requests > 0
    busy_at = now if busy or memory.busy_at is None else memory.busy_at
    memory = replace(memory, rate=found.rate or memory.rate, busy_at=busy_at)
    if spec.mode is not ScalingMode.SLO:
        reason = Reason.MANUAL if spec.mode is ScalingMode.MANUAL else Reason.EXTERNAL
        step = Step(reason, found.replicas, pool.replicas)
        return _Draft(spec, pool, replace(memory, override=None), found, pool.replicas, (step,))
    target, steps = _limited(spec, pool.replicas, memory, found, now)
    wanted = found.replicas if found.complete else max(found.replicas, pool.replicas)
    return _Draft(spec, pool, memory.with_want(now, wanted, spec.behaviour), found, target, steps)


def _limited(
    spec: PoolScaling, current: int, memory: PoolMemory, found: Want, now: float
) -> tuple[int, tuple[Step, ...]]:
    steps: list[Step] = []

    def apply(reason: Reason, before: int, after: int) -> int:
        if before != after:
            steps.append(Step(reason, before, after))
        return after

    target = found.replicas
    if not found.complete:
        target = apply(Reason.METRICS_MISSING, target, max(target, current))
    if found.objective_missed:
        target = apply(Reason.OBJECTIVE_MISSED, target, max(target, current))
    target = apply(Reason.STABILISING, target, stabilised(spec.behaviour, memory, current, target, now))
    target = apply(Reason.RATE_LIMITED, target, rate_limited(spec.behaviour, memory, current, target, now))
    least, reason = _least(spec, current, memory, found, now)
    target = apply(reason, target, max(target, least))
    target = apply(Reason.MAXIMUM, target, min(target, spec.maximum))
    if memory.override is not None:
        chosen = min(max(memory.override.replicas, spec.minimum), spec.maximum)
        target = apply(Reason.OVERRIDE, target, chosen)
    return target, tuple(steps)


def _least(spec: PoolScaling, current: int, memory: PoolMemory, found: Want, now: float) -> tuple[int, Reason]:
    """A pool that may go to zero keeps one pod until nothing has happened for long enough, loading included."""
    if spec.minimum > 0:
        return spec.minimum, Reason.MINIMUM
    if memory.busy_at is None or now - memory.busy_at >= spec.zero_after_s:
        return 0, Reason.IDLE
    if memory.busy_at == now and current == 0 and found.replicas == 0 and not found.complete:
        return 0, Reason.METRICS_MISSING
    if current == 0:
        return (1, Reason.WAKE) if memory.busy_at == now else (0, Reason.IDLE)
    return 1, Reason.KEPT_WARM


def _within_budget(drafts: Sequence[_Draft], budget: Budget) -> list[_Draft]:
    """Pools that others write are served first: the planner cannot take their GPUs."""
    planned = [draft for draft in drafts if draft.spec.mode is ScalingMode.SLO]
    taken = sum(
        draft.pool.footprint() * draft.spec.gpus_per_pod for draft in drafts if draft.spec.mode is not ScalingMode.SLO
    )
    left = Budget(budget.gpus - taken, budget.policy)
    claims = _claims(planned, left)
    targets = shrunk(claims, left)
    granted = growth_that_fits_now(claims, targets, left)
    found = {
        draft.spec.pool: _granted(draft, fitting, now_fitting)
        for draft, fitting, now_fitting in zip(planned, targets, granted, strict=True)
    }
    return [found.get(draft.spec.pool, draft) for draft in drafts]


def _claims(drafts: Sequence[_Draft], budget: Budget) -> list[Claim]:
    """An override, and a pool whose metrics are missing, keep their pods as long as all floors fit."""
    floors = [draft.target if draft.memory.override else draft.spec.minimum for draft in drafts]
    floors = [
        floor if draft.want.complete else max(floor, min(draft.pool.replicas, draft.target))
        for floor, draft in zip(floors, drafts, strict=True)
    ]
    if sum(floor * draft.spec.gpus_per_pod for floor, draft in zip(floors, drafts, strict=True)) > budget.gpus:
        floors = [draft.spec.minimum for draft in drafts]
    return [
        Claim(
            draft.spec.role, draft.spec.gpus_per_pod, floor, draft.target, draft.pool.replicas, draft.pool.footprint()
        )
        for floor, draft in zip(floors, drafts, strict=True)
    ]


def _granted(draft: _Draft, fitting: int, now_fitting: int) -> _Draft:
    steps = list(draft.steps)
    if fitting != draft.target:
        steps.append(Step(Reason.BUDGET, draft.target, fitting))
    if now_fitting != fitting:
        steps.append(Step(Reason.BUDGET_WAIT, fitting, now_fitting))
    return replace(draft, target=now_fitting, steps=tuple(steps))


def _decision(draft: _Draft, now: float) -> Decision:
    return Decision(
        pool=draft.spec.pool, role=draft.spec.role, mode=draft.spec.mode, at=now, current=draft.pool.replicas,
        wanted=draft.want.replicas, target=draft.target, steps=draft.steps, terms=draft.want.terms,
        override=draft.memory.override,
    )  # fmt: skip
