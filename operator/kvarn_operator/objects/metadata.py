"""Labels and owners of what the operator makes. Used by every builder here."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.labels import (
    API_VERSION,
    COMPONENT_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    MODEL_SERVICE_LABEL,
    POOL_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
)
from kvarn_operator.resources.names import label_value
from kvarn_operator.scaling.spec import PoolName, Role

WORKER_COMPONENT = "worker"


def pool_labels(service: str, pool: PoolName, role: Role) -> dict[str, str]:
    """Of a pool and of all that belongs to it."""
    return {
        MODEL_SERVICE_LABEL: label_value(service),
        POOL_LABEL: label_value(pool),
        ROLE_LABEL: role.value,
        MANAGED_BY_LABEL: MANAGED_BY,
    }


def worker_labels(service: str, pool: PoolName, role: Role, revision: str) -> dict[str, str]:
    return {**pool_labels(service, pool, role), COMPONENT_LABEL: WORKER_COMPONENT, REVISION_LABEL: revision}


def pool_selector(pool: PoolName) -> dict[str, str]:
    """Selects a pool's pods of every revision."""
    return {POOL_LABEL: label_value(pool)}


def owner(kind: str, name: str, uid: str) -> Mapping[str, Any]:
    """Deleting the owner takes the object along, with or without an operator. Nothing waits for it: without
    `blockOwnerDeletion` no right to update the owner's finalizers is needed."""
    return {"apiVersion": API_VERSION, "kind": kind, "name": name, "uid": uid, "controller": True}
