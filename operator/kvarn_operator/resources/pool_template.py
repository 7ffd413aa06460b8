"""What a user may say of one pool's pods. The same in a ModelService (`spec.prefill`, `spec.decode`) and a WorkerPool.

Parsed from the ModelService, read by the builders. Kubernetes' own types (tolerations, affinity, volumes ...) stay
JSON: the operator hands them on and never looks inside.
"""

from dataclasses import dataclass, field
from typing import Any, NewType

from kvarn_operator.scaling.spec import Behaviour, ScalingMode

Json = Any
"""JSON of a Kubernetes type that passes through."""

Quantity = NewType("Quantity", str)


@dataclass(frozen=True, slots=True)
class Scaling:
    mode: ScalingMode = ScalingMode.MANUAL
    minimum: int = 1
    maximum: int = 10
    behaviour: Behaviour = field(default_factory=Behaviour)
    override_s: float = 900.0
    zero_after_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Drain:
    timeout_s: float = 300.0
    """How long a victim's streams may go on; then they move to another worker."""


@dataclass(frozen=True, slots=True)
class Image:
    """An empty reference is the operator's default for workers."""

    reference: str = ""
    pull_policy: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Json, ...] = ()
    affinity: Json = None
    topology_spread_constraints: tuple[Json, ...] = ()
    priority_class_name: str = ""
    runtime_class_name: str = ""
    scheduler_name: str = ""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    image: Image = Image()
    resources: Json = None
    """As a container's: requests and limits, with GPUs, MIG slices or any extended resource."""

    placement: Placement = Placement()
    image_pull_secrets: tuple[str, ...] = ()
    service_account_name: str = ""
    env: tuple[Json, ...] = ()
    volumes: tuple[Json, ...] = ()
    volume_mounts: tuple[Json, ...] = ()
    args: tuple[tuple[str, str], ...] = ()
    """More flags of the worker process: name without dashes, value."""

    startup_timeout_s: float = 1800.0
    """How long loading may take before the kubelet starts the container again."""

    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    pod_template: Json = None
    """Escape hatch: merged over the built pod (maps by key, named lists by name), save what the operator relies on."""


@dataclass(frozen=True, slots=True)
class Pool:
    replicas: int = 1
    scaling: Scaling = field(default_factory=Scaling)
    drain: Drain = Drain()
    template: PodTemplate = PodTemplate()
