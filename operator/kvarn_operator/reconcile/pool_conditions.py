"""What a person should know of one pool, as conditions. Pure; used by `pool_status` and `service_conditions`.

Messages hold what stays the same while nothing changes: no times that pass, no readings, so that a pool at rest is
never written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvarn_operator.reconcile.autoscaling import PoolOutcome
from kvarn_operator.reconcile.pool_view import PoolView
from kvarn_operator.reconcile.replicas_writers import fighters
from kvarn_operator.reconcile.rolling import PoolChange
from kvarn_operator.reconcile.timestamps import rfc3339
from kvarn_operator.resources.conditions import Condition, ConditionType, Truth
from kvarn_operator.resources.times import seconds_or
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.scaling.decision import Reason
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import ScalingMode

SHOWN = 3
"""Names in one message."""

LATE_S = 30.0
"""Metrics that are late for so long are missing."""

_PROBLEMS = {
    PodProblem.UNSCHEDULABLE: "Unschedulable",
    PodProblem.IMAGE: "ImageProblem",
    PodProblem.CONFIGURATION: "ConfigurationProblem",
    PodProblem.CRASHING: "WorkerCrashing",
}
_LIMITS = {Reason.MAXIMUM: "AtMaximum", Reason.BUDGET: "BudgetLimited", Reason.BUDGET_WAIT: "BudgetLimited"}


@dataclass(frozen=True, slots=True)
class PoolPicture:
    """All that was found out about one pool in this reconcile."""

    view: PoolView
    change: PoolChange
    outcome: PoolOutcome
    refused: str = ""
    """Why the API server takes no pod of this pool."""


def pool_conditions(picture: PoolPicture, now: float) -> tuple[Condition, ...]:
    conditions = [
        Condition(ConditionType.ACCEPTED, Truth.TRUE, "Valid", "the spec can be carried out"),
        _model_cached(picture.view),
        _capacity(picture),
        _ready(picture),
        _progressing(picture),
        _draining(picture.view),
        _scaling_active(picture, now),
        _replicas_conflict(picture, now),
    ]
    return (*conditions, *reconciling(conditions))


def is_settled(picture: PoolPicture) -> bool:
    view = picture.view
    done = len(view.pods.ready) == len(view.pods.active) == view.desired and not view.outdated
    return done and not (view.pods.leaving or view.pods.ended)


def reconciling(conditions: Sequence[Condition]) -> Iterator[Condition]:
    """kstatus: there only while work is under way, or waits for something outside."""
    for condition in conditions:
        moving = condition.type is ConditionType.PROGRESSING and condition.reason != "Settled"
        if moving or (condition.type is ConditionType.DRAINING and condition.reason == "PodsDraining"):
            yield Condition(ConditionType.RECONCILING, Truth.TRUE, condition.reason, condition.message)
            return


def listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def troubled(pods: Sequence[WorkerPod]) -> tuple[str, str] | None:
    """Reason and message of the first pod that has a problem."""
    for pod in pods:
        problem = PodProblem.UNSCHEDULABLE if pod.phase is PodPhase.UNSCHEDULABLE else pod.problem
        if problem is not PodProblem.NONE and not pod.ready:
            return _PROBLEMS[problem], f"{pod.name}: {pod.problem_message or problem.value}"
    return None


def _model_cached(view: PoolView) -> Condition:
    """Of the model as it is wanted now: that old pods have loaded the one before says nothing."""
    kind = ConditionType.MODEL_CACHED
    if any(pod.ready for pod in view.updated):
        return Condition(kind, Truth.TRUE, "Loaded", "a worker has loaded the model")
    trouble = troubled(view.updated)
    if trouble is not None and trouble[0] != "Unschedulable":
        return Condition(kind, Truth.FALSE, *trouble)
    if view.updated:
        return Condition(kind, Truth.UNKNOWN, "Loading", "no worker has loaded the model yet")
    return Condition(kind, Truth.UNKNOWN, "NoPods", "no worker is there to load the model")


def _capacity(picture: PoolPicture) -> Condition:
    kind, pods = ConditionType.CAPACITY_AVAILABLE, picture.view.pods.active
    if picture.refused:
        return Condition(kind, Truth.FALSE, "PodsRefused", picture.refused)
    lost = [pod for pod in pods if not pod.ready and pod.phase is PodPhase.UNSCHEDULABLE]
    if lost:
        why = lost[0].problem_message or "the scheduler does not say why"
        return Condition(kind, Truth.FALSE, "Unschedulable", f"no node for {listed([pod.name for pod in lost])}: {why}")
    if not pods:
        return Condition(kind, Truth.UNKNOWN, "NoPods", "no pod asks for capacity")
    return Condition(kind, Truth.TRUE, "Scheduled", "every pod has found its node or is about to")


def _ready(picture: PoolPicture) -> Condition:
    view, kind = picture.view, ConditionType.READY
    ready = len(view.pods.ready)
    if view.desired == 0:
        return Condition(kind, Truth.TRUE, "ScaledToZero", "no pod is wanted")
    if ready >= view.desired:
        return Condition(kind, Truth.TRUE, "AllPodsReady", f"{ready} of {view.desired} pods ready")
    reason, message = _hindrance(picture) or ("PodsNotReady", _unready(view))
    return Condition(kind, Truth.FALSE, reason, _joined(f"{ready} of {view.desired} pods ready", message))


def _unready(view: PoolView) -> str:
    """With their nodes, since a node that is lost takes minutes to be given up."""
    waiting = [f"{pod.name} on {pod.node or 'no node'}" for pod in view.pods.active if not pod.ready]
    return f"not ready: {listed(waiting)}" if waiting else ""


def _progressing(picture: PoolPicture) -> Condition:
    view, step, kind = picture.view, picture.change.step, ConditionType.PROGRESSING
    ready = len(view.pods.ready)
    if view.outdated:
        done = f"{len(view.updated)} of {view.desired} pods are of revision {view.revision}"
        trouble = _refusal(picture) or troubled(view.updated)
        if trouble is not None or step.blocked:
            why = "" if trouble is None else trouble[1]
            return Condition(kind, Truth.FALSE, "RolloutBlocked", _joined(done, why, step.message))
        return Condition(kind, Truth.TRUE, "RollingOut", _joined(done, step.message))
    if ready == view.desired == len(view.pods.active):
        return Condition(kind, Truth.FALSE, "Settled", "every pod is as it should be")
    hindrance = _hindrance(picture)
    if hindrance is not None and ready < view.desired:
        return Condition(kind, Truth.FALSE, *hindrance)
    return Condition(kind, Truth.TRUE, "Scaling", f"{ready} pods ready, {view.desired} wanted")


def _hindrance(picture: PoolPicture) -> tuple[str, str] | None:
    return _refusal(picture) or troubled(picture.view.pods.active)


def _refusal(picture: PoolPicture) -> tuple[str, str] | None:
    return ("PodsRefused", picture.refused) if picture.refused else None


def _draining(view: PoolView) -> Condition:
    kind, leaving, stuck = ConditionType.DRAINING, view.pods.leaving, view.pods.stuck
    if leaving:
        return Condition(kind, Truth.TRUE, "PodsDraining", f"on their way out: {listed([pod.name for pod in leaving])}")
    if stuck:
        nodes = listed(sorted({pod.node or "no node" for pod in stuck}))
        names = listed([pod.name for pod in stuck])
        message = f"should be gone and are not: {names}; look at {nodes}, then delete them with --force"
        return Condition(kind, Truth.TRUE, "PodsStuck", message)
    return Condition(kind, Truth.FALSE, "NothingDrains", "no pod is on its way out")


def _scaling_active(picture: PoolPicture, now: float) -> Condition:
    kind, outcome = ConditionType.SCALING_ACTIVE, picture.outcome
    pool = outcome.spec.pool
    if outcome.spec.mode is ScalingMode.MANUAL:
        return Condition(kind, Truth.UNKNOWN, "Manual", f"scale it by hand: kubectl scale wp/{pool} --replicas=N")
    if outcome.spec.mode is ScalingMode.EXTERNAL:
        return Condition(kind, Truth.UNKNOWN, "External", "whoever writes replicas decides, such as an HPA or KEDA")
    if (held := outcome.memory.override) is not None:
        message = f"{held.replicas} replicas, set by {held.writer}, hold until {rfc3339(held.until)}"
        return Condition(kind, Truth.TRUE, "Override", message)
    if outcome.silent:
        message = f"no fresh metrics from {listed(outcome.silent)}; the pool does not shrink until they are back"
        missing = _is_missing_for_long(picture.view, now)
        return Condition(
            kind, *((Truth.FALSE, "MetricsMissing") if missing else (Truth.UNKNOWN, "MetricsLate")), message
        )
    reason = next((_LIMITS[step.reason] for step in reversed(outcome.decision.steps) if step.reason in _LIMITS), None)
    if reason is not None:
        return Condition(kind, Truth.TRUE, reason, "the load asks for more pods than the pool may have")
    return Condition(kind, Truth.TRUE, "Deciding", "replicas follow the load")


def _is_missing_for_long(view: PoolView, now: float) -> bool:
    """A pod that has just become ready is read with the next sample; that is nothing to call a person for."""
    known: Sequence[Mapping[str, Any]] = (view.resource.status or {}).get("conditions") or ()
    before = next((item for item in known if item.get("type") == ConditionType.SCALING_ACTIVE.value), {})
    if before.get("reason") == "MetricsMissing":
        return True
    return before.get("reason") == "MetricsLate" and now - seconds_or(before.get("lastTransitionTime"), now) >= LATE_S


def _replicas_conflict(picture: PoolPicture, now: float) -> Condition:
    outcome, kind = picture.outcome, ConditionType.REPLICAS_CONFLICT
    names = fighters(outcome.writes, outcome.spec.mode, now)
    if not names:
        return Condition(kind, Truth.FALSE, "NoConflict", "at most one writes replicas at a time")
    if outcome.spec.mode is ScalingMode.SLO:
        advice = "remove it, or set scaling.mode to External and let it alone decide"
        others = f"{' and '.join(names)} and the operator's planner (mode SLO)"
    else:
        advice, others = "leave it to one of them", " and ".join(names)
    message = f"{others} keep writing replicas of {outcome.spec.pool}: {advice}"
    return Condition(kind, Truth.TRUE, "SeveralWriters", message)


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
