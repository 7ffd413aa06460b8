"""The chart, rendered by a real helm: value sets, cluster versions, and the objects that come out."""

import os
import shutil
import subprocess
import sys
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.cluster.support.machine import BED, bed_folder

HERE = Path(__file__).parent
CHART = HERE.parents[1] / "deploy" / "helm" / "kvarn"
VALUE_SETS = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))
VERSIONS = ("1.20.2", "1.30.0", "1.34.0", "1.37.0")
APIS = ("monitoring.coreos.com/v1", "cert-manager.io/v1", "gateway.networking.k8s.io/v1")
"""What a cluster with the usual add-ons serves."""

NAMESPACE = "serving"
WORKLOADS = ("Deployment", "Job", "Pod")

if TYPE_CHECKING:
    from yaml import SafeLoader as FastLoader
else:  # the same, ten times as fast where PyYAML has its C library
    FastLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Body = Mapping[str, Any]


class HelmError(Exception):
    """What helm printed."""


class StrictLoader(FastLoader):
    """Refuses a key that stands twice in a map, as strict readers do; PyYAML would keep the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := sorted({str(key) for key in keys if keys.count(key) > 1}):
            raise HelmError(f"twice in one map: {', '.join(twice)}{node.start_mark}")
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found


def find_helm() -> str | None:
    """On the PATH, or among the programs of the test bed."""
    return shutil.which("helm") or shutil.which("helm", path=str(bed_folder() / "bin"))


def build_bed() -> None:
    """As the cluster tests do: once, and kept. Raises CalledProcessError."""
    environment = {**os.environ, "KVARN_BED_PYTHON": sys.executable}
    subprocess.run([BED / "build.sh", "--node"], env=environment, check=True, stdout=sys.stderr)


@dataclass(frozen=True)
class Helm:
    path: str

    def run(self, *arguments: str) -> str:
        done = subprocess.run([self.path, *arguments], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode != 0:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout

    def template(
        self,
        *arguments: str,
        version: str = "1.34.0",
        apis: tuple[str, ...] = APIS,
        release: str = "kvarn",
        namespace: str = NAMESPACE,
    ) -> list[Body]:
        flags = [f"--api-versions={api}" for api in apis]
        where = ("--namespace", namespace, "--kube-version", version)
        text = self.run("template", release, str(CHART), *where, *flags, *arguments)
        return [body for body in yaml.load_all(text, Loader=StrictLoader) if body]


@cache
def rendered(helm: Helm, values: str, version: str = "1.34.0") -> tuple[Body, ...]:
    """Of a value set, each rendered once in a test run."""
    return tuple(helm.template("--values", str(HERE / "values" / f"{values}.yaml"), version=version))


def name_of(body: Body) -> str:
    return f"{body['kind']}/{body['metadata']['name']}"


def pod_of(body: Body) -> Body:
    """Of a workload."""
    return body if body["kind"] == "Pod" else body["spec"]["template"]


def workloads(bodies: tuple[Body, ...]) -> Iterator[tuple[str, Body]]:
    """Name and pod (metadata and spec) of everything that runs."""
    for body in bodies:
        if body["kind"] in WORKLOADS:
            yield name_of(body), pod_of(body)


def containers(pod: Body) -> list[Body]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def of_kind(bodies: tuple[Body, ...] | list[Body], kind: str) -> dict[str, Body]:
    return {body["metadata"]["name"]: body for body in bodies if body["kind"] == kind}
