"""What the planner remembers of a pool between calls. Owned by the caller; lost on a restart without harm.

A new memory counts the present replicas as wanted, so that a restart is no reason to shrink.
"""

from dataclasses import dataclass, field, replace

from kvarn_operator.scaling.decision import Override
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import Behaviour, PoolName


@dataclass(frozen=True, slots=True)
class Sample:
    at: float
    value: int


@dataclass(frozen=True, slots=True)
class PoolMemory:
    wanted: tuple[Sample, ...] = ()
    """Oldest first."""

    changes: tuple[Sample, ...] = ()
    """Differences the planner asked for, oldest first."""

    busy_at: float | None = None
    rate: float | None = None
    write: ReplicasWrite | None = None
    """The last write of `replicas` that was looked at."""

    override: Override | None = None

    def with_want(self, now: float, value: int, behaviour: Behaviour) -> "PoolMemory":
        """Keeps what a window still needs; a falling clock drops nothing that counts."""
        horizon = now - max(behaviour.up_window_s, behaviour.down_window_s)
        kept = tuple(sample for sample in self.wanted if sample.at >= horizon)
        return replace(self, wanted=(*kept, Sample(now, value)))

    def with_change(self, now: float, change: int, behaviour: Behaviour) -> "PoolMemory":
        horizon = now - max(behaviour.up_limit.period_s, behaviour.down_limit.period_s)
        kept = tuple(sample for sample in self.changes if sample.at > horizon)
        return replace(self, changes=(*kept, Sample(now, change)) if change else kept)


@dataclass(frozen=True, slots=True)
class ServiceMemory:
    pools: tuple[tuple[PoolName, PoolMemory], ...] = field(default=())

    def of(self, pool: PoolName) -> PoolMemory | None:
        return dict(self.pools).get(pool)
