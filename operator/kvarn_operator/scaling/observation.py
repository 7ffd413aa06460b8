"""What is seen of a model's pools at one moment. Built by the reconcile (or a simulation), read by the planner."""

import enum
from dataclasses import dataclass

from kvarn_operator.scaling.spec import PodName, PoolName


class PodPhase(enum.Enum):
    READY = "ready"
    PENDING = "pending"
    """Scheduled or about to be; it will serve."""

    UNSCHEDULABLE = "unschedulable"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class PodMetrics:
    at: float
    prefill_rate: float | None = None
    """Tokens per second, as the worker measures itself."""

    kv_usage: float = 0.0
    """Blocks held by sequences over all blocks; cached blocks that nobody holds do not count."""

    running: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class PodObservation:
    name: PodName
    phase: PodPhase
    metrics: PodMetrics | None = None


@dataclass(frozen=True, slots=True)
class ReplicasWrite:
    """Who wrote `spec.replicas` last, and when, from managedFields; together they tell one write from another."""

    writer: str
    at: float
    foreign: bool


@dataclass(frozen=True, slots=True)
class PoolObservation:
    pool: PoolName
    replicas: int
    pods: tuple[PodObservation, ...] = ()
    write: ReplicasWrite | None = None

    def count(self, phase: PodPhase) -> int:
        return sum(pod.phase is phase for pod in self.pods)

    def footprint(self) -> int:
        """Pods that hold a GPU, or will: the asked ones, those that still drain, and those not yet told to go."""
        return max(self.replicas + self.count(PodPhase.DRAINING), len(self.pods))


@dataclass(frozen=True, slots=True)
class Demand:
    """The sum over all routers; absent as a whole when any router did not answer."""

    at: float
    inflight_requests: int
    """Held ones included."""

    held_requests: int
    """Wait at a router because no worker takes them."""

    uncached_inflight_tokens: float
    """Prompt tokens that still have to be computed, of held requests too."""

    uncached_tokens_per_s: float = 0.0
    """Arrivals, averaged over about a minute."""

    ttft_s: float | None = None
    itl_s: float | None = None
    """At the objective's percentile; None when nothing completed."""


@dataclass(frozen=True, slots=True)
class ServiceObservation:
    pools: tuple[PoolObservation, ...]
    demand: Demand | None
