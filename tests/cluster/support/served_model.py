"""One model under load on pods that run: what its routers and workers say of themselves, and what befalls them.

Numbers are read inside the pods, so that neither network policies nor the API server's way to pods matter.
"""

import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvarn_operator.resources.labels import (
    COMPONENT_LABEL,
    DRAINING_ANNOTATION,
    METRICS_PORT,
    MODEL_SERVICE_LABEL,
    ROLE_LABEL,
    ROUTER_PORT,
)
from kvarn_operator.scaling.spec import Role
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import LOOK_S, Kubectl, Resource
from tests.cluster.support.model import Model, names
from tests.support.process import wait_until

_READ = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as asked:
    asked.sendall(f"GET /{sys.argv[2]} HTTP/1.0\\r\\n\\r\\n".encode())
    head, _, body = b"".join(iter(lambda: asked.recv(65536), b"")).decode().partition("\\r\\n\\r\\n")
print(body)
sys.exit(0 if head.split()[1] == "200" else 1)
"""
"""Run often, in pods that have little of the processor: so without the libraries that make it shorter."""

PROGRESS_S = 200
"""The longest that one change may take in all; only a failing test waits so long."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    cluster: Cluster
    namespace: str
    name: str

    @property
    def kubectl(self) -> Kubectl:
        return self.cluster.kubectl(self.namespace)

    @property
    def model(self) -> Model:
        return Model(self.kubectl, self.name)

    def routers(self) -> Sequence[str]:
        """Those that are not on their way out."""
        found = self.kubectl.list("pods", f"{COMPONENT_LABEL}=router,{MODEL_SERVICE_LABEL}={self.name}")
        return [pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def moved(self) -> Mapping[str, float]:
        """By router: answers that went to another worker after their first token."""
        return {name: self._metric(name, ROUTER_PORT, "kvarn_router_streams_moved_total") for name in self.routers()}

    def broken_handoffs(self) -> Mapping[str, float]:
        """By decode worker that serves: hand-offs that their prefill worker did not end."""
        pods = names([pod for pod in self.pods_of(Role.DECODE) if serves(pod)])
        return {name: self._metric(name, METRICS_PORT, "kvarn_handoff_failures_total") for name in pods}

    def is_ready(self, router: str) -> bool:
        """As the kubelet asks, but now."""
        return self.kubectl.attempt(*_read(router, ROUTER_PORT, "ready")).returncode == 0

    def answering(self, router: str) -> float:
        return self._metric(router, ROUTER_PORT, "kvarn_router_requests_in_flight")

    def busiest(self, role: Role) -> str:
        """The pod whose loss most requests would notice."""
        load = {name: self.in_flight(name) for name in names(self.model.pods(role))}
        return max(sorted(load), key=lambda name: load[name])

    def in_flight(self, worker: str) -> float:
        return self._metric(worker, METRICS_PORT, "kvarn_requests_in_flight")

    def workers(self) -> Sequence[Resource]:
        """All that run or will, at one moment. An ended pod counts as gone: old kubelets may take a minute more until
        its object is."""
        found = self.kubectl.list("pods", f"{MODEL_SERVICE_LABEL}={self.name},{ROLE_LABEL}")
        return [pod for pod in found if not has_ended(pod)]

    def pods_of(self, role: Role) -> Sequence[Resource]:
        return [pod for pod in self.workers() if role_of(pod) is role]

    def scale(self, role: Role, replicas: int) -> None:
        """And wait until there are so many, all ready, and no other runs any more."""
        self.model.scale(role, replicas)
        self.wait_for_pods(role, replicas)

    def wait_for_pods(self, role: Role, replicas: int) -> None:
        def there() -> bool:
            pods = self.pods_of(role)
            return len(pods) == replicas and all(serves(pod) for pod in pods)

        wait_until(there, f"{replicas} {role.value} pods, all ready", PROGRESS_S, LOOK_S)

    def delete(self, pod: str, *flags: str) -> None:
        self.kubectl("delete", "pod", pod, "--wait=false", *flags)

    def change(self, spec: Mapping[str, Any]) -> None:
        self.kubectl("patch", "ms", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def kill_process(self, pod: str) -> None:
        """SIGKILL from the machine that the node runs on: no pod object knows of it beforehand."""
        processes = Path("/proc").glob("[0-9]*")
        found = [path for path in processes if _is_python(path) and f"HOSTNAME={pod}" in _strings(path / "environ")]
        assert len(found) == 1, f"{len(found)} processes of {pod}"
        os.kill(int(found[0].name), signal.SIGKILL)

    def _metric(self, pod: str, port: int, name: str) -> float:
        text = self.kubectl(*_read(pod, port, "metrics"))
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name
        )


def serves(pod: Resource) -> bool:
    """Ready, and to stay."""
    conditions = pod["status"].get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"] and not drains(pod)


def has_ended(pod: Resource) -> bool:
    """For good: its containers are not started again."""
    states = [each["state"] for each in pod["status"].get("containerStatuses", [])]
    return "deletionTimestamp" in pod["metadata"] and all("terminated" in state for state in states)


def drains(pod: Resource) -> bool:
    return DRAINING_ANNOTATION in pod["metadata"].get("annotations", {})


def image_of(pod: Resource) -> str:
    return str(pod["spec"]["containers"][0]["image"])


def block_size_of(pod: Resource) -> int:
    (flag,) = (each for each in pod["spec"]["containers"][0]["args"] if each.startswith("--block-size="))
    return int(flag.partition("=")[2])


def role_of(pod: Resource) -> Role:
    return Role(pod["metadata"]["labels"][ROLE_LABEL])


def _read(pod: str, port: int, path: str) -> Sequence[str]:
    return ("exec", pod, "--", "python", "-I", "-S", "-c", _READ, str(port), path)


def _is_python(process: Path) -> bool:
    """And so neither the shim nor the pause container of a pod."""
    return "-m" in _strings(process / "cmdline")[1:2]


def _strings(path: Path) -> Sequence[str]:
    try:
        return path.read_text(errors="replace").split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
