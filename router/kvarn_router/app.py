"""Composition root of the router process: builds every part from the settings, and runs them until told to stop.

start:  listen -> follow the workers -> serve          (the log line `ready` names the address)
stop:   say not ready, and still take requests for the delay -> take no new connection -> finish running answers, up to
        the time limit -> leave the workers
"""

import asyncio
import logging
import secrets
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import uvicorn
from kvarn_engine.core.ids import TokenId
from kvarn_engine.model_archive import is_archive_reference
from kvarn_engine.model_folder import eos_token_ids, render_fingerprint, resolve_tokenizer
from kvarn_engine.process.metrics_endpoint import serve_metrics
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.wire.tls import open_tls
from prometheus_client import CollectorRegistry, ProcessCollector
from starlette.types import ASGIApp

from kvarn_router.api.routes import build_api
from kvarn_router.attempts import AttemptLimits
from kvarn_router.connection_close import ConnectionClose
from kvarn_router.debug_routes import DebugRoutes
from kvarn_router.decisions import DecisionLog
from kvarn_router.discovery.choice import choose_source
from kvarn_router.discovery.endpoint import WorkerSource
from kvarn_router.dispatcher import Dispatcher
from kvarn_router.explain_header import ExplainHeader
from kvarn_router.holding import Holding, HoldLimits, UncachedTokens
from kvarn_router.http_connection import HttpConnection
from kvarn_router.metrics import RoutingMetrics
from kvarn_router.pipeline import ReadyRules, RouterPipeline
from kvarn_router.registration import Admission, Registrar, RegistrationLimits
from kvarn_router.routing.cost import SaturationLimits
from kvarn_router.routing.prefix_index import IndexLimits, PrefixIndex
from kvarn_router.settings import RouterSettings, RoutingSettings
from kvarn_router.stream import StreamLimits, StreamParts
from kvarn_router.tokenization import Tokenizer
from kvarn_router.workers import WorkerTable

logger = logging.getLogger("kvarn.router")

_LAST_WORDS_S = 2.0


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
    """Called inside the running event loop. Raises ModelNotFound, SettingsError or TlsError."""
    folder = resolve_tokenizer(settings.tokenizer.model, settings.tokenizer.model_revision)
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    tls = open_tls(settings.tls)
    if tls is not None:
        tls.expose(registry)
    admission = Admission(render_fingerprint(folder), tls)
    metrics, table = RoutingMetrics(registry), WorkerTable()
    index = PrefixIndex(
        IndexLimits(settings.routing.index_max_blocks, predicted_ttl_s=settings.routing.predicted_ttl_s)
    )
    decisions = DecisionLog(settings.routing.decision_log)
    dispatcher = Dispatcher(
        table, index, decisions, _saturation(settings.routing), admission.render_fingerprint, time.monotonic
    )
    parts = _stream_parts(settings.routing, dispatcher, metrics, eos_token_ids(folder))
    metrics.watch(table, parts.holding, parts.uncached)
    failed = asyncio.Event()
    rules = ReadyRules(settings.workers.ready_without_prefill, settings.workers.ready_without_workers)
    pipeline = RouterPipeline(table, parts, served_names(settings), rules)
    tokenizer = Tokenizer.load(folder)
    debug = DebugRoutes(table, index, decisions, parts.holding, parts.uncached)
    api = build_api(pipeline, tokenizer, settings.api, registry, extra_routes=debug.routes())
    return App(
        settings=settings,
        registry=registry,
        asgi=ConnectionClose(ExplainHeader(api, decisions), lambda: pipeline.is_ending),
        pipeline=pipeline,
        source=choose_source(settings.workers, settings.discovery),
        registrar=_registrar(settings, table, index, metrics, admission, failed),
        tasks=parts.tasks,
        tokenizer=tokenizer,
        failed=failed,
    )


def _saturation(routing: RoutingSettings) -> SaturationLimits:
    return SaturationLimits(routing.max_worker_inflight, routing.max_worker_waiting, routing.max_worker_kv_usage)


def _stream_parts(
    routing: RoutingSettings, dispatcher: Dispatcher, metrics: RoutingMetrics, eos: frozenset[TokenId]
) -> StreamParts:
    return StreamParts(
        dispatcher=dispatcher,
        tasks=TaskOwner("pipeline"),
        metrics=metrics,
        limits=StreamLimits(
            routing.stream_idle_timeout_s,
            routing.worker_wait_s,
            AttemptLimits(routing.max_attempts, max_worker_losses=routing.max_worker_losses),
        ),
        eos_token_ids=eos,
        holding=Holding(HoldLimits(routing.hold_s, routing.max_held)),
        uncached=UncachedTokens(metrics.tokens_arrived),
        router_id=secrets.token_hex(4),
    )


def served_names(settings: RouterSettings) -> tuple[str, ...]:
    """What clients may call the model; the first is the one that answers carry."""
    reference = settings.tokenizer.model
    if settings.api.served_model_name:
        return settings.api.served_model_name
    if Path(reference).is_dir():
        return Path(reference).resolve().name, reference
    if is_archive_reference(reference):
        # Never the address itself, which may hold a key.
        return (PurePosixPath(urlsplit(reference).path).name.partition(".")[0],)
    return (reference,)


async def serve(settings: RouterSettings) -> int:
    """Run until SIGTERM or SIGINT, or until a part fails; the exit status of the process."""
    listener = _listen(settings.server.host, settings.server.port)
    app = build(settings)
    server = _Server(_uvicorn_config(app), app.pipeline, settings.server.shutdown_delay_s)
    metrics = serve_metrics(app.registry, settings.server.host, settings.server.metrics_port)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.ask_to_stop)
    app.registrar.start(app.source)
    watchdog = app.tasks.spawn(_stop_on_failure(app.failed, server), "watchdog")
    try:
        await server.serve(sockets=[listener])
        await server.cut_off()
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
    admission: Admission,
    failed: asyncio.Event,
) -> Registrar:
    limits = RegistrationLimits(settings.workers.describe_timeout_s, settings.workers.watch_silence_s)
    return Registrar(table, index, metrics, limits, admission, on_failure=lambda _name, _error: failed.set())


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


def _uvicorn_config(app: App) -> uvicorn.Config:
    return uvicorn.Config(
        app.asgi,
        http=HttpConnection,
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
    if not server.should_exit:  # A second word would cut off the answers that it finishes.
        server.ask_to_stop()


class _Server(uvicorn.Server):
    """Signals belong to `serve`, which ends the process with a status instead of raising them again."""

    def __init__(self, config: uvicorn.Config, pipeline: RouterPipeline, delay_s: float) -> None:
        super().__init__(config)
        self._pipeline = pipeline
        self._delay_s = delay_s

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
        if self._pipeline.is_ending:
            self.force_exit = True
            self.should_exit = True
            return
        logger.info("stopping")
        self._pipeline.end()
        asyncio.get_running_loop().call_later(self._delay_s, self._close)

    async def cut_off(self) -> None:
        """Let the answers that outlived their time tell their clients so."""
        running = tuple(self.server_state.tasks)
        if self.force_exit:
            for task in running:
                task.cancel()
        if running:
            await asyncio.wait(running, timeout=_LAST_WORDS_S)

    def _close(self) -> None:
        self.should_exit = True
