"""The pods of a selector, as endpoints. Pure: fed with what the API server sends, in its JSON. Used by the pod watcher.

A pod is listed from the moment it has an address until it is deleted or has ended. It gets new work only while it is
Ready, not Terminating and not marked as draining. Its UID is its identity: an address comes back with another pod.
"""

from collections.abc import Iterable
from typing import Any

from kvarn_engine.core.ids import WorkerId

from kvarn_router.discovery.endpoint import Endpoint, EndpointKey

DRAINING_ANNOTATION = "kvarn.dev/draining"
"""The operator's, or a person's: whatever its value, a pod that carries it gets no new work."""

POOL_LABEL = "kvarn.dev/pool"
"""On the pods that the operator makes, whose workers are called by the pod's name."""

_ENDED = ("Succeeded", "Failed")
"""Nothing runs in these, and their address may belong to another pod by now."""


class PodSet:
    def __init__(self, port_name: str) -> None:
        self._port_name = port_name
        self._endpoints: dict[EndpointKey, Endpoint] = {}
        self.resource_version = ""
        """Up to which the set is true."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return tuple(sorted(self._endpoints.values(), key=lambda endpoint: endpoint.key))

    def reset(self, pods: Iterable[Any], resource_version: str) -> None:
        """Take a full list. Raises KeyError, TypeError or AttributeError for what is no pod."""
        found = [endpoint_of(pod, self._port_name) for pod in pods]
        self._endpoints = {endpoint.key: endpoint for endpoint in found if endpoint is not None}
        self.resource_version = resource_version

    def apply(self, kind: str, pod: Any) -> None:
        """Take one watch event: ADDED, MODIFIED, DELETED or BOOKMARK. Raises as `reset` does."""
        metadata = pod["metadata"]
        if kind != "BOOKMARK":
            endpoint = None if kind == "DELETED" else endpoint_of(pod, self._port_name)
            key = EndpointKey(metadata["uid"])
            if endpoint is None:
                self._endpoints.pop(key, None)
            else:
                self._endpoints[key] = endpoint
        self.resource_version = metadata["resourceVersion"]


def endpoint_of(pod: Any, port_name: str) -> Endpoint | None:
    """None while there is nothing to connect to."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    host, port = status.get("podIP"), _port_of(pod, port_name)
    if not host or port is None or status.get("phase") in _ENDED:
        return None
    conditions = status.get("conditions") or ()
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    marked = DRAINING_ANNOTATION in (metadata.get("annotations") or {})
    draining = marked or not ready or "deletionTimestamp" in metadata
    worker_id = WorkerId(metadata["name"]) if POOL_LABEL in (metadata.get("labels") or {}) else None
    return Endpoint(EndpointKey(metadata["uid"]), address, draining, worker_id)


def _port_of(pod: Any, port_name: str) -> int | None:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == port_name:
                return int(port["containerPort"])
    return None
