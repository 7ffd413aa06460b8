"""A WorkerPool and a pod as the operator works with them. Made by `parsing` from what the API server sends."""

import enum
from dataclasses import dataclass

from kvarn_operator.resources.pool_template import Json
from kvarn_operator.scaling.observation import PodPhase, ReplicasWrite
from kvarn_operator.scaling.spec import PodName, PoolName, Role


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Its template and scaling are only for people to see: what counts is the ModelService's."""

    namespace: str
    name: PoolName
    uid: str
    generation: int
    role: Role
    model_service: str
    replicas: int
    """The number that kubectl, HPA or the planner wrote."""

    replicas_write: ReplicasWrite | None = None
    """From managedFields."""

    seeded_replicas: int | None = None
    status: Json = None
    resource: Json = None
    """The whole object, for comparing with what is to be applied."""

    deleting: bool = False


class PodProblem(enum.Enum):
    NONE = "none"
    UNSCHEDULABLE = "unschedulable"
    IMAGE = "image"
    CRASHING = "crashing"
    """The container has ended and is started again and again."""

    CONFIGURATION = "configuration"
    """The container cannot be created: a secret, a claim or a value that it refers to is missing."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    name: PodName
    uid: str
    pool: PoolName
    role: Role
    revision: str
    pairing: str
    phase: PodPhase
    ready: bool
    terminating: bool
    created_at: float
    address: str = ""
    node: str = ""
    draining_since: float | None = None
    drain_reason: str = ""
    deletion_cost: int = 0
    problem: PodProblem = PodProblem.NONE
    problem_message: str = ""
    ended: bool = False
    """Succeeded or Failed: to be deleted and replaced."""

    gone_by: float | None = None
    """When a terminating pod should be gone, its grace period included."""

    ready_since: float = 0.0
    """Of its present readiness or lack of it; 0 when it does not tell."""

    started: bool = False
    """It has served since its container's last start; not ready, it may be so again any moment."""
