"""All settings of a prefill worker process."""

from dataclasses import dataclass, field

from kvarn_engine.process.logs import LogSettings
from kvarn_engine.runtime.settings import RuntimeSettings
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.worker_settings import SimulationSettings, WorkerSettings
from kvarn_engine.wire.tls import TlsSettings


@dataclass(frozen=True, slots=True)
class ExportSettings:
    handoff_heartbeat_s: float = 2.0
    """While nothing is ready to send, a heartbeat goes out this often: silence means a frozen peer."""

    def __post_init__(self) -> None:
        if self.handoff_heartbeat_s <= 0:
            raise ValueError(f"handoff_heartbeat_s is {self.handoff_heartbeat_s}, not above 0")


@dataclass(frozen=True, slots=True)
class PrefillSettings:
    worker: WorkerSettings = field(default_factory=WorkerSettings)
    model: RuntimeSettings = field(default_factory=RuntimeSettings)
    batch: EngineSettings = field(default_factory=EngineSettings)
    simulation: SimulationSettings = field(default_factory=SimulationSettings)
    export: ExportSettings = field(default_factory=ExportSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    log: LogSettings = field(default_factory=LogSettings)
