"""JSON of the API server -> what the operator works with. The only way in; everything behind it is checked."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.model_service import ModelService, ModelServiceSpec
from kvarn_operator.resources.pool_template import Pool
from kvarn_operator.resources.worker_pool import WorkerPod, WorkerPool
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import PodName, PoolName, Role


def parse_model_service(resource: Mapping[str, Any]) -> ModelService:
    metadata = resource["metadata"]
    return ModelService(
        metadata["namespace"], metadata["name"], metadata["uid"], metadata["generation"], ModelServiceSpec()
    )


def parse_worker_pool(resource: Mapping[str, Any]) -> WorkerPool:
    metadata, spec = resource["metadata"], resource["spec"]
    return WorkerPool(
        metadata["namespace"], PoolName(metadata["name"]), metadata["uid"], metadata["generation"],
        Role(spec["role"]), spec["modelService"], Pool(), resource=resource,
    )  # fmt: skip


def parse_pod(resource: Mapping[str, Any]) -> WorkerPod:
    metadata = resource["metadata"]
    labels = metadata["labels"]
    return WorkerPod(
        PodName(metadata["name"]), metadata["uid"], PoolName(labels["kvarn.dev/pool"]),
        Role(labels["kvarn.dev/role"]), labels["kvarn.dev/revision"], "", PodPhase.PENDING,
        ready=False, terminating=False, created_at=0.0,
    )  # fmt: skip
