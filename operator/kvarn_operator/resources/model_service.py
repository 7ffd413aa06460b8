"""The ModelService as the operator works with it. Made by `parsing`, which fills in defaults and checks everything."""

import enum
from dataclasses import dataclass, field

from kvarn_operator.resources.pool_template import Json, Pool
from kvarn_operator.scaling.spec import Budget


class SourceKind(enum.Enum):
    EMBEDDED = "embedded"
    """The model inside the worker image."""

    HUB = "hub"
    PVC = "pvc"
    IMAGE = "image"
    """An OCI image mounted as a volume; needs Kubernetes 1.35 or its feature gate."""

    URL = "url"


@dataclass(frozen=True, slots=True)
class ModelSource:
    kind: SourceKind = SourceKind.EMBEDDED
    reference: str = ""
    """Hub id, claim name, image reference or URL; empty for the embedded model."""

    path: str = ""
    """Folder inside the claim or image."""


@dataclass(frozen=True, slots=True)
class SecretKey:
    name: str
    key: str = "token"


@dataclass(frozen=True, slots=True)
class ModelCache:
    """Where downloads and converted models live: a claim, or else an emptyDir of each pod."""

    claim_name: str = ""
    size_limit: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    source: ModelSource = ModelSource()
    revision: str = ""
    served_names: tuple[str, ...] = ()
    """What clients may call it; by default the ModelService's name."""

    secret: SecretKey | None = None
    cache: ModelCache = ModelCache()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Each becomes the worker flag of the same name; None leaves the worker's default."""

    engine: str = "torch"
    dtype: str = "auto"
    block_size: int = 16
    max_model_len: int | None = None
    max_batch_tokens: int | None = None
    max_sequences: int | None = None
    num_blocks: int | None = None
    kv_memory_gib: float | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    ttft_s: float = 2.0
    itl_s: float = 0.1
    percentile: float = 95.0


@dataclass(frozen=True, slots=True)
class Rollout:
    max_surge: int = 1
    max_unavailable: int = 0
    """Of each pool; both zero is refused."""

    ratio_tolerance: float = 0.5
    """How far the P:D ratio of serving pods may leave the wanted one during a rollout, as a share of it."""


@dataclass(frozen=True, slots=True)
class ModelServiceSpec:
    model: Model = Model()
    engine: EngineOptions = EngineOptions()
    objective: Objective = Objective()
    budget: Budget | None = None
    rollout: Rollout = Rollout()
    prefill: Pool = field(default_factory=Pool)
    decode: Pool = field(default_factory=Pool)


@dataclass(frozen=True, slots=True)
class ModelService:
    namespace: str
    name: str
    uid: str
    generation: int
    spec: ModelServiceSpec
    status: Json = None
    """As last written, or None."""

    deleting: bool = False
