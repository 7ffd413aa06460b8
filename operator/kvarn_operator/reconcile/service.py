"""The reconcile of one ModelService: from what is there to what is to be done. The operator's central function.

Pure: the cluster layer gathers `Observed`, and carries the actions out in order. Whatever was done before a crash is
seen again the next time, so every call starts from nothing but the picture.
"""

from collections.abc import Iterator, Mapping, Sequence

from kvarn_operator.reconcile.actions import Action, Plan, SetReplicas, WriteStatus
from kvarn_operator.reconcile.autoscaling import PoolOutcome, decide, scaling_of
from kvarn_operator.reconcile.drift import status_differs
from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.pods import Context, pod_actions
from kvarn_operator.reconcile.pool_conditions import PoolPicture, is_settled
from kvarn_operator.reconcile.pool_objects import budgets, live_pools, pool_objects, pools_of
from kvarn_operator.reconcile.pool_status import pool_status
from kvarn_operator.reconcile.pool_view import LivePool, PoolView
from kvarn_operator.reconcile.refusals import orphans, refused
from kvarn_operator.reconcile.reports import pool_reports, warnings
from kvarn_operator.reconcile.rolling import pool_changes
from kvarn_operator.reconcile.service_status import service_status
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.labels import SCALING_MANAGER
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.rollout.revision import pairing, pod_revision, pool_spec
from kvarn_operator.scaling.spec import PoolName, Role, ScalingMode

BUSY_REQUEUE_S = 5.0
"""While something is under way, or the load has to be followed: the sampling interval."""


def reconcile(observed: Observed, now: float) -> Plan:
    """Pools, then how many pods, then which pods, then budgets; in between what there is to tell."""
    if observed.service is None:
        return Plan(tuple(orphans(observed, (), now)))
    try:
        service = _accepted(observed.service)
        scaling = scaling_of(service)
    except InvalidResource as error:
        return Plan(tuple(refused(observed, error, now)))
    if service.deleting:
        return Plan(())

    live = live_pools(service, observed, now)
    outcomes = decide(scaling, live, observed.readings, now)
    pictures = _pictures(service, observed, live, outcomes)
    context = Context(service, observed, now)
    actions = [
        *pool_objects(service, observed, live),
        *_planned_replicas(live, outcomes),
        *_statuses(service, observed, pictures, now),
        *(action for picture in pictures for action in pod_actions(picture.view, picture.change, context)),
        *budgets(service, observed, live),
        *orphans(observed, pools_of(service), now),
    ]
    return Plan(tuple(actions), BUSY_REQUEUE_S if _is_busy(live, pictures) else None)


def _accepted(service: ModelService | InvalidResource) -> ModelService:
    """Raises InvalidResource."""
    if isinstance(service, InvalidResource):
        raise service
    return service


def _planned_replicas(live: Sequence[LivePool], outcomes: Mapping[PoolName, PoolOutcome]) -> Iterator[Action]:
    """In SLO mode alone, and only where the number differs: no other mode is ever written to."""
    for pool in live:
        decision = outcomes[pool.resource.name].decision
        if decision.mode is ScalingMode.SLO and decision.target != pool.replicas:
            yield SetReplicas(pool.resource.name, decision.target, SCALING_MANAGER)


def _pictures(
    service: ModelService, observed: Observed, live: Sequence[LivePool], outcomes: Mapping[PoolName, PoolOutcome]
) -> tuple[PoolPicture, ...]:
    """Outside SLO mode a decision's target is what the pool has."""
    defaults = observed.defaults
    views = [
        PoolView(
            pool.resource, pool_spec(service.spec, pool.resource.role), outcomes[pool.resource.name].decision.target,
            pod_revision(service.spec, pool.resource.role, defaults), pool.pods,
        )
        for pool in live
    ]  # fmt: skip
    changes = pool_changes(views, pairing(service.spec, defaults), service.spec.rollout, observed)
    return tuple(
        PoolPicture(view, changes[name], outcomes[name], observed.refused.get(name, ""))
        for view in views
        for name in [view.resource.name]
    )


def _statuses(
    service: ModelService, observed: Observed, pictures: Sequence[PoolPicture], now: float
) -> Iterator[Action]:
    """Only what differs is written, or else each write would cause the next reconcile."""
    for picture in pictures:
        name, before = picture.view.resource.name, picture.view.resource.status or {}
        after = pool_status(picture, now)
        if status_differs(before, after):
            yield from pool_reports(name, before, after)
            yield WriteStatus("WorkerPool", name, after)
    before = service.status or {}
    after = service_status(service, pictures, observed, now)
    if status_differs(before, after):
        yield from warnings("ModelService", service.name, before, after)
        yield WriteStatus("ModelService", service.name, after)


def _is_busy(live: Sequence[LivePool], pictures: Sequence[PoolPicture]) -> bool:
    planned = any(picture.outcome.spec.mode is ScalingMode.SLO for picture in pictures)
    return planned or len(live) < len(Role) or any(pool.seeding for pool in live) or not all(map(is_settled, pictures))
