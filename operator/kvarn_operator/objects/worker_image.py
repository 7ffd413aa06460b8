"""Which image a worker container runs. Used by the container's builder and by the pairing."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.pool_template import PodTemplate

WORKER_CONTAINER = "worker"


def worker_image(template: PodTemplate, defaults: OperatorDefaults) -> str:
    """The escape hatch wins over the template, and the template over the operator's settings."""
    for container in _containers(template.pod_template):
        if container.get("name") == WORKER_CONTAINER and container.get("image"):
            return str(container["image"])
    return template.image.reference or defaults.worker_image


def _containers(pod_template: Any) -> list[Mapping[str, Any]]:
    spec = pod_template.get("spec") if isinstance(pod_template, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    return [each for each in containers or () if isinstance(each, Mapping)]
