"""When nothing may be done: a ModelService that says what cannot be, and a pool that belongs to none.

What serves goes on serving; only the status, and an Event, say why nothing else happens. Called by `service`.
"""

from collections.abc import Iterator

from kvarn_operator.reconcile.actions import Action, WriteStatus
from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.reports import warnings
from kvarn_operator.reconcile.service_status import refused_status, stalled
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.worker_pool import WorkerPool


def refused(observed: Observed, error: InvalidResource, now: float) -> Iterator[Action]:
    status = refused_status(observed.resource, error, now)
    before = observed.resource.get("status") or {}
    if status != before:
        yield from warnings("ModelService", observed.name, before, status)
        yield WriteStatus("ModelService", observed.name, status)


def orphaned(pool: WorkerPool, now: float) -> Iterator[Action]:
    """Its ModelService is gone, or never was. With the ModelService the garbage collector takes pools that it owned."""
    if pool.deleting:
        return
    before = pool.status or {}
    message = f"ModelService {pool.model_service} does not exist: create it, or delete this pool"
    conditions = stalled(before, pool.generation, message, now, "NoModelService")
    status = {**before, "observedGeneration": pool.generation, "conditions": conditions}
    if status != before:
        yield from warnings("WorkerPool", pool.name, before, status)
        yield WriteStatus("WorkerPool", pool.name, status)
