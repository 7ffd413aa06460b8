"""Every version of a WorkerPool that a watch delivers, so that a write which was undone at once is seen too."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from kvarn_operator.resources.labels import OWN_MANAGERS, WRITTEN_REPLICAS_ANNOTATION

from tests.cluster.support.kubectl import Kubectl, Resource
from tests.support.process import wait_until


@dataclass(frozen=True, slots=True)
class Sighting:
    version: str
    replicas: int
    written: str
    """The number that the operator wrote last, as it says itself."""

    own_writers: tuple[tuple[str, str], ...]
    """The operator's managers that own `replicas`, and when each wrote last."""


def sighting(pool: Resource) -> Sighting:
    metadata = pool["metadata"]
    writers = [
        (entry["manager"], entry["time"])
        for entry in metadata["managedFields"]
        if entry["manager"] in OWN_MANAGERS and "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]
    written = metadata.get("annotations", {}).get(WRITTEN_REPLICAS_ANNOTATION, "")
    return Sighting(metadata["resourceVersion"], pool["spec"]["replicas"], written, tuple(sorted(writers)))


class ReplicasLog:
    def __init__(self, kubectl: Kubectl, pool: str, path: Path) -> None:
        self._kubectl = kubectl
        self._pool = pool
        self._path = path

    def sightings(self) -> list[Sighting]:
        """All up to now."""
        found = json.loads(self._kubectl("get", "wp", self._pool, "-o", "json"))
        version = found["metadata"]["resourceVersion"]
        wait_until(lambda: any(each.version == version for each in self._read()), "the log is complete", 60, 0.2)
        return self._read()

    def replicas(self) -> list[int]:
        """The numbers in order, each once for as long as it stayed."""
        return [number for number, _ in groupby(each.replicas for each in self.sightings())]

    def _read(self) -> list[Sighting]:
        return [sighting(pool) for pool in _objects(self._path.read_text())]


@contextmanager
def replicas_log(kubectl: Kubectl, pool: str, path: Path) -> Iterator[ReplicasLog]:
    """Begins with the version that is there now."""
    command = ("kubectl", "-n", kubectl.namespace, "get", "wp", pool, "-o", "json", "--watch", "--show-managed-fields")
    environment = kubectl.client.environment()
    with (
        path.open("wb") as sink,
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=sink) as child,
    ):
        try:
            wait_until(lambda: bool(_objects(path.read_text())), f"{pool} is watched", 60, 0.1)
            yield ReplicasLog(kubectl, pool, path)
        finally:
            child.kill()


def _objects(text: str) -> list[Resource]:
    """JSON objects one after the other; the last may be cut off."""
    decoder, at = json.JSONDecoder(), 0
    found: list[Resource] = []
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError:
            return found
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found
