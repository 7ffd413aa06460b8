"""The law: how many pods the present load needs. Called by the planner; knows no limits and no history.

    prefill = ceil(uncached_inflight_tokens / rate / slack), at least ceil(uncached_tokens_per_s / rate / utilisation)
    decode  = ceil((sum(kv_usage) + what waits) / kv_target), at least serving + 1 while ITL misses its objective
              and there is a batch that another pod could share

Pods that are not ready add no supply and no demand, so what cannot schedule never holds a decrease back. Both results
are totals, so pods on their way are credited by themselves.
"""

import math
from dataclasses import dataclass

from kvarn_operator.scaling.decision import Term
from kvarn_operator.scaling.observation import Demand, PodMetrics, PodPhase, PoolObservation
from kvarn_operator.scaling.spec import Law, Role


@dataclass(frozen=True, slots=True)
class Want:
    replicas: int
    terms: tuple[Term, ...]
    complete: bool
    """False when a metric was missing: the number is then a lower bound and must not cause a decrease."""

    objective_missed: bool
    rate: float | None = None


def want(
    law: Law, role: Role, pool: PoolObservation, demand: Demand | None, known_rate: float | None, now: float
) -> Want:
    """`known_rate` is the last prefill rate seen, used while no pod reports one."""
    fresh_demand = demand if demand is not None and now - demand.at <= law.metrics_max_age_s else None
    metrics, complete = _pod_metrics(law, pool, now)
    complete = complete and fresh_demand is not None
    counts = tuple(Term(phase.value, pool.count(phase)) for phase in PodPhase)
    if role is Role.PREFILL:
        found = _prefill(law, metrics, fresh_demand, known_rate)
    else:
        found = _decode(law, pool, metrics, fresh_demand)
    return Want(
        found.replicas, found.terms + counts, found.complete and complete, found.objective_missed, found.rate
    )  # fmt: skip


def _pod_metrics(law: Law, pool: PoolObservation, now: float) -> tuple[tuple[PodMetrics, ...], bool]:
    """Of ready and draining pods: what still drains is load too. Only a ready pod's silence counts as missing."""
    found, complete = [], True
    for pod in pool.pods:
        if pod.phase not in (PodPhase.READY, PodPhase.DRAINING):
            continue
        if pod.metrics is not None and now - pod.metrics.at <= law.metrics_max_age_s:
            found.append(pod.metrics)
        elif pod.phase is PodPhase.READY:
            complete = False
    return tuple(found), complete


def _prefill(law: Law, metrics: tuple[PodMetrics, ...], demand: Demand | None, known_rate: float | None) -> Want:
    rates = [each.prefill_rate for each in metrics if each.prefill_rate]
    rate = sum(rates) / len(rates) if rates else known_rate
    tokens = demand.uncached_inflight_tokens if demand else 0.0
    arrivals = demand.uncached_tokens_per_s if demand else 0.0
    slack = law.ttft_s * law.slack_share
    busy = tokens > 0 or arrivals > 0 or bool(demand and demand.held_requests)
    if rate is None:
        backlog, sustained = int(busy), int(busy)
    else:
        backlog, sustained = math.ceil(tokens / rate / slack), math.ceil(arrivals / rate / law.utilisation)
    missed = bool(demand and demand.ttft_s is not None and demand.ttft_s > law.ttft_s)
    terms = (
        Term("uncached_inflight_tokens", tokens), Term("uncached_tokens_per_s", arrivals), Term("rate", rate or 0.0),
        Term("slack_s", slack), Term("backlog_replicas", backlog), Term("sustained_replicas", sustained),
        Term("ttft_s", demand.ttft_s if demand and demand.ttft_s is not None else 0.0),
    )  # fmt: skip
    return Want(max(backlog, sustained, int(busy)), terms, rate is not None or not busy, missed, rate)


def _decode(law: Law, pool: PoolObservation, metrics: tuple[PodMetrics, ...], demand: Demand | None) -> Want:
    held = sum(each.kv_usage for each in metrics)
    running = sum(each.running for each in metrics)
    waiting = sum(each.waiting for each in metrics) + (demand.held_requests if demand else 0)
    queued = waiting * held / running if running else float(waiting > 0) * law.kv_target
    by_kv = math.ceil((held + queued) / law.kv_target - 1e-9)
    missed = bool(demand and demand.itl_s is not None and demand.itl_s > law.itl_s)
    serving = pool.count(PodPhase.READY)
    by_itl = serving + 1 if missed and running > serving else 0
    busy = running > 0 or waiting > 0 or bool(demand and demand.inflight_requests)
    terms = (
        Term("kv_usage_sum", held), Term("waiting", waiting), Term("waiting_kv", queued),
        Term("kv_target", law.kv_target),
        Term("kv_replicas", by_kv), Term("itl_s", demand.itl_s if demand and demand.itl_s is not None else 0.0),
        Term("itl_replicas", by_itl),
    )  # fmt: skip
    return Want(max(by_kv, by_itl, int(busy)), terms, True, missed)
