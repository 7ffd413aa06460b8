"""Settings groups that both worker roles share. A role's root dataclass adds its own groups."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    engine: str = "torch"
    """torch runs the model; simulated stands in for it with a cost model."""

    host: str = "127.0.0.1"
    """Address to listen on."""

    port: int = 0
    """gRPC port; 0 picks a free one."""

    metrics_port: int = 0
    """HTTP port of /metrics, /ready and /live; 0 is off."""

    worker_id: str = ""
    """Stable name of this worker; by default its role and port."""

    shutdown_timeout_s: float = 30.0
    """After SIGTERM, requests in flight may finish within this time."""

    load_report_interval_s: float = 0.5
    """Time between two load reports to each router."""

    stall_timeout_s: float = 120.0
    """One step, or a silence of the event loop, that is longer makes /live fail; 0: never."""

    def __post_init__(self) -> None:
        if self.engine not in ("torch", "simulated"):
            raise ValueError(f"engine is {self.engine!r}, neither torch nor simulated")
        if self.load_report_interval_s <= 0:
            raise ValueError(f"load_report_interval_s is {self.load_report_interval_s}, not above 0")
        if self.shutdown_timeout_s < 0:
            raise ValueError(f"shutdown_timeout_s is {self.shutdown_timeout_s}, below 0")
        if self.stall_timeout_s < 0 or 0 < self.stall_timeout_s <= self.load_report_interval_s:
            raise ValueError(f"stall_timeout_s is {self.stall_timeout_s}, neither 0 nor above load_report_interval_s")


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """Cost model and vocabulary of `--engine simulated`; all costs zero is as fast as it goes."""

    simulated_step_s: float = 0.0
    """Seconds for each step."""

    simulated_prefill_token_s: float = 0.0
    """Seconds for each prefilled token."""

    simulated_decode_sequence_s: float = 0.0
    """Seconds for each decoding sequence in a step."""

    simulated_vocab_size: int = 49152
    """Tokens are drawn below this; the tokenizer of the model that is stood in for must know them all."""
