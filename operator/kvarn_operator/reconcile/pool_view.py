"""One pool as a reconcile sees it: what is wanted of it, and its pods sorted by what they are good for. Pure data."""

from collections.abc import Iterable
from dataclasses import dataclass

from kvarn_operator.reconcile.observed import Readings
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.resources.worker_pool import WorkerPod, WorkerPool
from kvarn_operator.scaling.spec import Role

SCALE_DOWN = "ScaleDown"
ROLLOUT = "Rollout"
OPERATOR_DRAINS = frozenset({SCALE_DOWN, ROLLOUT})
"""Reasons of a drain that the operator began, and may take back; any other is a user's."""

RECREATE_AFTER_S = 10.0
"""A pod that ended younger than this keeps its place until then: a node that refuses pods must not cause a storm.

One from the future tells only that the clocks differ.
"""


STUCK_AFTER_S = 60.0
"""A terminating pod that should be gone for so long is waited for no more."""


@dataclass(frozen=True, slots=True)
class PoolPods:
    active: tuple[WorkerPod, ...]
    """Serve, or will: what counts against the wanted number."""

    draining: tuple[WorkerPod, ...]
    """Cordoned, not yet told to go."""

    terminating: tuple[WorkerPod, ...]
    stuck: tuple[WorkerPod, ...]
    """Terminating for ever: the node is lost, or a finalizer holds them. Only people can help."""

    ended: tuple[WorkerPod, ...]
    """To be deleted now."""

    @property
    def ready(self) -> tuple[WorkerPod, ...]:
        return tuple(pod for pod in self.active if pod.ready)

    @property
    def leaving(self) -> tuple[WorkerPod, ...]:
        """Stuck ones not among them."""
        return (*self.draining, *self.terminating)

    @property
    def all(self) -> tuple[WorkerPod, ...]:
        return (*self.active, *self.leaving, *self.stuck, *self.ended)


@dataclass(frozen=True, slots=True)
class LivePool:
    """A pool that exists and stays."""

    resource: WorkerPool
    replicas: int
    """As it is, or as it will be once its seed is written."""

    seeding: bool
    pods: PoolPods


@dataclass(frozen=True, slots=True)
class PoolView:
    resource: WorkerPool
    spec: Pool
    """From the ModelService; only `replicas` of the WorkerPool counts."""

    desired: int
    revision: str
    """That new pods get."""

    pods: PoolPods

    @property
    def role(self) -> Role:
        return self.resource.role

    @property
    def updated(self) -> tuple[WorkerPod, ...]:
        return tuple(pod for pod in self.pods.active if pod.revision == self.revision)

    @property
    def outdated(self) -> tuple[WorkerPod, ...]:
        return tuple(pod for pod in self.pods.active if pod.revision != self.revision)


def sorted_pods(pods: Iterable[WorkerPod], now: float) -> PoolPods:
    active, draining, terminating, stuck, ended = [], [], [], [], []
    for pod in sorted(pods, key=lambda pod: pod.name):
        if pod.gone_by is not None and now - pod.gone_by > STUCK_AFTER_S:
            stuck.append(pod)
        elif pod.terminating:
            terminating.append(pod)
        elif pod.ended and not 0 <= now - pod.created_at < RECREATE_AFTER_S:
            ended.append(pod)
        elif pod.draining_since is not None:
            draining.append(pod)
        else:
            active.append(pod)
    return PoolPods(tuple(active), tuple(draining), tuple(terminating), tuple(stuck), tuple(ended))


def in_flight(pod: WorkerPod, readings: Readings) -> int | None:
    """None: the pod does not tell."""
    reading = readings.workers.get(pod.name)
    return None if reading is None else reading.in_flight


def serves_nothing(pod: WorkerPod, readings: Readings) -> bool:
    """It never came up, or is not ready and has nothing in flight: nobody misses it."""
    flying = in_flight(pod, readings)
    return not pod.ready and (flying == 0 or not pod.started)
