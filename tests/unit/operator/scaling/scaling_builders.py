"""Short ways to say what the planner is asked and what it sees."""

from kvarn_operator.scaling.decision import Decision
from kvarn_operator.scaling.memory import ServiceMemory
from kvarn_operator.scaling.observation import (
    Demand,
    PodMetrics,
    PodObservation,
    PodPhase,
    PoolObservation,
    ServiceObservation,
)
from kvarn_operator.scaling.planner import Plan, plan
from kvarn_operator.scaling.spec import Behaviour, Budget, Law, PodName, PoolName, PoolScaling, Role, ServiceScaling

PREFILL, DECODE = PoolName("prefill"), PoolName("decode")
RATE = 1000.0
LAW = Law(ttft_s=2.0, itl_s=0.05)
AT_ONCE = Behaviour(down_window_s=0.0)


def pool_scaling(role: Role, **changes: object) -> PoolScaling:
    values: dict[str, object] = {
        "pool": PREFILL if role is Role.PREFILL else DECODE, "role": role, "minimum": 1, "maximum": 10,
        "behaviour": AT_ONCE,
    }  # fmt: skip
    return PoolScaling(**{**values, **changes})  # type: ignore[arg-type]


def service(*pools: PoolScaling, budget: Budget | None = None) -> ServiceScaling:
    return ServiceScaling(pools or (pool_scaling(Role.PREFILL), pool_scaling(Role.DECODE)), LAW, budget)


def pods(
    count: int, phase: PodPhase = PodPhase.READY, at: float = 0.0, kv: float = 0.0, running: int = 0, waiting: int = 0
):
    metrics = PodMetrics(at, RATE, kv, running, waiting) if phase in (PodPhase.READY, PodPhase.DRAINING) else None
    return tuple(PodObservation(PodName(f"{phase.value}-{number}"), phase, metrics) for number in range(count))


def pool(name: PoolName, replicas: int, *groups: tuple[PodObservation, ...], **changes: object) -> PoolObservation:
    found = tuple(pod for group in groups for pod in group) if groups else pods(replicas)
    return PoolObservation(name, replicas, found, **changes)  # type: ignore[arg-type]


def demand(at: float = 0.0, **changes: object) -> Demand:
    values: dict[str, object] = {"inflight_requests": 0, "held_requests": 0, "uncached_inflight_tokens": 0.0}
    return Demand(at, **{**values, **changes})  # type: ignore[arg-type]


def decide(
    spec: ServiceScaling, seen: tuple[PoolObservation, ...], load: Demand | None, memory: ServiceMemory | None = None,
    now: float = 0.0,
) -> Plan:  # fmt: skip
    return plan(spec, ServiceObservation(seen, load), memory or ServiceMemory(), now)


def of(found: Plan, name: PoolName) -> Decision:
    return next(decision for decision in found.decisions if decision.pool == name)
