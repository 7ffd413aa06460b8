"""The planner, fed from one reconcile's picture: spec, observation and memory in, one outcome per pool out.

Called by `service`. Memory comes from `status.scaling` and goes back there through `pool_status`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvarn_operator.reconcile.memory_json import restored
from kvarn_operator.reconcile.observed import Readings
from kvarn_operator.reconcile.pool_view import LivePool
from kvarn_operator.reconcile.replicas_writers import Write, remembered
from kvarn_operator.resources.accelerators import gpus_per_pod
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.labels import SCALING_MANAGER
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.names import pool_name
from kvarn_operator.resources.worker_pool import WorkerPod, WorkerPool
from kvarn_operator.rollout.revision import pool_spec
from kvarn_operator.scaling.decision import Decision
from kvarn_operator.scaling.memory import PoolMemory, Sample, ServiceMemory
from kvarn_operator.scaling.observation import PodMetrics, PodObservation, PodPhase, PoolObservation, ServiceObservation
from kvarn_operator.scaling.planner import plan
from kvarn_operator.scaling.spec import InvalidScaling, Law, PoolName, PoolScaling, Role, ServiceScaling


@dataclass(frozen=True, slots=True)
class PoolOutcome:
    spec: PoolScaling
    decision: Decision
    memory: PoolMemory
    writes: tuple[Write, ...]
    silent: tuple[str, ...]
    """Ready pods without a fresh reading, or `routers`: what the planner cannot see."""


def scaling_of(service: ModelService) -> ServiceScaling:
    """Raises InvalidResource for numbers that contradict each other."""
    objective = service.spec.objective
    try:
        law = Law(objective.ttft_s, objective.itl_s)
        pools = tuple(_pool_scaling(service, role) for role in (Role.PREFILL, Role.DECODE))
        return ServiceScaling(pools, law, service.spec.budget)
    except InvalidScaling as error:
        raise InvalidResource("spec", str(error)) from error


def decide(
    spec: ServiceScaling, seen: Sequence[LivePool], readings: Readings, now: float
) -> Mapping[PoolName, PoolOutcome]:
    """By the pool's name."""
    memories = [(each.resource.name, _memory(each, now)) for each in seen]
    memory = ServiceMemory(tuple((name, known) for name, known in memories if known is not None))
    observation = ServiceObservation(tuple(_observed(each, readings) for each in seen), readings.demand)
    found = plan(spec, observation, memory, now)
    by_name = {each.resource.name: each for each in seen}
    outcomes = {}
    for decision in found.decisions:
        pool = by_name[decision.pool]
        remembering = found.memory.of(decision.pool)
        assert remembering is not None, "the planner remembers every pool that it decides on"
        outcomes[decision.pool] = PoolOutcome(
            next(each for each in spec.pools if each.pool == decision.pool),
            decision,
            remembering,
            remembered(saved_scaling(pool.resource).get("writers"), pool.resource.replicas_write, now),
            _silent(pool, readings, spec.law.metrics_max_age_s, now),
        )
    return outcomes


def saved_scaling(pool: WorkerPool) -> Mapping[str, Any]:
    saved = (pool.status or {}).get("scaling")
    return saved if isinstance(saved, Mapping) else {}


def last_decided(status: Mapping[str, Any] | None) -> int | None:
    """The replicas that the newest of `status.decisions` ends at."""
    known = (status or {}).get("decisions") or ()
    last = known[-1].get("to") if known and isinstance(known[-1], Mapping) else None
    return last if isinstance(last, int) else None


def _pool_scaling(service: ModelService, role: Role) -> PoolScaling:
    pool = pool_spec(service.spec, role)
    scaling = pool.scaling
    return PoolScaling(
        pool=pool_name(service.name, role), role=role, minimum=scaling.minimum, maximum=scaling.maximum,
        mode=scaling.mode, behaviour=scaling.behaviour, gpus_per_pod=gpus_per_pod(pool.template),
        override_s=scaling.override_s, zero_after_s=scaling.zero_after_s,
    )  # fmt: skip


def _memory(seen: LivePool, now: float) -> PoolMemory | None:
    """With the last change of a leader that wrote `replicas`, but ended before it wrote the status that tells of it."""
    memory, write = restored(saved_scaling(seen.resource), seen.replicas, now), seen.resource.replicas_write
    told = last_decided(seen.resource.status)
    if memory is None or told is None or write is None or write.writer != SCALING_MANAGER or told == seen.replicas:
        return memory
    return replace(memory, changes=(*memory.changes, Sample(min(write.at, now), seen.replicas - told)))


def _observed(seen: LivePool, readings: Readings) -> PoolObservation:
    pods = seen.pods
    phased = [(pod, _phase(pod)) for pod in pods.active]
    phased += [(pod, PodPhase.DRAINING) for pod in pods.leaving]
    return PoolObservation(
        seen.resource.name,
        seen.replicas,
        tuple(PodObservation(pod.name, phase, _metrics(pod, readings)) for pod, phase in phased),
        seen.resource.replicas_write,
    )


def _phase(pod: WorkerPod) -> PodPhase:
    if pod.ready:
        return PodPhase.READY
    return PodPhase.UNSCHEDULABLE if pod.phase is PodPhase.UNSCHEDULABLE else PodPhase.PENDING


def _metrics(pod: WorkerPod, readings: Readings) -> PodMetrics | None:
    reading = readings.workers.get(pod.name)
    return None if reading is None else reading.metrics


def _silent(seen: LivePool, readings: Readings, max_age_s: float, now: float) -> tuple[str, ...]:
    silent = [] if readings.demand is not None and now - readings.demand.at <= max_age_s else ["routers"]
    for pod in seen.pods.ready:
        reading = readings.workers.get(pod.name)
        if reading is None or now - reading.metrics.at > max_age_s:
            silent.append(pod.name)
    return tuple(silent)
