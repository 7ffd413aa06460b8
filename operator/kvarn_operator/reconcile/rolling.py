"""From numbers to pods: asks `rollout.steps` what each pool may do next, and picks the pods it means.

Called by `service`. Scaling and rolling are one question: so many pods of the wanted revision, none of another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvarn_operator.reconcile.observed import Readings
from kvarn_operator.reconcile.pool_view import ROLLOUT, SCALE_DOWN, PoolView
from kvarn_operator.resources.model_service import Rollout
from kvarn_operator.resources.worker_pool import WorkerPod
from kvarn_operator.rollout.progress import Drain, PoolProgress, PoolStep, groups_of
from kvarn_operator.rollout.steps import next_steps
from kvarn_operator.rollout.victims import choose_victims
from kvarn_operator.scaling.spec import PoolName


@dataclass(frozen=True, slots=True)
class Victim:
    pod: WorkerPod
    reason: str


@dataclass(frozen=True, slots=True)
class PoolChange:
    create: int
    victims: tuple[Victim, ...]
    step: PoolStep


def pool_changes(
    views: Sequence[PoolView], pairing: str, rollout: Rollout, readings: Readings
) -> Mapping[PoolName, PoolChange]:
    """`pairing` is the one that new pods get."""
    progress = [_progress(view, pairing) for view in views]
    steps = {step.role: step for step in next_steps(progress, rollout)}
    return {view.resource.name: _change(view, steps[view.role], readings) for view in views}


def _progress(view: PoolView, pairing: str) -> PoolProgress:
    leaving = len(view.pods.draining) + len(view.pods.terminating)
    return PoolProgress(view.role, view.desired, view.revision, pairing, groups_of(view.pods.active), leaving)


def _change(view: PoolView, step: PoolStep, readings: Readings) -> PoolChange:
    victims = tuple(victim for drain in step.drain for victim in _victims(view, drain, readings))
    return PoolChange(step.create, victims, step)


def _victims(view: PoolView, drain: Drain, readings: Readings) -> tuple[Victim, ...]:
    group = [pod for pod in view.pods.active if (pod.revision, pod.pairing) == (drain.revision, drain.pairing)]
    reason = SCALE_DOWN if drain.revision == view.revision else ROLLOUT
    return tuple(Victim(pod, reason) for pod in choose_victims(group, drain.count, readings))
