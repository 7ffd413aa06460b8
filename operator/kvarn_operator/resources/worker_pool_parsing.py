"""A WorkerPool from its JSON, and who wrote its `replicas`. Called through `parsing` by the cluster layer."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.fields import Fields
from kvarn_operator.resources.labels import OWN_MANAGERS, SEEDED_REPLICAS_ANNOTATION, WRITTEN_REPLICAS_ANNOTATION
from kvarn_operator.resources.managed_fields import last_owner
from kvarn_operator.resources.pool_parsing import MAX_REPLICAS
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import PoolName, Role

UNTRACKED_WRITER = "unknown writer (scale)"
_ROLES = tuple(role.value for role in Role)


def parse_worker_pool(resource: Mapping[str, Any]) -> WorkerPool:
    """Raises InvalidResource. Reads no more than counts: what else somebody wrote there must not stop the pool."""
    root = Fields(values=resource)
    metadata, spec = root.section("metadata"), root.section("spec")
    spec.required_text("role")
    replicas = spec.integer("replicas", Pool().replicas, 0, MAX_REPLICAS)
    return WorkerPool(
        namespace=metadata.required_text("namespace"),
        name=PoolName(metadata.required_text("name")),
        uid=metadata.text("uid"),
        generation=metadata.integer("generation", 0, 0, 2**63),
        role=Role(spec.word("role", "", _ROLES)),
        model_service=spec.required_text("modelService"),
        replicas=replicas,
        replicas_write=_last_write(metadata, replicas),
        seeded_replicas=_annotated(metadata, SEEDED_REPLICAS_ANNOTATION),
        status=root.json("status"),
        resource=resource,
        deleting=metadata.has("deletionTimestamp"),
    )


def _last_write(metadata: Fields, replicas: int) -> ReplicasWrite | None:
    owner = last_owner(metadata, "spec", "replicas")
    if owner is not None and owner.manager not in OWN_MANAGERS:
        return ReplicasWrite(owner.manager, owner.at, foreign=True)
    written = _annotated(metadata, WRITTEN_REPLICAS_ANNOTATION)
    if written is None:
        written = Pool().replicas if owner is None else replicas
    if written != replicas:
        return _untracked(replicas)
    return None if owner is None else ReplicasWrite(owner.manager, owner.at, foreign=False)


def _untracked(replicas: int) -> ReplicasWrite:
    """API servers before 1.22 name nobody for a write through `/scale`, and no time.

    A time long past, different for each number, tells one such write from the next.
    """
    return ReplicasWrite(UNTRACKED_WRITER, float(replicas), foreign=True)


def _annotated(metadata: Fields, key: str) -> int | None:
    text = metadata.section("annotations").values.get(key)
    return int(text) if isinstance(text, str) and text.isdecimal() else None
