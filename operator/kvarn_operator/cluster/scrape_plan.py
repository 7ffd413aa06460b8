"""Which pods of a model to scrape and how soon again. Pure. Used by the sampler."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvarn_operator.resources.labels import (
    COMPONENT_LABEL,
    DRAINING_ANNOTATION,
    METRICS_PORT,
    METRICS_PORT_NAME,
    ROUTER_PORT,
    ROUTER_PORT_NAME,
)
from kvarn_operator.scaling.spec import ScalingMode

Resource = Mapping[str, Any]


class Part(enum.Enum):
    WORKER = "worker"
    ROUTER = "router"


@dataclass(frozen=True, slots=True)
class Target:
    uid: str
    name: str
    part: Part
    url: str
    must_answer: bool = False
    """A router that serves: without its answer the demand is unknown."""


def targets(pods: Sequence[Resource]) -> tuple[Target, ...]:
    """Pods that run and have an address. Terminating ones too: what they still do counts."""
    found = (_target(pod) for pod in pods)
    return tuple(target for target in found if target is not None)


def needs_fast(pools: Sequence[Resource], pods: Sequence[Resource]) -> bool:
    """Somebody decides by the readings: the planner of a pool, or the drain of a pod."""
    modes = [((pool.get("spec") or {}).get("scaling") or {}).get("mode") for pool in pools]
    draining = any(DRAINING_ANNOTATION in (pod["metadata"].get("annotations") or {}) for pod in pods)
    return ScalingMode.SLO.value in modes or draining


def _target(pod: Resource) -> Target | None:
    metadata, status = pod["metadata"], pod.get("status") or {}
    component = (metadata.get("labels") or {}).get(COMPONENT_LABEL)
    address = status.get("podIP")
    if component not in (Part.WORKER.value, Part.ROUTER.value) or not address or status.get("phase") != "Running":
        return None
    part = Part(component)
    name, port = (METRICS_PORT_NAME, METRICS_PORT) if part is Part.WORKER else (ROUTER_PORT_NAME, ROUTER_PORT)
    host = f"[{address}]" if ":" in address else address
    url = f"http://{host}:{_port(pod, name, port)}/metrics"
    serves = _is_ready(status) and "deletionTimestamp" not in metadata
    return Target(metadata["uid"], metadata["name"], part, url, must_answer=serves and part is Part.ROUTER)


def _port(pod: Resource, name: str, default: int) -> int:
    containers = (pod.get("spec") or {}).get("containers") or ()
    ports = [port for container in containers for port in container.get("ports") or ()]
    return next((int(port["containerPort"]) for port in ports if port.get("name") == name), default)


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in status.get("conditions") or ())
