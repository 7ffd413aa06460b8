"""Which pods of a pool go first: those that nobody misses, then those that cost the least. Called by the reconcile."""

import math
from collections.abc import Iterable

from kvarn_operator.reconcile.observed import Readings
from kvarn_operator.resources.worker_pool import PodProblem, WorkerPod
from kvarn_operator.scaling.observation import PodPhase


def choose_victims(candidates: Iterable[WorkerPod], count: int, readings: Readings) -> tuple[WorkerPod, ...]:
    """The first `count`, in the order in which they should go. Equal candidates and readings give equal victims."""
    asked_at = max((reading.metrics.at for reading in readings.workers.values()), default=math.inf)
    return tuple(sorted(candidates, key=lambda pod: _cost(pod, readings, asked_at))[:count])


def _cost(pod: WorkerPod, readings: Readings, asked_at: float) -> tuple[int, int, float, int, float, str]:
    """A pod that should have told and did not counts as the busiest: it may well be serving. One that became ready
    only after the last round of questions has had no time to get much work."""
    reading = readings.workers.get(pod.name)
    silent = 0.0 if pod.ready_since > asked_at else math.inf
    in_flight = silent if reading is None else reading.in_flight
    cached = 0 if reading is None else reading.cached_blocks
    return _readiness(pod), pod.deletion_cost, in_flight, cached, -pod.created_at, pod.name


def _readiness(pod: WorkerPod) -> int:
    """Least first: lost, loading, for the moment not ready, serving."""
    if pod.ready:
        return 3
    if pod.problem is not PodProblem.NONE or pod.phase is PodPhase.UNSCHEDULABLE:
        return 0
    return 2 if pod.started else 1
