"""Resources as the API server would send them, and what the parsers make of them."""

import copy
from collections.abc import Mapping
from typing import Any

from kvarn_operator.resources.model_service import ModelService, ModelServiceSpec
from kvarn_operator.resources.parsing import parse_model_service, parse_pod, parse_worker_pool
from kvarn_operator.resources.worker_pool import WorkerPod, WorkerPool

Json = Any

CREATED = "2026-12-01T04:00:00Z"
CREATED_AT = 1796097600.0


def nested(path: str, value: Json) -> dict[str, Json]:
    """`a.b`, 1 -> {"a": {"b": 1}}; `[]` after a name wraps what is inside in a list."""
    for name in reversed(path.split(".")):
        value = {name.removesuffix("[]"): [value]} if name.endswith("[]") else {name: value}
    found: dict[str, Json] = value
    return found


def merged(base: Mapping[str, Json], changes: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(copy.deepcopy(base))
    for key, value in changes.items():
        deeper = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merged(found[key], value) if deeper else value
    return found


def service_json(spec: Json) -> dict[str, Json]:
    return {
        "apiVersion": "kvarn.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"namespace": "models", "name": "smollm2", "uid": "u-1", "generation": 3},
        "spec": spec,
    }


def pool_json(spec: Json = None, metadata: Json = None) -> dict[str, Json]:
    return {
        "apiVersion": "kvarn.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {
            "namespace": "models", "name": "smollm2-decode", "uid": "u-2", "generation": 5, **(metadata or {}),
        },
        "spec": {"role": "decode", "modelService": "smollm2", **(spec or {})},
    }  # fmt: skip


def pod_json(**changes: Json) -> dict[str, Json]:
    """`changes` are merged over `metadata`, `spec` and `status`."""
    base = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "models", "name": "smollm2-decode-7c1f9a-0", "uid": "u-3", "creationTimestamp": CREATED,
            "labels": {
                "kvarn.dev/pool": "smollm2-decode", "kvarn.dev/role": "decode", "kvarn.dev/revision": "7c1f9a",
            },
            "annotations": {"kvarn.dev/pairing": "p-1"},
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running", "podIP": "10.0.0.7"},
    }  # fmt: skip
    return merged(base, changes)


def condition(kind: str, status: str, **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, **more}


def service(spec: Json) -> ModelService:
    return parse_model_service(service_json(spec))


def service_spec(spec: Json) -> ModelServiceSpec:
    return service(spec).spec


def pool(spec: Json = None, metadata: Json = None) -> WorkerPool:
    return parse_worker_pool(pool_json(spec, metadata))


def pod(**changes: Json) -> WorkerPod:
    return parse_pod(pod_json(**changes))
