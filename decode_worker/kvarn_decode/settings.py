"""All settings of a decode worker process."""

from dataclasses import dataclass, field

from kvarn_engine.process.logs import LogSettings
from kvarn_engine.runtime.settings import RuntimeSettings
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.worker_settings import SimulationSettings, WorkerSettings
from kvarn_engine.wire.tls import TlsSettings


@dataclass(frozen=True, slots=True)
class HandoffSettings:
    local_prefill_max_tokens: int = 32
    """An uncached suffix of up to this many tokens is prefilled here, without a peer."""

    handoff_idle_timeout_s: float = 10.0
    """A peer that sends no frame for this long is given up. Peers send a heartbeat while they compute."""

    def __post_init__(self) -> None:
        if self.handoff_idle_timeout_s <= 0:
            raise ValueError(f"handoff_idle_timeout_s is {self.handoff_idle_timeout_s}, not above 0")


@dataclass(frozen=True, slots=True)
class DecodeSettings:
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    model: RuntimeSettings = field(default_factory=RuntimeSettings)
    batch: EngineSettings = field(default_factory=EngineSettings)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)
    handoff: HandoffSettings = field(default_factory=HandoffSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    log: LogSettings = field(default_factory=LogSettings)
