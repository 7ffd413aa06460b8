"""Composition root of the router process: builds every part from the settings, and runs them until told to stop.

start:  listen -> follow the workers -> serve          (the log line `ready` names the address)
stop:   take no new connection -> finish running answers, up to the time limit -> leave the workers
"""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from kvarn_engine.model_folder import eos_token_ids, render_fingerprint, resolve_model
from kvarn_engine.process.metrics_endpoint import serve_metrics
from kvarn_engine.process.tasks import TaskOwner
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.types import ASGIApp

from kvarn_router.api.routes import build_api
from kvarn_router.debug_routes import DebugRoutes
from kvarn_router.decisions import DecisionLog
from kvarn_router.discovery.choice import choose_source
from kvarn_router.discovery.endpoint import WorkerSource
from kvarn_router.dispatcher import Dispatcher
from kvarn_router.explain_header import ExplainHeader
from kvarn_router.metrics import RoutingMetrics
from kvarn_router.pipeline import RouterPipeline
from kvarn_router.registration import Registrar, RegistrationLimits
from kvarn_router.routing.cost import SaturationLimits
from kvarn_router.routing.prefix_index import IndexLimits, PrefixIndex
from kvarn_router.settings import RouterSettings
from kvarn_router.stream import StreamLimits, StreamParts
from kvarn_router.tokenization import Tokenizer
from kvarn_router.workers import WorkerTable

logger = logging.getLogger("kvarn.router")


@dataclass(frozen=True, slots=True)
class App:
    settings: RouterSettings
    registry: CollectorRegistry
    asgi: ASGIApp
    pipeline: RouterPipeline
    source: WorkerSource
    registrar: Registrar
    tasks: TaskOwner
    tokenizer: Tokenizer
    failed: asyncio.Event
    """Set when a task that must not end has ended."""


def build(settings: RouterSettings) -> App:
    """Called inside the running event loop. Raises ModelNotFound or SettingsError."""
    folder = resolve_model(settings.tokenizer.model)
    fingerprint = render_fingerprint(folder)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = RoutingMetrics(registry)
    table = WorkerTable()
    metrics.watch_table(table)
    routing = settings.routing
    index = PrefixIndex(IndexLimits(routing.index_max_blocks, predicted_ttl_s=routing.predicted_ttl_s))
    decisions = DecisionLog(routing.decision_log)
    limits = SaturationLimits(routing.max_worker_inflight, routing.max_worker_waiting, routing.max_worker_kv_usage)
    parts = StreamParts(
        dispatcher=Dispatcher(table, index, decisions, limits, fingerprint, time.monotonic),
        tasks=TaskOwner("pipeline"),
        metrics=metrics,
        limits=StreamLimits(routing.stream_idle_timeout_s, routing.worker_wait_s, routing.max_attempts),
        eos_token_ids=eos_token_ids(folder),
    )
    failed = asyncio.Event()
    pipeline = RouterPipeline(table, parts, served_names(settings), settings.workers.ready_without_prefill)
    tokenizer = Tokenizer.load(folder)
    debug = DebugRoutes(table, index, decisions)
    api = build_api(pipeline, tokenizer, settings.api, registry, extra_routes=debug.routes())
    return App(
        settings=settings,
        registry=registry,
        asgi=ExplainHeader(api, decisions),
        pipeline=pipeline,
        source=choose_source(settings.workers, settings.discovery),
        registrar=_registrar(settings, table, index, metrics, fingerprint, failed),
        tasks=parts.tasks,
        tokenizer=tokenizer,
        failed=failed,
    )


def served_names(settings: RouterSettings) -> tuple[str, ...]:
    """What clients may call the model; the first is the one that answers carry."""
    reference = settings.tokenizer.model
    if settings.api.served_model_name:
        return (settings.api.served_model_name,)
    if Path(reference).is_dir():
        return Path(reference).resolve().name, reference
    return (reference,)


async def serve(settings: RouterSettings) -> int:
    """Run until SIGTERM or SIGINT, or until a part fails; the exit status of the process."""
    listener = _listen(settings.server.host, settings.server.port)
    app = build(settings)
    server = _Server(_uvicorn_config(app))
    metrics = serve_metrics(app.registry, settings.server.host, settings.server.metrics_port)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.ask_to_stop)
    app.registrar.start(app.source)
    watchdog = app.tasks.spawn(_stop_on_failure(app.failed, server), "watchdog")
    try:
        await server.serve(sockets=[listener])
    finally:
        watchdog.cancel()
        await app.registrar.stop()
        await app.tasks.stop()
        app.tokenizer.close()
        metrics.close()
        logger.info("stopped")
    return 1 if app.failed.is_set() else 0


def _registrar(
    settings: RouterSettings,
    table: WorkerTable,
    index: PrefixIndex,
    metrics: RoutingMetrics,
    fingerprint: str,
    failed: asyncio.Event,
) -> Registrar:
    limits = RegistrationLimits(settings.workers.describe_timeout_s, settings.workers.watch_silence_s)
    return Registrar(table, index, metrics, limits, fingerprint, on_failure=lambda _name, _error: failed.set())


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app.asgi,
        http="httptools",
        loop="none",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(app.settings.server.shutdown_timeout_s)),
    )


async def _stop_on_failure(failed: asyncio.Event, server: "_Server") -> None:
    await failed.wait()
    server.ask_to_stop()


class _Server(uvicorn.Server):
    """Signals belong to `serve`, which ends the process with a status instead of raising them again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            logger.info("ready", extra={"address": f"{host}:{port}"})

    def ask_to_stop(self) -> None:
        """The second time, running answers are cut off."""
        if self.should_exit:
            self.force_exit = True
        else:
            logger.info("stopping")
        self.should_exit = True
