"""The objects around the pods: the two WorkerPools, their seeded `replicas`, and the budgets. Written on drift only.

Called by `service`. A pool's `replicas` is never part of what is applied: it belongs to whoever scales.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kvarn_operator.objects.budget import build_budget
from kvarn_operator.objects.worker_pool import build_pool
from kvarn_operator.reconcile.actions import Action, Apply, SetReplicas
from kvarn_operator.reconcile.drift import drifted
from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.reconcile.pool_view import LivePool, sorted_pods
from kvarn_operator.resources.labels import SEED_MANAGER
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.names import budget_name, pool_name
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.rollout.revision import pool_spec
from kvarn_operator.scaling.spec import PoolName, Role

ROLES = (Role.PREFILL, Role.DECODE)


def pools_of(service: ModelService) -> tuple[PoolName, ...]:
    return tuple(pool_name(service.name, role) for role in ROLES)


def live_pools(service: ModelService, observed: Observed, now: float) -> tuple[LivePool, ...]:
    """Without one that is being deleted: it comes back as a new object."""
    by_name = {pool.name: pool for pool in observed.pools}
    found = [(role, by_name.get(pool_name(service.name, role))) for role in ROLES]
    return tuple(
        _live(pool_spec(service.spec, role), pool, observed, now)
        for role, pool in found
        if pool is not None and not pool.deleting
    )


def pool_objects(service: ModelService, observed: Observed, live: tuple[LivePool, ...]) -> Iterator[Action]:
    """A new pool is seeded once it is seen, so a picture that misses a pool can never reset what a user scaled."""
    by_name = {pool.name: pool for pool in observed.pools}
    for role in ROLES:
        known = by_name.get(pool_name(service.name, role))
        body = build_pool(service, role)
        if (known is None or not known.deleting) and drifted(body, None if known is None else known.resource):
            yield Apply(body)
    for pool in live:
        if pool.seeding:
            yield SetReplicas(pool.resource.name, pool.replicas, SEED_MANAGER, seeded=pool.replicas)


def budgets(service: ModelService, observed: Observed, live: tuple[LivePool, ...]) -> Iterator[Action]:
    by_name: Mapping[str, Mapping[str, Any]] = {each["metadata"]["name"]: each for each in observed.budgets}
    for pool in live:
        body = build_budget(service, pool.resource, observed.defaults)
        if body is not None and drifted(body, by_name.get(budget_name(pool.resource.name))):
            yield Apply(body)


def _live(spec: Pool, pool: WorkerPool, observed: Observed, now: float) -> LivePool:
    seeding = pool.seeded_replicas != spec.replicas
    pods = sorted_pods((pod for pod in observed.pods if pod.pool == pool.name), now)
    return LivePool(pool, spec.replicas if seeding else pool.replicas, seeding, pods)
