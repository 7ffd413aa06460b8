"""From numbers to pods: asks `rollout.steps` what each pool may do next, and picks the pods it means.

Called by `service`. Scaling and rolling are one question: so many pods of the wanted revision, none of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from kvarn_operator.reconcile.observed import Observed, Readings
from kvarn_operator.reconcile.pool_view import OPERATOR_DRAINS, ROLLOUT, SCALE_DOWN, PoolView
from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.resources.worker_pool import WorkerPod
from kvarn_operator.rollout.progress import Drain, PodGroup, PoolProgress, PoolStep, groups_of
from kvarn_operator.rollout.steps import next_steps, would_stay
from kvarn_operator.rollout.victims import choose_victims
from kvarn_operator.scaling.spec import PoolName


@dataclass(frozen=True, slots=True)
class Victim:
    pod: WorkerPod
    reason: str


@dataclass(frozen=True, slots=True)
class PoolChange:
    victims: tuple[Victim, ...]
    returning: tuple[WorkerPod, ...]
    """Cordoned by the operator, and needed again."""

    create: int
    step: PoolStep


def pool_changes(
    views: Sequence[PoolView], pairing: str, rollout: Rollout, observed: Observed
) -> Mapping[PoolName, PoolChange]:
    """`pairing` is the one that new pods get."""
    progress = [_progress(view, pairing, observed.lacks_quota(view.resource.name)) for view in views]
    steps = {step.role: step for step in next_steps(progress, rollout)}
    changes = {}
    for view, own in zip(views, progress, strict=True):
        step = steps[view.role]
        victims = tuple(victim for drain in step.drain for victim in _victims(view, drain, observed.readings))
        returning = _wanted_back(view, step.create)
        if not any(pod.ready for pod in (*view.pods.active, *returning)):
            returning = (*returning, *_rescued(view, own, progress, rollout))
        updated = sum(pod.revision == view.revision for pod in returning)
        changes[view.resource.name] = PoolChange(victims, returning, max(0, step.create - updated), step)
    return changes


def _progress(view: PoolView, pairing: str, lacks_quota: bool) -> PoolProgress:
    groups, leaving = groups_of(view.pods.active), len(view.pods.leaving)
    return PoolProgress(view.role, view.desired, view.revision, pairing, groups, leaving, lacks_quota)


def _wanted_back(view: PoolView, count: int) -> tuple[WorkerPod, ...]:
    """Instead of new pods."""
    return tuple(pod for pod in _cordoned(view) if pod.revision == view.revision)[:count]


def _rescued(
    view: PoolView, own: PoolProgress, progress: Sequence[PoolProgress], rollout: Rollout
) -> tuple[WorkerPod, ...]:
    """One that still can serve when nothing else of its pool does, unless it would be told to go again at once."""
    if view.desired == 0:
        return ()
    able = (pod for pod in _cordoned(view) if pod.ready)
    helps = (pod for pod in able if would_stay(progress, rollout, own.role, PodGroup(pod.revision, pod.pairing)))
    return tuple(islice(helps, 1))


def _cordoned(view: PoolView) -> list[WorkerPod]:
    """By the operator; a drain that a user began is never taken back."""
    cordoned = [pod for pod in view.pods.draining if pod.drain_reason in OPERATOR_DRAINS and not pod.ended]
    return sorted(cordoned, key=lambda pod: (not pod.ready, pod.name))


def _victims(view: PoolView, drain: Drain, readings: Readings) -> tuple[Victim, ...]:
    group = [pod for pod in view.pods.active if (pod.revision, pod.pairing) == (drain.revision, drain.pairing)]
    reason = SCALE_DOWN if drain.revision == view.revision else ROLLOUT
    return tuple(Victim(pod, reason) for pod in choose_victims(group, drain.count, readings))
