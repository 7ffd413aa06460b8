"""`python -m kvarn_operator.crds apply --from DIR`: bring the cluster's CRDs to what the files say, and wait for them.

Run by the chart before an upgrade, since helm installs CRDs once and never again. Each one is replaced as a whole:
what a newer file no longer has must go, and an API server that does not know a field (CEL rules, before 1.25) drops it
here, where a server-side apply would be refused. It does not know what the CRDs mean.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes import config

from kvarn_operator.cluster.errors import ClusterError, Conflict, NotFound, Unavailable
from kvarn_operator.cluster.transport import Call, CallTimeouts, Transport, client_configuration

Body = dict[str, Any]

_COLLECTION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RESOURCE = "customresourcedefinitions"
_PAUSE_S = 0.5


class Sender(Protocol):
    """The transport."""

    def send(self, call: Call) -> Any: ...


class NotEstablished(Exception):
    """The API server has the CRD but does not serve it in time; the message says what it told."""


@dataclass(frozen=True, slots=True)
class Patience:
    timeout_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def read_definitions(folder: Path) -> list[Body]:
    """Every CRD of the YAML files in a folder, in the order of their names. Raises ValueError for anything else."""
    found: list[Body] = []
    for path in sorted(folder.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
                raise ValueError(f"{path} holds something else than a CustomResourceDefinition")
            found.append(document)
    if not found:
        raise ValueError(f"{folder} holds no CustomResourceDefinition")
    return found


def apply(sender: Sender, body: Body, patience: Patience) -> None:
    """Create or replace one CRD. Raises ClusterError when it is refused, or cannot be reached for the whole time."""
    deadline = patience.clock() + patience.timeout_s
    while True:
        try:
            _replace(sender, body)
            return
        except (Conflict, Unavailable) as error:  # written in between, or a server that is just starting
            if patience.clock() >= deadline:
                raise
            patience.sleep(error.retry_after_s or _PAUSE_S)


def wait_established(sender: Sender, name: str, patience: Patience) -> None:
    """Until objects of the kind can be made. Raises NotEstablished or ClusterError."""
    deadline = patience.clock() + patience.timeout_s
    while True:
        live = sender.send(Call("get", "GET", f"{_COLLECTION}/{name}", _RESOURCE))
        conditions = {item["type"]: item for item in (live.get("status") or {}).get("conditions") or ()}
        if conditions.get("Established", {}).get("status") == "True":
            return
        if patience.clock() >= deadline:
            told = "; ".join(str(item.get("message")) for item in conditions.values() if item["status"] == "False")
            raise NotEstablished(f"{name} is not served: {told or 'the API server says nothing'}")
        patience.sleep(_PAUSE_S)


def _replace(sender: Sender, body: Body) -> None:
    path = f"{_COLLECTION}/{body['metadata']['name']}"
    try:
        live = sender.send(Call("get", "GET", path, _RESOURCE))
    except NotFound:
        sender.send(Call("create", "POST", _COLLECTION, _RESOURCE, body))
        return
    sender.send(Call("update", "PUT", path, _RESOURCE, _over(live, body)))


def _over(live: Body, body: Body) -> Body:
    """Our spec as it is; of the metadata, what others put there stays."""
    metadata = dict(live["metadata"])
    for key in ("labels", "annotations"):
        merged = {**(metadata.get(key) or {}), **(body["metadata"].get(key) or {})}
        metadata |= {key: merged} if merged else {}
    return {**live, "metadata": metadata, "spec": body["spec"]}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m kvarn_operator.crds", description="Bring CRDs up to date.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "apply", help="create or replace the CRDs of a folder, and wait until they are served"
    )
    command.add_argument("--from", dest="folder", type=Path, required=True, metavar="DIR")
    command.add_argument("--timeout-s", type=float, default=60.0)
    given = parser.parse_args(argv)
    patience = Patience(given.timeout_s)
    try:
        bodies = read_definitions(given.folder)
        transport = Transport(client_configuration(), CallTimeouts(), lambda _call, _status: None)
    except (ValueError, OSError, yaml.YAMLError, config.ConfigException) as error:
        print(f"crds: {error}", file=sys.stderr)
        return 2
    try:
        for body in bodies:
            apply(transport, body, patience)
            wait_established(transport, body["metadata"]["name"], patience)
            print(f"{body['metadata']['name']} is up to date")
    except (ClusterError, NotEstablished) as error:
        print(f"crds: {error}", file=sys.stderr)
        return 1
    finally:
        transport.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
