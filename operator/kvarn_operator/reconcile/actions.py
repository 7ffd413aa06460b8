"""What a reconcile may ask for. The cluster layer carries the actions out in order, as far as they do not fail.

Each is idempotent: carried out twice, or after a crash again, it does no harm.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvarn_operator.scaling.spec import PodName, PoolName

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Apply:
    """Server-side apply of a whole object with APPLY_MANAGER, forced: pools (without replicas) and budgets."""

    body: Body


@dataclass(frozen=True, slots=True)
class SetReplicas:
    """Server-side apply of a pool's `spec.replicas` alone, with the given manager, forced.

    The same request writes the number into WRITTEN_REPLICAS_ANNOTATION.
    """

    pool: PoolName
    replicas: int
    manager: str
    seeded: int | None = None
    """Also write SEEDED_REPLICAS_ANNOTATION, in the same request."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """The name is part of the body and chosen so that a repeated creation is a 409, which counts as done."""

    body: Body


@dataclass(frozen=True, slots=True)
class Cordon:
    """Annotate a pod as draining, with the reason. Its preconditions hold the UID."""

    pod: PodName
    uid: str
    since: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uncordon:
    pod: PodName
    uid: str


@dataclass(frozen=True, slots=True)
class DeletePod:
    """With the UID as precondition. Not found counts as done."""

    pod: PodName
    uid: str


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Server-side apply of the status subresource with STATUS_MANAGER."""

    kind: str
    name: str
    status: Body


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An events.k8s.io Event about the ModelService or one of its pools. Deduplicated by the cluster layer."""

    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False


Action = Apply | SetReplicas | CreatePod | Cordon | Uncordon | DeletePod | WriteStatus | EmitEvent


@dataclass(frozen=True, slots=True)
class Plan:
    actions: tuple[Action, ...]
    requeue_s: float | None = None
    """Look again after this time even if nothing changes; None: the resync is enough."""
