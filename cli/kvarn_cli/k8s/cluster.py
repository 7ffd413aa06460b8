"""What the `k8s` commands ask of a cluster. `api_cluster` asks a real one; tests bring their own."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

MODEL_SERVICE_LABEL = "kvarn.dev/model-service"
COMPONENT_LABEL = "app.kubernetes.io/component"
DRAINING_ANNOTATION = "kvarn.dev/draining"
DRAIN_REASON_ANNOTATION = "kvarn.dev/drain-reason"

Json = Mapping[str, Any]


class ClusterError(Exception):
    """The cluster cannot be asked, or says no. The message is for a person."""


class NotThere(ClusterError):
    """The object, or its kind, does not exist."""


class Cluster(Protocol):
    namespace: str

    def services(self) -> list[Json]: ...

    def pools(self, service: str) -> list[Json]: ...

    def pods(self, service: str) -> list[Json]: ...

    def pod(self, name: str) -> Json: ...

    def page(self, pod: str, port: int, path: str) -> str:
        """Body of an HTTP page that the pod serves."""
        ...

    def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        """None removes an annotation."""
        ...

    def log_lines(self, pod: str, follow: bool, tail: int) -> Iterator[str]: ...
