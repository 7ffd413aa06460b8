"""Objects of the mirror and readings -> what the reconcile of one model sees. Pure. Called by the controller."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kvarn_operator.reconcile.observed import Observed, OperatorDefaults, Readings
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.labels import COMPONENT_LABEL, POOL_LABEL
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.parsing import parse_model_service, parse_pod, parse_worker_pool
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.scaling.spec import PodName, PoolName

logger = logging.getLogger("kvarn.operator.gathering")

Resource = Mapping[str, Any]
Parsed = TypeVar("Parsed")

WORKER_COMPONENT = "worker"


@dataclass(frozen=True, slots=True)
class ServiceObjects:
    """All objects of one model, by name."""

    namespace: str
    name: str
    """The model's label value; the ModelService's own name when there is one."""

    services: tuple[Resource, ...] = ()
    """At most one, unless two long names are shortened to the same label."""

    pools: tuple[Resource, ...] = ()
    pods: tuple[Resource, ...] = ()
    budgets: tuple[Resource, ...] = ()
    refused: Mapping[PoolName, str] = field(default_factory=dict)
    refused_object: str = ""


def gather(objects: ServiceObjects, readings: Readings, defaults: OperatorDefaults) -> Observed:
    alive = [each for each in objects.services if "deletionTimestamp" not in each["metadata"]]
    resource = alive[0] if alive else {}
    pools = tuple(_parsed(objects.pools, parse_worker_pool))
    pods = tuple(_parsed((pod for pod in objects.pods if is_own_worker(pod)), parse_pod))
    return Observed(
        namespace=objects.namespace,
        name=_name(objects, resource, pools),
        service=_service(resource),
        resource=resource,
        pools=pools,
        pods=pods,
        budgets=objects.budgets,
        readings=readings,
        defaults=defaults,
        refused=objects.refused,
        refused_object=objects.refused_object,
        taken=frozenset(PodName(pod["metadata"]["name"]) for pod in objects.pods) - {pod.name for pod in pods},
    )


def is_own_worker(pod: Resource) -> bool:
    """A pod that a WorkerPool controls. Others that carry the labels belong to somebody else and are left alone."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    owned = any(owner["kind"] == "WorkerPool" and owner["name"] == labels.get(POOL_LABEL) for owner in owners)
    return labels.get(COMPONENT_LABEL) == WORKER_COMPONENT and owned


def _name(objects: ServiceObjects, resource: Resource, pools: tuple[WorkerPool, ...]) -> str:
    if resource:
        return str(resource["metadata"]["name"])
    return pools[0].model_service if pools else objects.name


def _service(resource: Resource) -> ModelService | InvalidResource | None:
    if not resource:
        return None
    try:
        return parse_model_service(resource)
    except InvalidResource as error:
        return error


def _parsed(resources: Iterable[Resource], parse: Callable[[Resource], Parsed]) -> Iterable[Parsed]:
    """What cannot be read is left out: the reconcile then applies its own version of it."""
    for resource in resources:
        try:
            yield parse(resource)
        except InvalidResource as error:
            logger.warning("left out", extra={"object": resource["metadata"]["name"], "reason": str(error)})
