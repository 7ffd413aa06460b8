"""One worker as a whole: the gRPC server, its services, the engine, and the order in which they start and end.

Built by a role's composition root. It does not know what the role's service does, only how to register and close it.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from kvarn_proto.v1 import worker_pb2_grpc
from prometheus_client import CollectorRegistry

from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.serving.protocol import Engine
from kvarn_engine.serving.worker_health import WorkerHealth
from kvarn_engine.serving.worker_identity import WorkerIdentity
from kvarn_engine.serving.worker_metrics import WorkerMetrics
from kvarn_engine.serving.worker_requests import RequestGate
from kvarn_engine.serving.worker_service import WorkerService
from kvarn_engine.serving.worker_settings import WorkerSettings
from kvarn_engine.wire.channels import ChannelSettings, listen, server_options
from kvarn_engine.wire.tls import TlsFiles

logger = logging.getLogger("kvarn.worker")

_WORKER_SERVICE = "kvarn.v1.Worker"
_LAST_WRITES_S = 2.0
"""Statuses of ended calls are on their way out; what still runs after this is cut."""


class RoleService(Protocol):
    """What makes a worker a prefill or a decode worker."""

    service_name: str

    def register(self, server: grpc.aio.Server) -> None: ...

    async def close(self) -> None:
        """Release what the service holds towards other processes."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerParts:
    identity: WorkerIdentity
    engine: Engine
    gate: RequestGate
    metrics: WorkerMetrics
    registry: CollectorRegistry


class WorkerApp:
    def __init__(
        self,
        settings: WorkerSettings,
        parts: WorkerParts,
        role: RoleService,
        probes: WorkerHealth | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._role = role
        self._probes = probes or WorkerHealth()
        self._tls = tls
        self._worker = WorkerService(parts.identity, parts.engine, parts.gate, settings.load_report_interval_s)
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in the published types
        self._server = grpc.aio.server(options=server_options(ChannelSettings()))
        self._tasks = TaskOwner("worker", on_failure=lambda name, error: self.failed.set())

        self.failed = asyncio.Event()
        """Set when the worker can serve no more and its process should end."""

    @property
    def parts(self) -> WorkerParts:
        return self._parts

    async def start(self) -> str:
        """Return the address once requests are served."""
        settings = self._settings
        await self._parts.engine.start()
        self._register_services()
        port = listen(self._server, f"{settings.host}:{settings.port}", self._tls)
        await self._server.start()
        self._tasks.spawn(self._sample_load(), "load-sampler", forever=True)
        for name in ("", self._role.service_name, _WORKER_SERVICE):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._probes.serve(self._parts.engine, self._parts.gate)
        return f"{settings.host}:{port}"

    async def drain(self, force: asyncio.Event) -> bool:
        """Refuse new requests, then wait for those in flight: until they end, the time is over, or `force` is set."""
        self._parts.gate.close()
        await self._health.enter_graceful_shutdown()
        async with TaskOwner("drain") as tasks:
            idle = tasks.spawn(self._parts.gate.wait_idle(self._settings.shutdown_timeout_s), "idle")
            forced = tasks.spawn(force.wait(), "forced")
            await asyncio.wait({idle, forced}, return_when=asyncio.FIRST_COMPLETED)
        return self._parts.gate.in_flight == 0

    async def stop(self) -> None:
        """End what is left. The engine goes first: it fails what is in flight, so that each caller is told why."""
        self._probes.stop()
        self._worker.close()
        await self._parts.engine.stop()
        await self._server.stop(_LAST_WRITES_S)
        await self._role.close()
        await self._tasks.stop()

    def _register_services(self) -> None:
        self._role.register(self._server)
        worker_pb2_grpc.add_WorkerServicer_to_server(self._worker, self._server)  # type: ignore[no-untyped-call]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (self._role.service_name, _WORKER_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def _sample_load(self) -> None:
        """The pulse of the event loop: metrics, the liveness probe and the TLS files are looked after here."""
        while True:
            self._probes.beat()
            self._parts.metrics.set_load(self._parts.engine.load())
            if self._tls is not None:
                self._tls.current()
            if self._parts.engine.is_defective:
                self.failed.set()
            await asyncio.sleep(self._settings.load_report_interval_s)
