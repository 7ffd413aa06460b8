"""How far each pool of a model is on its way to the wanted pods, and what is to be done next. Plain data.

Built by the reconcile from what is observed now and nothing else, so any operator can go on at any moment. Read by
`steps`. Knows no pods, only counts.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import Role


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The pods of one revision and pairing in one pool. Draining, terminating and ended pods are in none."""

    revision: str
    pairing: str
    """As PAIRING_ANNOTATION says."""

    serving: int = 0
    starting: int = 0
    """Not ready, for whatever reason but the next two."""

    unschedulable: int = 0
    lapsed: int = 0
    """Served before and are not ready now; a moment of overload is enough for that."""

    @property
    def idle(self) -> int:
        return self.starting + self.unschedulable + self.lapsed

    @property
    def total(self) -> int:
        return self.serving + self.idle


@dataclass(frozen=True, slots=True)
class PoolProgress:
    role: Role
    target: int
    """Pods wanted now, of the wanted revision."""

    revision: str
    """Wanted; every other one is old, however many there are."""

    pairing: str
    """That new pods get."""

    groups: tuple[PodGroup, ...] = ()
    draining: int = 0
    """Pods that are on their way out and still hold their place."""

    lacks_quota: bool = False
    """The API server takes no new pod of it until others are gone."""

    @property
    def current(self) -> PodGroup:
        """All pods of the wanted revision as one."""
        found = [group for group in self.groups if group.revision == self.revision]
        return PodGroup(
            self.revision, self.pairing, sum(group.serving for group in found), sum(group.starting for group in found),
            sum(group.unschedulable for group in found), sum(group.lapsed for group in found),
        )  # fmt: skip

    @property
    def old(self) -> tuple[PodGroup, ...]:
        return tuple(group for group in self.groups if group.revision != self.revision)

    @property
    def serving(self) -> int:
        return sum(group.serving for group in self.groups)

    @property
    def total(self) -> int:
        return sum(group.total for group in self.groups)


class Gate(enum.Enum):
    """What a pool waits for before its next step. CamelCase, as Kubernetes wants reasons."""

    NONE = "None"
    """A step is due now, or all is done."""

    STARTING = "WaitingForPods"
    """New pods are not ready yet."""

    DRAINING = "WaitingForDrain"
    """New pods find no node, but pods that drain may make room."""

    UNSCHEDULABLE = "Unschedulable"
    """New pods find no node and no old pod may go first: only the user, or more nodes, can help."""

    PAIRING = "WaitingForPairing"
    """Old pods stay until the other pool has as large a share of new ones."""


@dataclass(frozen=True, slots=True)
class Drain:
    """So many pods of this group start to drain; `choose_victims` says which. Idle ones are meant first."""

    revision: str
    pairing: str
    count: int


@dataclass(frozen=True, slots=True)
class PoolStep:
    role: Role
    create: int = 0
    """Pods of the wanted revision."""

    drain: tuple[Drain, ...] = ()
    gate: Gate = Gate.NONE
    message: str = ""
    """What the gate means here, for a condition or an event."""

    @property
    def drained(self) -> int:
        return sum(drain.count for drain in self.drain)

    @property
    def blocked(self) -> bool:
        return self.gate is Gate.UNSCHEDULABLE


def groups_of(pods: Iterable[WorkerPod]) -> tuple[PodGroup, ...]:
    """Sorted by revision and pairing. The caller leaves out draining, terminating and ended pods."""
    groups: dict[tuple[str, str], PodGroup] = {}
    for pod in pods:
        key = (pod.revision, pod.pairing)
        groups[key] = _with(groups.get(key) or PodGroup(*key), pod)
    return tuple(groups[key] for key in sorted(groups))


def _with(group: PodGroup, pod: WorkerPod) -> PodGroup:
    if pod.ready:
        return replace(group, serving=group.serving + 1)
    if pod.problem is PodProblem.UNSCHEDULABLE or pod.phase is PodPhase.UNSCHEDULABLE:
        return replace(group, unschedulable=group.unschedulable + 1)
    if pod.started and pod.problem is PodProblem.NONE:
        return replace(group, lapsed=group.lapsed + 1)
    return replace(group, starting=group.starting + 1)
