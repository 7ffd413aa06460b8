"""A cluster that tests run on: a bed of their own, or the one that KUBECONFIG names."""

import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.cluster.support.bed import Bed
from tests.cluster.support.helm import Helm
from tests.cluster.support.kubectl import LOOK_S, Client, Kubectl
from tests.cluster.support.machine import BED, bed_folder
from tests.support.process import wait_until
from tests.support.stack import free_port

ROOT = Path(__file__).parents[3]
CRDS = ROOT / "deploy" / "helm" / "kvarn" / "crds"


@dataclass(frozen=True, slots=True)
class Images:
    """Where the cluster's nodes find Kvarn's images."""

    registry: str
    tag: str
    pull_policy: str

    def name(self, role: str) -> str:
        return f"{self.registry}/kvarn-{role}:{self.tag}"

    def values(self) -> dict[str, object]:
        """For the chart."""
        return {"images": {"registry": self.registry, "tag": self.tag, "pullPolicy": self.pull_policy}}


@dataclass(frozen=True, slots=True)
class Cluster:
    client: Client
    images: Images
    bed: Bed | None = None
    """None: somebody else's cluster. Leave nothing behind there."""

    def kubectl(self, namespace: str = "default") -> Kubectl:
        return Kubectl(self.client, namespace)

    def helm(self, namespace: str) -> Helm:
        return Helm(self.client, namespace)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A fresh one whose name starts so; gone, with all that it held, at the end, or soon after."""
        fresh = f"{re.sub('[^a-z0-9]+', '-', name.lower())[:40].strip('-')}-{uuid.uuid4().hex[:6]}"
        kubectl = self.kubectl(fresh)
        kubectl("create", "namespace", fresh)
        try:
            yield fresh
        finally:
            kubectl("delete", "namespace", fresh, "--wait=false", "--ignore-not-found")
            if self.bed is not None:  # it goes as a whole soon, and nobody waits there for what still runs
                kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
            else:
                kubectl("delete", "namespace", fresh, "--wait", "--timeout=180s", "--ignore-not-found")

    @contextmanager
    def reach(self, namespace: str, service: str, port: int) -> Iterator[str]:
        """Base URL of a Service for clients on this machine."""
        if self.bed is not None and (self.bed.run / "node.network").exists():
            address = self.kubectl(namespace)("get", "service", service, "-o", "jsonpath={.spec.clusterIP}")
            with self._carried(f"{address}:{port}", self.bed) as url:
                yield url
        else:
            with self._forwarded(namespace, service, port) as url:
                yield url

    def apply_crds(self) -> None:
        """Wait until their endpoints answer: objects can be made from then on."""
        kubectl = self.kubectl()
        kubectl("apply", "--validate=false", "-f", str(CRDS))  # server-side, 1.20 refuses CEL rules
        names = ("crd/modelservices.kvarn.dev", "crd/workerpools.kvarn.dev")
        kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        for kind in ("modelservices", "workerpools"):
            wait_until(partial(_can_list, kubectl, kind), f"{kind} can be listed", pause_s=LOOK_S)

    def has_crds(self) -> bool:
        return "kvarn.dev" in self.kubectl()("get", "crd", "-o", "name")

    def delete_crds(self) -> None:
        self.kubectl()("delete", "--ignore-not-found", "--timeout=120s", "-f", str(CRDS))

    @contextmanager
    def _carried(self, target: str, bed: Bed) -> Iterator[str]:
        """Into the node's network, without the API server in between."""
        port = free_port()
        command = [sys.executable, str(BED / "fwd.py"), f"127.0.0.1:{port}", target, bed.network]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as child:
            try:
                yield _listening(port)
            finally:
                child.kill()

    @contextmanager
    def _forwarded(self, namespace: str, service: str, port: int) -> Iterator[str]:
        local = free_port()
        command = ["kubectl", "-n", namespace, "port-forward", f"service/{service}", f"{local}:{port}"]
        environment = self.client.environment()
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
            try:
                yield _listening(local)
            finally:
                child.kill()


def bed_cluster(bed: Bed, images: Images) -> Cluster:
    return Cluster(Client(bed.kubeconfig, bed_folder() / "bin"), images, bed)


def given_cluster() -> Cluster | None:
    """The one that KUBECONFIG names, once it is said where its nodes find the images: nobody's cluster by accident."""
    registry = os.environ.get("KVARN_TEST_IMAGES")
    if not registry:
        return None
    images = Images(
        registry, os.environ.get("KVARN_TEST_TAG", "test"), os.environ.get("KVARN_TEST_PULL_POLICY", "IfNotPresent")
    )
    return Cluster(Client(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")), images)


def _can_list(kubectl: Kubectl, kind: str) -> bool:
    return kubectl.attempt("get", kind).returncode == 0


def _listening(port: int) -> str:
    def connects() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_until(connects, f"port {port} listens")
    return f"http://127.0.0.1:{port}"
