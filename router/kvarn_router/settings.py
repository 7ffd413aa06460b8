"""Everything a router process can be told: flags, environment and file, by group. Strict: see `process.settings`."""

from dataclasses import dataclass, field

from kvarn_engine.process.logs import LogSettings
from kvarn_engine.wire.tls import TlsSettings

from kvarn_router.api.settings import ApiSettings


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 8080
    """0 picks a free port; the log line `ready` names it."""

    metrics_port: int = 0
    """A second port for Prometheus. 0: only `/metrics` on the main port."""

    shutdown_delay_s: float = 0.0
    """How long requests are still taken after SIGTERM, while `/ready` already says no."""

    shutdown_timeout_s: float = 30.0
    """How long running answers may go on after that."""

    def __post_init__(self) -> None:
        for name in ("shutdown_delay_s", "shutdown_timeout_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, below 0")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    model: str = "smollm2-135m"
    """Folder, hub id, address of an archive or name of the model whose tokenizer and chat template are used."""

    model_revision: str = ""
    """Branch, tag or commit of a hub model. Empty: its default branch."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    workers: tuple[str, ...] = ()
    """Addresses host:port of the workers; what each is for is learned from it."""

    ready_without_prefill: bool = False
    """Report ready as soon as a decode worker is there; it then prefills by itself."""

    ready_without_workers: bool = False
    """Report ready from the start, for pools that begin at zero: requests are held until a worker is there."""

    describe_timeout_s: float = 5.0
    """Deadline of a worker's first answer."""

    watch_silence_s: float = 10.0
    """A worker that reports nothing for this long is taken for lost."""


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    workers_file: str = ""
    """File with the workers' addresses, read again when it changes; instead of --workers."""

    workers_file_poll_s: float = 1.0
    """How often the workers file is read."""

    workers_selector: str = ""
    """Labels of the worker pods in Kubernetes, such as app=kvarn-worker; instead of --workers."""

    workers_namespace: str = ""
    """Namespace of the worker pods. Empty: this pod's own, or default outside of a cluster."""

    workers_port_name: str = "grpc"
    """Name of the container port on which a worker pod serves."""

    workers_relist_s: float = 45.0
    """Time between full lists of the pods: how long a delete that the watch missed can stay unseen."""

    kubernetes_timeout_s: float = 10.0
    """Deadline of a connection to the API server and of a list."""

    kubernetes_backoff_min_s: float = 0.2
    """First wait after a failure of the API server; it doubles with each further one."""

    kubernetes_backoff_max_s: float = 10.0
    """Longest wait between tries."""

    def __post_init__(self) -> None:
        for name in ("workers_file_poll_s", "kubernetes_timeout_s", "kubernetes_backoff_min_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, not above 0")
        if not 0 < self.workers_relist_s <= 60:
            raise ValueError(f"workers_relist_s is {self.workers_relist_s}, not above 0 and at most 60")
        if self.kubernetes_backoff_max_s < self.kubernetes_backoff_min_s:
            raise ValueError(f"kubernetes_backoff_max_s is {self.kubernetes_backoff_max_s}, below the first wait")


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    stream_idle_timeout_s: float = 60.0
    """A decode stream without an event for this long is moved to another worker."""

    worker_wait_s: float = 30.0
    """How long a request that lost its worker waits for another one to appear."""

    hold_s: float = 30.0
    """How long a new request waits while no worker can take it. 0: it is refused at once."""

    max_held: int = 256
    """New requests that may wait so at once; more are refused."""

    max_attempts: int = 4
    """Decode workers tried in a row for one request without a token from any."""

    max_worker_losses: int = 4
    """A request is ended when this many decode workers have broken while they ran it: it may be why."""

    max_worker_inflight: int = 64
    """Requests of this router on one worker, above which others are preferred."""

    max_worker_waiting: int = 16
    """Requests waiting on a worker, above which others are preferred."""

    max_worker_kv_usage: float = 0.95
    """Share of a worker's blocks in use, above which others are preferred."""

    index_max_blocks: int = 1_000_000
    """Cached blocks remembered for each worker."""

    predicted_ttl_s: float = 15.0
    """How long a routed prefix counts as cached before the worker has announced it."""

    decision_log: int = 256
    """Routing decisions kept for /debug/decisions."""

    def __post_init__(self) -> None:
        attempts = ("stream_idle_timeout_s", "max_attempts", "max_worker_losses")
        for name in (*attempts, "max_worker_inflight", "index_max_blocks"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}, not above 0")
        for name in ("worker_wait_s", "hold_s", "max_held", "decision_log"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, below 0")


@dataclass(frozen=True, slots=True)
class RouterSettings:
    server: ServerSettings = field(default_factory=ServerSettings)
    tokenizer: ModelSettings = field(default_factory=ModelSettings)
    api: ApiSettings = field(default_factory=ApiSettings)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    discovery: DiscoverySettings = field(default_factory=DiscoverySettings)
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    logs: LogSettings = field(default_factory=LogSettings)
