"""Kvarn's planner in `bench scaling`: the operator's own code, fed from the simulated fleet."""

from kvarn_operator.scaling.memory import ServiceMemory
from kvarn_operator.scaling.observation import (
    Demand,
    PodMetrics,
    PodObservation,
    PodPhase,
    PoolObservation,
    ServiceObservation,
)
from kvarn_operator.scaling.planner import plan
from kvarn_operator.scaling.spec import Budget, Law, PodName, PoolName, PoolScaling, Role, ServiceScaling

from kvarn_bench.scaling_pods import Hardware, Stage
from kvarn_bench.scaling_view import FleetView, Limits, PodView, Replicas

_PREFILL, _DECODE = PoolName("prefill"), PoolName("decode")
_PHASES = {Stage.READY: PodPhase.READY, Stage.STARTING: PodPhase.PENDING, Stage.DRAINING: PodPhase.DRAINING}


class KvarnController:
    """Default settings, law of the design: nothing here is tuned to a trace."""

    name = "Kvarn"

    def __init__(self, limits: Limits, hardware: Hardware) -> None:
        self._rate = hardware.prefill_tokens_per_s
        pools = tuple(
            PoolScaling(name, role, limits.minimum, limits.maximum)
            for name, role in ((_PREFILL, Role.PREFILL), (_DECODE, Role.DECODE))
        )
        self._spec = ServiceScaling(pools, Law(limits.ttft_s, limits.itl_s), Budget(limits.gpus))
        self._memory = ServiceMemory()

    def decide(self, view: FleetView, now: float) -> Replicas:
        pools = (
            PoolObservation(_PREFILL, view.replicas.prefill, tuple(self._pod(pod, now) for pod in view.prefill)),
            PoolObservation(_DECODE, view.replicas.decode, tuple(self._pod(pod, now) for pod in view.decode)),
        )
        demand = Demand(
            at=now, inflight_requests=view.inflight, held_requests=view.held,
            uncached_inflight_tokens=view.uncached_tokens, uncached_tokens_per_s=view.requests_per_s * view.mean_prompt,
            ttft_s=view.ttft_s, itl_s=view.itl_s,
        )  # fmt: skip
        found = plan(self._spec, ServiceObservation(pools, demand), self._memory, now)
        self._memory = found.memory
        target = {decision.pool: decision.target for decision in found.decisions}
        return Replicas(target[_PREFILL], target[_DECODE])

    def _pod(self, pod: PodView, now: float) -> PodObservation:
        metrics = PodMetrics(now, self._rate, pod.kv_usage, pod.running)
        serving = pod.stage is not Stage.STARTING
        return PodObservation(PodName(str(pod.number)), _PHASES[pod.stage], metrics if serving else None)
