"""Everything the operator can be told: flags, environment and file, by group. Strict: see `process.settings`."""

from dataclasses import dataclass, field

from kvarn_engine.process.logs import LogSettings

PULL_POLICIES = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True, slots=True)
class ScopeSettings:
    namespaces: tuple[str, ...] = ()
    """Namespaces whose models this operator keeps. Empty: its own, or default outside of a cluster."""

    cluster_wide: bool = False
    """Keep the models of all namespaces; needs a ClusterRole."""

    def __post_init__(self) -> None:
        if self.cluster_wide and self.namespaces:
            raise ValueError("cluster_wide and namespaces exclude each other")


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    worker_image: str = "kvarn-worker:latest"
    """Image of worker pods whose model names none."""

    image_pull_policy: str = "IfNotPresent"
    """Pull policy of worker pods: Always, IfNotPresent or Never."""

    image_pull_secrets: tuple[str, ...] = ()
    """Names of pull secrets of worker pods."""

    tls_secret: str = ""
    """Secret with tls.crt, tls.key and ca.crt for gRPC between workers and routers. Empty: no TLS."""

    worker_service_account: str = ""
    """Service account of worker pods. Empty: the namespace's default, without a token in any case."""

    priority_class_name: str = ""
    """Priority class of worker pods whose model names none."""

    worker_log_json: bool = True
    """Workers log one JSON object a line."""

    def __post_init__(self) -> None:
        if not self.worker_image:
            raise ValueError("worker_image is empty")
        if self.image_pull_policy not in PULL_POLICIES:
            raise ValueError(f"image_pull_policy is {self.image_pull_policy!r}, not one of {', '.join(PULL_POLICIES)}")


@dataclass(frozen=True, slots=True)
class ElectionSettings:
    leader_elect: bool = True
    """Act only while holding the Lease, so that several operators may run. Off: act at once, as the only one."""

    lease_name: str = "kvarn-operator"
    """Name of the Lease."""

    lease_namespace: str = ""
    """Namespace of the Lease. Empty: the operator's own."""

    lease_duration_s: float = 10.0
    """A standby takes over when the Lease has not changed for this long."""

    lease_renew_deadline_s: float = 7.0
    """The leader stops acting when it could not renew for this long."""

    lease_retry_s: float = 2.0
    """Time between renewals, and between a standby's looks."""

    def __post_init__(self) -> None:
        if not 0 < self.lease_retry_s < self.lease_renew_deadline_s < self.lease_duration_s:
            raise ValueError("0 < lease_retry_s < lease_renew_deadline_s < lease_duration_s must hold")


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    host: str = "0.0.0.0"
    """Address of both ports below."""

    health_port: int = 8081
    """Serves /live, /ready and /metrics; 0: off."""

    metrics_port: int = 8082
    """Serves /metrics; 0: off."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    resync_s: float = 60.0
    """Time between full lists of all objects, each followed by a reconcile of every model."""

    sample_s: float = 5.0
    """Time between scrapes of pods whose readings decide something."""

    status_sample_s: float = 30.0
    """Time between scrapes of the other pods."""

    scrape_timeout_s: float = 2.0
    """Deadline of one scrape."""

    stall_s: float = 300.0
    """A part without progress for this long makes /live fail."""

    concurrency: int = 8
    """Models reconciled at once."""

    kubernetes_timeout_s: float = 10.0
    """Deadline of a call of the API server."""

    def __post_init__(self) -> None:
        for name in ("resync_s", "sample_s", "status_sample_s", "scrape_timeout_s", "concurrency"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, not above 0")
        if self.kubernetes_timeout_s <= 0:
            raise ValueError(f"kubernetes_timeout_s is {self.kubernetes_timeout_s}, not above 0")
        if self.stall_s < 2 * self.resync_s:
            raise ValueError(f"stall_s is {self.stall_s}, less than two rounds of resync_s ({self.resync_s})")


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    scope: ScopeSettings = field(default_factory=ScopeSettings)
    workloads: WorkloadSettings = field(default_factory=WorkloadSettings)
    election: ElectionSettings = field(default_factory=ElectionSettings)
    endpoints: EndpointSettings = field(default_factory=EndpointSettings)
    loops: LoopSettings = field(default_factory=LoopSettings)
    logs: LogSettings = field(default_factory=LogSettings)
