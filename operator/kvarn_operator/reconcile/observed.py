"""What the reconcile of one ModelService sees: one consistent picture, gathered by the cluster layer. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.worker_pool import WorkerPod, WorkerPool
from kvarn_operator.scaling.observation import Demand, PodMetrics
from kvarn_operator.scaling.spec import PodName, PoolName

_OVER_QUOTA = "exceeded quota"
"""The API server's words."""


@dataclass(frozen=True, slots=True)
class WorkerReading:
    """The last scrape of a worker's metrics."""

    metrics: PodMetrics
    in_flight: int
    """Requests and hand-offs that the worker still serves."""

    cached_blocks: int = 0


@dataclass(frozen=True, slots=True)
class Readings:
    """What scraping gave; a pod that did not answer is missing."""

    workers: Mapping[PodName, WorkerReading] = field(default_factory=dict)
    demand: Demand | None = None
    """None when no router answered, or one of several did not."""


@dataclass(frozen=True, slots=True)
class OperatorDefaults:
    """From the operator's own settings."""

    worker_image: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    tls_secret: str = ""
    """Secret with tls.crt, tls.key and ca.crt that worker pods mount; empty: no TLS."""

    worker_service_account: str = ""
    log_json: bool = True
    priority_class_name: str = ""
    budget_api: str = "policy/v1"
    """policy/v1beta1 on API servers before 1.21, empty: no PodDisruptionBudgets."""


@dataclass(frozen=True, slots=True)
class Observed:
    namespace: str
    name: str
    service: ModelService | InvalidResource | None
    """None: it is gone or going, and the garbage collector does the rest."""

    resource: Mapping[str, Any]
    """The ModelService's JSON, for status and ownership also when it is invalid. Empty when it is gone."""

    pools: tuple[WorkerPool, ...]
    pods: tuple[WorkerPod, ...]
    budgets: tuple[Mapping[str, Any], ...]
    """PodDisruptionBudgets of this service."""

    readings: Readings
    defaults: OperatorDefaults

    refused: Mapping[PoolName, str] = field(default_factory=dict)
    """Why the API server last refused a pod of this pool: quota, policy, validation. Empty for pods that it takes."""

    refused_object: str = ""
    """Why the API server last refused a pool or a budget: a CRD that is older than the operator, policy, a right that
    is missing. Empty when it refused none."""

    taken: frozenset[PodName] = frozenset()
    """Names of pods that carry the model's label and are no pool's, such as one that somebody took out by a label."""

    def lacks_quota(self, pool: PoolName) -> bool:
        """Of all refusals this one alone may end when other pods go."""
        return _OVER_QUOTA in self.refused.get(pool, "")
