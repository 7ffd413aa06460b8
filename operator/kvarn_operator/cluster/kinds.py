"""The kinds of objects that the operator reads and writes: where the API server serves them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvarn_operator.resources import labels


@dataclass(frozen=True, slots=True)
class Kind:
    api_version: str
    name: str
    plural: str
    selector: str = ""
    """Labels of the objects that the operator follows; empty: all."""

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    def collection(self, namespace: str) -> str:
        """Path of the list; an empty namespace means all of them."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        return f"{root}/namespaces/{namespace}/{self.plural}" if namespace else f"{root}/{self.plural}"

    def item(self, namespace: str, name: str, subresource: str = "") -> str:
        path = f"{self.collection(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path


MODEL_SERVICE = Kind(labels.API_VERSION, "ModelService", "modelservices")
WORKER_POOL = Kind(labels.API_VERSION, "WorkerPool", "workerpools")
POD = Kind("v1", "Pod", "pods", selector=labels.MODEL_SERVICE_LABEL)
"""Workers and routers of any model; `labels.COMPONENT_LABEL` tells which."""

EVENT = Kind("events.k8s.io/v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")


def budget_kind(api_version: str) -> Kind:
    selector = f"{labels.MANAGED_BY_LABEL}={labels.MANAGED_BY},{labels.MODEL_SERVICE_LABEL}"
    return Kind(api_version, "PodDisruptionBudget", "poddisruptionbudgets", selector)


def followed_kinds(budget_api: str) -> tuple[Kind, ...]:
    """What the mirror holds. An empty `budget_api`: the server has no budgets."""
    budgets = (budget_kind(budget_api),) if budget_api else ()
    return (MODEL_SERVICE, WORKER_POOL, POD, *budgets)


def kind_of(body: Mapping[str, Any]) -> Kind:
    """The kind of an object that is to be applied."""
    known = {(kind.api_version, kind.name): kind for kind in (MODEL_SERVICE, WORKER_POOL, POD)}
    name = (str(body["apiVersion"]), str(body["kind"]))
    return known.get(name) or budget_kind(name[0])


def kind_named(name: str) -> Kind:
    """Of the two kinds that have a status."""
    return {kind.name: kind for kind in (MODEL_SERVICE, WORKER_POOL)}[name]
