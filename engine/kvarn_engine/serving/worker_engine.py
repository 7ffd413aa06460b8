"""Builds what both roles are made of: runner, engine, identity, metrics. Called by the composition roots only.

torch is imported when the torch engine is asked for, and not before.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from kvarn_proto.v1 import common_pb2
from prometheus_client import CollectorRegistry

from kvarn_engine.core.ids import WorkerId
from kvarn_engine.core.plan import ModelRunner
from kvarn_engine.model_folder import EMBEDDED_MODEL, is_converted, render_fingerprint, resolve_model
from kvarn_engine.runtime.settings import RuntimeSettings
from kvarn_engine.serving.engine import StepEngine
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.simulated import CostModel, SimulatedRunner, SimulatedSettings
from kvarn_engine.serving.worker_app import WorkerParts
from kvarn_engine.serving.worker_identity import WorkerIdentity, installed_version, new_incarnation
from kvarn_engine.serving.worker_metered_runner import MeteredRunner
from kvarn_engine.serving.worker_metrics import WorkerMetrics
from kvarn_engine.serving.worker_requests import RequestGate
from kvarn_engine.serving.worker_settings import SimulationSettings, WorkerSettings

_SIMULATED_BLOCKS = 4096
_SIMULATED_MODEL_LEN = 8192


@dataclass(frozen=True, slots=True)
class EngineGroups:
    """The settings groups that shape an engine."""

    model: RuntimeSettings
    batch: EngineSettings
    simulation: SimulationSettings


def build_parts(
    role: common_pb2.Role, worker: WorkerSettings, groups: EngineGroups, registry: CollectorRegistry
) -> WorkerParts:
    """Load the model and put an engine on it; may take minutes. Raises UnsupportedModel, ModelNotFound."""
    reference = groups.model.model
    if worker.engine == "simulated":
        runner, fingerprint = _simulated_runner(groups), _local_render_fingerprint(reference)
    else:
        # Before torch is imported, which takes seconds: a wrong reference is told at once.
        fingerprint = render_fingerprint(resolve_model(reference, groups.model.model_revision))
        runner = _torch_runner(groups.model)
    return parts_around(runner, groups.batch, _identity(role, worker, reference, fingerprint), registry)


def parts_around(
    runner: ModelRunner, batch: EngineSettings, identity: WorkerIdentity, registry: CollectorRegistry | None = None
) -> WorkerParts:
    registry = registry or CollectorRegistry()
    metrics = WorkerMetrics(registry)
    engine = StepEngine(MeteredRunner(runner, metrics), batch, time.perf_counter)
    gate = RequestGate()
    metrics.watch_gate(gate)
    return WorkerParts(identity, engine, gate, metrics, registry)


def _torch_runner(settings: RuntimeSettings) -> ModelRunner:
    from kvarn_engine.runtime.runner import load_runner

    return load_runner(settings)


def _simulated_runner(groups: EngineGroups) -> ModelRunner:
    simulation = groups.simulation
    cost = CostModel(
        step_s=simulation.simulated_step_s,
        prefill_token_s=simulation.simulated_prefill_token_s,
        decode_sequence_s=simulation.simulated_decode_sequence_s,
    )
    return SimulatedRunner(
        SimulatedSettings(
            num_blocks=groups.model.num_blocks or _SIMULATED_BLOCKS,
            block_size=groups.model.block_size,
            max_model_len=groups.model.max_model_len or _SIMULATED_MODEL_LEN,
            vocab_size=simulation.simulated_vocab_size,
            cost=cost,
        )
    )


def _local_render_fingerprint(reference: str) -> str:
    """A simulated worker renders like the model it stands in for, where that lies on disk; it never fetches one."""
    here = is_converted() if reference == EMBEDDED_MODEL else Path(reference).expanduser().is_dir()
    return render_fingerprint(resolve_model(reference)) if here else ""


def _identity(role: common_pb2.Role, worker: WorkerSettings, model: str, fingerprint: str) -> WorkerIdentity:
    incarnation = new_incarnation()
    name = "prefill" if role == common_pb2.ROLE_PREFILL else "decode"
    worker_id = worker.worker_id or f"{name}-{worker.port or incarnation}"
    return WorkerIdentity(WorkerId(worker_id), incarnation, role, model, fingerprint, installed_version())
