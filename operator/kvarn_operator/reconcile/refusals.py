"""When nothing may be done: a ModelService that says what cannot be, and a pool that belongs to none.

What serves goes on serving; only the status, and an Event, say why nothing else happens. Called by `service`.
"""

from collections.abc import Collection, Iterator

from kvarn_operator.reconcile.actions import Action, WriteStatus
from kvarn_operator.reconcile.drift import status_differs
from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.reports import warnings
from kvarn_operator.reconcile.service_status import refused_status, stalled
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.scaling.spec import PoolName


def refused(observed: Observed, error: InvalidResource, now: float) -> Iterator[Action]:
    status = refused_status(observed.resource, error, now)
    before = observed.resource.get("status") or {}
    if status_differs(before, status):
        yield from warnings("ModelService", observed.name, before, status)
        yield WriteStatus("ModelService", observed.name, status)


def orphans(observed: Observed, made: Collection[PoolName], now: float) -> Iterator[Action]:
    """Of the pools, those that no ModelService made. What a deleted one owned is the garbage collector's."""
    for pool in observed.pools:
        goes_along = not made and _is_owned(pool)
        if pool.name not in made and not pool.deleting and not goes_along:
            yield from _orphaned(pool, bool(made), now)


def _is_owned(pool: WorkerPool) -> bool:
    owners = pool.resource["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == "ModelService" for owner in owners)


def _orphaned(pool: WorkerPool, has_service: bool, now: float) -> Iterator[Action]:
    message = f"ModelService {pool.model_service} does not exist: create it, or delete this pool"
    if has_service:
        message = f"ModelService {pool.model_service} has two pools of its own and does not use this one: delete it"
    before = pool.status or {}
    conditions = stalled(before, pool.generation, message, now, "NoModelService")
    status = {**before, "observedGeneration": pool.generation, "conditions": conditions}
    if status_differs(before, status):
        yield from warnings("WorkerPool", pool.name, before, status)
        yield WriteStatus("WorkerPool", pool.name, status)
