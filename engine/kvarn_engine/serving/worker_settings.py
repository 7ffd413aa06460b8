"""Settings groups that both worker roles share. A role's root dataclass adds its own groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 0
    """gRPC port; 0 picks a free one."""

    metrics_port: int = 0
    """Prometheus port; 0 is off."""

    worker_id: str = ""
    """Stable name of this worker; by default its role and port."""

    shutdown_timeout_s: float = 30.0
    """After SIGTERM, requests in flight may finish within this time."""

    load_report_interval_s: float = 0.5
    """Time between two load reports to each router."""

    def __post_init__(self) -> None:
        if self.load_report_interval_s <= 0:
            raise ValueError(f"load_report_interval_s is {self.load_report_interval_s}, not above 0")
        if self.shutdown_timeout_s < 0:
            raise ValueError(f"shutdown_timeout_s is {self.shutdown_timeout_s}, below 0")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    engine: str = "torch"
    """torch runs the model; simulated stands in for it with a cost model."""

    model: str = "smollm2-135m"
    """Embedded model's name, model folder, or hub id."""

    dtype: str = "bfloat16"
    """Weights and KV: bfloat16, float16 or float32."""

    device: str = "cpu"
    """cpu, cuda or cuda:N."""

    threads: int = 0
    """CPU threads of the model; 0 lets the runtime choose."""

    block_size: int = 16
    """Tokens in one KV block."""

    num_blocks: int = 0
    """KV blocks; 0 sizes the store from kv_memory_gib."""

    kv_memory_gib: float = 1.0
    """Memory for KV when num_blocks is 0."""

    max_model_len: int = 0
    """Prompt and output tokens together; 0 is the model's own limit."""

    def __post_init__(self) -> None:
        if self.engine not in ("torch", "simulated"):
            raise ValueError(f"engine is {self.engine!r}, neither torch nor simulated")
        if self.block_size < 1:
            raise ValueError(f"block_size is {self.block_size}, below 1")


@dataclass(frozen=True, slots=True)
class BatchSettings:
    max_batch_tokens: int = 512
    """Most tokens one step computes; a longer prefill is cut into chunks."""

    max_sequences: int = 64
    """Most sequences in the running batch."""

    max_waiting: int = 256
    """Most requests that wait; more are refused as overload."""
