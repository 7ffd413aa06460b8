"""What happens to a pool's pods: cordon, give work back, create, delete.

In this order, so that there are never more than a step allows: a cordon is only asked for where it does no harm alone.

Called by `service` with the numbers that `rolling` found. Cordon -> drain -> delete: a victim gets no new work first,
goes when nothing is in flight or its time is over, and comes back if it is needed before that.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kvarn_operator.objects.pod import build_pod
from kvarn_operator.reconcile.actions import Action, Cordon, CreatePod, DeletePod, EmitEvent, Uncordon
from kvarn_operator.reconcile.observed import Observed, Readings
from kvarn_operator.reconcile.pool_view import OPERATOR_DRAINS, PoolView, in_flight, serves_nothing
from kvarn_operator.reconcile.rolling import PoolChange, Victim
from kvarn_operator.reconcile.timestamps import rfc3339
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.names import pod_name
from kvarn_operator.resources.worker_pool import WorkerPod
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import PodName

SETTLE_S = 2.0
"""A reading says nothing about a drain until routers have heard of it through their watch.

A drain that a user's clock puts into the future has been going on for an unknown time.
"""


@dataclass(frozen=True, slots=True)
class Context:
    service: ModelService
    observed: Observed
    now: float

    @property
    def readings(self) -> Readings:
        return self.observed.readings


def pod_actions(view: PoolView, change: PoolChange, context: Context) -> Iterator[Action]:
    for pod in view.pods.ended:
        yield EmitEvent("WorkerPool", view.resource.name, "PodEnded", _epitaph(pod), warning=True)
        yield DeletePod(pod.name, pod.uid)
    for victim in change.victims:
        yield from _retired(victim, view, context)
    yield from (Uncordon(pod.name, pod.uid) for pod in change.returning)
    for index in _free_indices(view, change.create, context.observed.taken):
        yield CreatePod(build_pod(context.service, view.resource, index, context.observed.defaults))
    for pod in view.pods.draining:
        if pod not in change.returning and _may_go(pod, view, context):
            yield from _overdue_event(pod, view, context)
            yield DeletePod(pod.name, pod.uid)


def _free_indices(view: PoolView, count: int, taken_by_others: Collection[PodName]) -> Iterator[int]:
    """The lowest, so that a creation that is not seen yet is asked for again under the same name."""
    taken = {*taken_by_others, *(pod.name for pod in view.pods.all)}
    index = 0
    while count > 0:
        if pod_name(view.resource.name, view.revision, index) not in taken:
            yield index
            count -= 1
        index += 1


def _retired(victim: Victim, view: PoolView, context: Context) -> Iterator[Action]:
    pod, reason = victim.pod, victim.reason
    if serves_nothing(pod, context.readings):
        yield DeletePod(pod.name, pod.uid)
        return
    yield Cordon(pod.name, pod.uid, rfc3339(context.now), reason)
    flying = in_flight(pod, context.readings)
    work = "an unknown number of requests" if flying is None else f"{flying} requests"
    message = (
        f"{pod.name} gets no new work ({reason}); it has {work} in flight and goes when they are done,"
        f" at the latest after {view.spec.drain.timeout_s:g} s"
    )
    yield EmitEvent("WorkerPool", view.resource.name, "VictimChosen", message)


def _epitaph(pod: WorkerPod) -> str:
    """Kept as an Event, since the pod that tells it is deleted."""
    where = f" on {pod.node}" if pod.node else ""
    return f"{pod.name} ended{where}: {pod.problem_message or 'it does not say why'}"


def _may_go(pod: WorkerPod, view: PoolView, context: Context) -> bool:
    if serves_nothing(pod, context.readings) or _is_overdue(pod, view, context.now):
        return True
    reading = context.readings.workers.get(pod.name)
    assert pod.draining_since is not None
    settled = pod.draining_since > context.now or (reading and reading.metrics.at >= pod.draining_since + SETTLE_S)
    if reading is None or reading.in_flight > 0 or not settled:
        return False
    return pod.drain_reason in OPERATOR_DRAINS or _is_replaced(view, context)


def _is_replaced(view: PoolView, context: Context) -> bool:
    """What a user drains waits for its replacement, unless that one may be waiting for this pod's place: on a node, or
    in a quota."""
    placeless = any(pod.phase is PodPhase.UNSCHEDULABLE for pod in view.pods.active)
    return len(view.pods.ready) >= view.desired or placeless or context.observed.lacks_quota(view.resource.name)


def _is_overdue(pod: WorkerPod, view: PoolView, now: float) -> bool:
    return pod.draining_since is not None and now - pod.draining_since >= view.spec.drain.timeout_s


def _overdue_event(pod: WorkerPod, view: PoolView, context: Context) -> Iterator[Action]:
    flying = in_flight(pod, context.readings)
    if _is_overdue(pod, view, context.now) and flying != 0 and not serves_nothing(pod, context.readings):
        work = "requests that it does not tell" if flying is None else f"{flying} requests"
        message = f"{pod.name} still has {work} in flight after {view.spec.drain.timeout_s:g} s; they move to others"
        yield EmitEvent("WorkerPool", view.resource.name, "DrainTimedOut", message, warning=True)
