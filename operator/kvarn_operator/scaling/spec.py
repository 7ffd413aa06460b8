"""What a user asks of scaling, per pool and per model. Read by every module here; knows nothing of Kubernetes."""

import enum
from dataclasses import dataclass, field
from typing import NewType

PoolName = NewType("PoolName", str)
PodName = NewType("PodName", str)


class Role(enum.Enum):
    PREFILL = "prefill"
    DECODE = "decode"


class ScalingMode(enum.Enum):
    MANUAL = "Manual"
    """Whoever writes `replicas` decides; the planner only tells what it would do."""

    EXTERNAL = "External"
    """As Manual; the writer is HPA or KEDA."""

    SLO = "SLO"


class BudgetPolicy(enum.Enum):
    PROPORTIONAL = "Proportional"
    PREFILL_FIRST = "PrefillFirst"
    DECODE_FIRST = "DecodeFirst"


class InvalidScaling(ValueError):
    """The user's settings contradict each other; the message names the fields."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most the larger of `pods` and `share` of the pool within any `period_s`; both zero: no change at all."""

    pods: int
    share: float
    period_s: float

    def __post_init__(self) -> None:
        if self.pods < 0 or self.share < 0 or self.period_s < 0:
            raise InvalidScaling(f"rate limit {self.pods} pods, share {self.share}, {self.period_s} s: below zero")


@dataclass(frozen=True, slots=True)
class Behaviour:
    up_window_s: float = 0.0
    """An increase is what was wanted during all of this time."""

    down_window_s: float = 300.0
    """A decrease goes no lower than anything wanted during this time."""

    up_limit: RateLimit = RateLimit(pods=4, share=1.0, period_s=15.0)
    down_limit: RateLimit = RateLimit(pods=1, share=0.25, period_s=60.0)

    def __post_init__(self) -> None:
        if self.up_window_s < 0 or self.down_window_s < 0:
            raise InvalidScaling("behaviour: a stabilisation window is below zero")


@dataclass(frozen=True, slots=True)
class PoolScaling:
    pool: PoolName
    role: Role
    minimum: int
    maximum: int
    mode: ScalingMode = ScalingMode.SLO
    behaviour: Behaviour = field(default_factory=Behaviour)
    gpus_per_pod: int = 1
    override_s: float = 900.0
    """How long a foreign write to `replicas` holds in SLO mode."""

    zero_after_s: float = 600.0
    """A pool with minimum 0 goes to 0 after this long without any request."""

    def __post_init__(self) -> None:
        if not 0 <= self.minimum <= self.maximum or self.maximum < 1:
            raise InvalidScaling(f"pool {self.pool}: min {self.minimum}, max {self.maximum}; 0 <= min <= max, max >= 1")
        if self.gpus_per_pod < 0:
            raise InvalidScaling(f"pool {self.pool}: {self.gpus_per_pod} GPUs per pod")


@dataclass(frozen=True, slots=True)
class Law:
    """The constants of the law; the times come from the service's objective."""

    ttft_s: float
    itl_s: float
    slack_share: float = 0.5
    """Share of the TTFT objective that a request may wait for prefill; the rest covers the tail and the hand-off."""

    kv_target: float = 0.8
    utilisation: float = 0.8
    """A prefill pool keeps up with arrivals at this share of its rate."""

    metrics_max_age_s: float = 45.0

    def __post_init__(self) -> None:
        shares = (self.slack_share, self.kv_target, self.utilisation)
        if self.ttft_s <= 0 or self.itl_s <= 0 or not all(0 < share <= 1 for share in shares):
            raise InvalidScaling("objectives must be above zero, shares above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Budget:
    gpus: int
    policy: BudgetPolicy = BudgetPolicy.PROPORTIONAL


@dataclass(frozen=True, slots=True)
class ServiceScaling:
    """One model's pools and the GPUs they share."""

    pools: tuple[PoolScaling, ...]
    law: Law
    budget: Budget | None = None

    def __post_init__(self) -> None:
        if len({pool.pool for pool in self.pools}) != len(self.pools):
            raise InvalidScaling("two pools have one name")
        least = sum(pool.minimum * pool.gpus_per_pod for pool in self.pools)
        if self.budget is not None and least > self.budget.gpus:
            raise InvalidScaling(f"the pools' minimum needs {least} GPUs, the budget has {self.budget.gpus}")
