"""The edge of a worker process: signals, probes, loading, the ready line, the stages of a shutdown, the exit status.

Called by `__main__` of each role with the functions that load and assemble it. Before it serves, a SIGTERM ends the
process at once; from then on the first one drains and the second forces. SIGINT counts the same.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector

from kvarn_engine.core.errors import EngineError
from kvarn_engine.model_folder import ModelNotFound
from kvarn_engine.process.metrics_endpoint import serve_metrics
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.serving.worker_app import RoleService, WorkerApp, WorkerParts
from kvarn_engine.serving.worker_health import WorkerHealth
from kvarn_engine.serving.worker_settings import WorkerSettings
from kvarn_engine.wire.tls import TlsError, TlsFiles, TlsSettings, open_tls

logger = logging.getLogger("kvarn.worker")


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """What a role's process is made of."""

    worker: WorkerSettings
    tls: TlsSettings
    load: Callable[[CollectorRegistry], WorkerParts]
    """Runs on another thread and may take minutes."""

    role: Callable[[WorkerParts, TlsFiles | None], RoleService]


@dataclass(frozen=True, slots=True)
class StopSignals:
    drain: asyncio.Event = field(default_factory=asyncio.Event)
    force: asyncio.Event = field(default_factory=asyncio.Event)

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.receive)

    def receive(self) -> None:
        (self.force if self.drain.is_set() else self.drain).set()


def run_worker(program: WorkerProgram) -> int:
    """Exit status: 0 after a shutdown that was asked for, 1 when the worker could not start or go on."""
    try:
        return asyncio.run(_run(program))
    except (EngineError, ModelNotFound, TlsError, OSError, RuntimeError) as error:
        logger.error("worker cannot run", extra={"reason": type(error).__name__, "detail": str(error)})
        return 1
    except Exception as error:  # the process edge: a broken model makes libraries raise anything
        logger.error("worker cannot run", extra={"reason": type(error).__name__, "detail": str(error)}, exc_info=error)
        return 1


async def _run(program: WorkerProgram) -> int:
    signals = StopSignals()
    signals.install()
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    tls = open_tls(program.tls)
    if tls is not None:
        tls.expose(registry)
    settings = program.worker
    health = WorkerHealth(settings.stall_timeout_s)
    endpoint = serve_metrics(registry, settings.host, settings.metrics_port, health)
    try:
        parts = await _load(program, registry, signals)
        app = WorkerApp(settings, parts, program.role(parts, tls), health, tls)
        return await _serve(app, signals)
    finally:
        endpoint.close()


async def _load(program: WorkerProgram, registry: CollectorRegistry, signals: StopSignals) -> WorkerParts:
    """Does not return when the process is asked to end meanwhile."""
    loading = asyncio.get_running_loop().run_in_executor(None, program.load, registry)
    stop_now = TaskOwner("loading")
    stop_now.spawn(_leave_when(signals.drain), "stop")
    try:
        return await loading
    finally:
        await stop_now.stop()


async def _leave_when(asked: asyncio.Event) -> None:
    """An orderly end would wait for the loading thread, which nothing can interrupt; nobody is served yet."""
    await asked.wait()
    logger.info("stopped while loading")
    logging.shutdown()
    os._exit(0)


async def _serve(app: WorkerApp, signals: StopSignals) -> int:
    try:
        address = await app.start()
        identity = app.parts.identity
        logger.info(
            "ready",
            extra={"address": address, "worker_id": identity.worker_id, "incarnation": identity.incarnation},
        )
        if await _failed_before(signals.drain, app.failed):
            logger.error("worker failed and stops", extra={"in_flight": app.parts.gate.in_flight})
            return 1
        logger.info("draining", extra={"in_flight": app.parts.gate.in_flight})
        drained = await app.drain(signals.force)
        logger.info("stopping", extra={"drained": drained, "in_flight": app.parts.gate.in_flight})
    finally:
        await app.stop()
    return 0


async def _failed_before(drain: asyncio.Event, failed: asyncio.Event) -> bool:
    async with TaskOwner("process") as tasks:
        waits = {tasks.spawn(event.wait(), name) for name, event in (("drain", drain), ("failed", failed))}
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return failed.is_set()
