"""Composition root of the operator: builds every part from the settings, and runs them until told to stop.

start:  probes -> wait for the CRDs -> first lists -> watch -> take part in the election
lead:   reconcile every model, scrape, as long as the lease is held; otherwise stand by with a true mirror
stop:   act no more -> release the lease -> end the watch
"""

import asyncio
import logging
import random
import signal
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kubernetes import client
from kvarn_engine.process.metrics_endpoint import serve_metrics
from kvarn_engine.process.tasks import TaskOwner
from prometheus_client import CollectorRegistry, ProcessCollector

from kvarn_operator.cluster.acting import Acting
from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.controller import Controller, Reconcile
from kvarn_operator.cluster.discovery import await_cluster
from kvarn_operator.cluster.election import Election, Leadership, LeaseName
from kvarn_operator.cluster.event_ledger import EventLedger, EventLimits
from kvarn_operator.cluster.event_recorder import EventRecorder, Reporter
from kvarn_operator.cluster.executor import Executor
from kvarn_operator.cluster.health import Health
from kvarn_operator.cluster.kinds import Kind, followed_kinds
from kvarn_operator.cluster.lease import Candidate, LeaseTimes
from kvarn_operator.cluster.metrics import OperatorMetrics
from kvarn_operator.cluster.mirror import Mirror, Resource, ServiceKey, Source, version_of
from kvarn_operator.cluster.progress import Progress
from kvarn_operator.cluster.resync import Resync, ResyncTimes
from kvarn_operator.cluster.sampler import Sampler, SampleTimes
from kvarn_operator.cluster.schedule import KeyedSchedule, Pacing
from kvarn_operator.cluster.transport import CallTimeouts, Transport, client_configuration, own_namespace
from kvarn_operator.cluster.watch_thread import Scope, WatchPlan, WatchThread
from kvarn_operator.cluster.watching import Watching, WatchTimes
from kvarn_operator.cluster.work_queue import WorkQueue
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.reconcile.service import reconcile as reconcile_service
from kvarn_operator.settings import OperatorSettings

logger = logging.getLogger("kvarn.operator")

BEAT_S = 1.0
BEAT_LIMIT_S = 30.0
DEAF_SHARE = 0.4
"""Of the time in which a part may stall: a deaf watch is replaced before liveness ends the process."""

API_THREADS = 8
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class App:
    """What does not depend on the cluster's capabilities."""

    settings: OperatorSettings
    reconcile: Reconcile
    configuration: Callable[[], client.Configuration]
    registry: CollectorRegistry
    metrics: OperatorMetrics
    progress: Progress
    health: Health
    api: Api
    lease_api: Api
    """Calls of its own thread and connection: a renewal never waits behind other calls."""

    candidate: Candidate
    leadership: Leadership
    scope: Scope
    failed: asyncio.Event
    """Set when a task that must not end has ended."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What runs once the cluster is known."""

    mirror: Mirror
    queue: WorkQueue[ServiceKey]
    acting: Acting
    resync: Resync
    watching: Watching
    election: Election


def build(
    settings: OperatorSettings,
    reconcile: Reconcile = reconcile_service,
    configuration: Callable[[], client.Configuration] = client_configuration,
) -> App:
    """Called inside the running event loop. Raises config.ConfigException."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    metrics = OperatorMetrics(registry)
    progress = Progress()
    metrics.watch_progress(progress)
    election = settings.election
    times = LeaseTimes(election.lease_duration_s, election.lease_renew_deadline_s, election.lease_retry_s)
    candidate = Candidate(f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", times)
    call_s = settings.loops.kubernetes_timeout_s
    timeouts = CallTimeouts(min(CONNECT_TIMEOUT_S, call_s), call_s)
    lease_timeouts = CallTimeouts(times.retry_s, times.renew_deadline_s / 2)
    return App(
        settings=settings,
        reconcile=reconcile,
        configuration=configuration,
        registry=registry,
        metrics=metrics,
        progress=progress,
        health=Health(progress),
        api=Api(Transport(configuration(), timeouts, metrics.called), API_THREADS, "work"),
        lease_api=Api(Transport(configuration(), lease_timeouts, metrics.called), 1, "lease"),
        candidate=candidate,
        leadership=Leadership(candidate if election.leader_elect else None),
        scope=scope_of(settings),
        failed=asyncio.Event(),
    )


def scope_of(settings: OperatorSettings) -> Scope:
    return Scope(() if settings.scope.cluster_wide else settings.scope.namespaces or (own_namespace(),))


def assemble(app: App, budget_api: str) -> Parts:
    loops = app.settings.loops
    kinds = followed_kinds(budget_api)
    times = ResyncTimes(loops.resync_s, stall_s=loops.stall_s)
    plan = WatchPlan(kinds, app.scope, loops.kubernetes_timeout_s)
    deaf_s = loops.stall_s * DEAF_SHARE
    queue: WorkQueue[ServiceKey]
    mirror = Mirror(asyncio.get_running_loop().time, lambda key: queue.add(key))
    sample_times = SampleTimes(loops.sample_s, loops.status_sample_s, loops.scrape_timeout_s)
    sampler = Sampler(mirror, sample_times, lambda key: queue.add(key))
    recorder = EventRecorder(app.api, EventLedger(EventLimits()), Reporter(app.candidate.identity), app.metrics)
    executor = Executor(app.api, mirror, recorder, app.leadership, app.metrics)
    controller = Controller(mirror, sampler, executor, app.reconcile, defaults_of(app.settings, budget_api))
    schedule: KeyedSchedule[ServiceKey] = KeyedSchedule(Pacing(), random.random)
    queue = WorkQueue(schedule, controller.work, loops.concurrency, app.metrics)
    app.metrics.watch_depth(queue.depth)
    acting = Acting(queue, sampler, mirror.services, lambda _name, _error: app.failed.set())

    def on_leading(leads: bool) -> None:
        app.metrics.set_leading(leads)
        acting.set_leading(leads)

    def on_event(kind: Kind, event_type: str, resource: Resource) -> None:
        if event_type == "DELETED":
            mirror.remove(resource["metadata"]["uid"], version_of(resource))
        else:
            mirror.put(kind, resource, Source.WATCH)

    def silence_s() -> float:
        return max(mirror.untold_for_s(kind) for kind in kinds)

    election = app.settings.election
    lease = LeaseName(election.lease_namespace or own_namespace(), election.lease_name)
    return Parts(
        mirror=mirror,
        queue=queue,
        acting=acting,
        resync=Resync(app.api, kinds, app.scope, mirror, app.progress, times),
        watching=Watching(
            lambda: WatchThread(plan, app.configuration, on_event), silence_s, app.metrics, WatchTimes(deaf_s)
        ),
        election=Election(app.lease_api, lease, app.candidate, on_leading),
    )


def defaults_of(settings: OperatorSettings, budget_api: str) -> OperatorDefaults:
    workloads = settings.workloads
    return OperatorDefaults(
        worker_image=workloads.worker_image,
        image_pull_policy=workloads.image_pull_policy,
        image_pull_secrets=workloads.image_pull_secrets,
        tls_secret=workloads.tls_secret,
        worker_service_account=workloads.worker_service_account,
        log_json=workloads.worker_log_json,
        priority_class_name=workloads.priority_class_name,
        budget_api=budget_api,
    )


async def serve(settings: OperatorSettings) -> int:
    """Run until SIGTERM or SIGINT, or until a part fails; the exit status of the process."""
    app = build(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    endpoints = settings.endpoints
    metrics = serve_metrics(app.registry, endpoints.host, endpoints.metrics_port)
    health = serve_metrics(app.registry, endpoints.host, endpoints.health_port, app.health)
    try:
        async with TaskOwner("operator", lambda _name, _error: app.failed.set()) as tasks:
            tasks.spawn(beat(app.progress), "beat", forever=True)
            tasks.spawn(run(app), "main", forever=True)
            waiters = [tasks.spawn(stop.wait(), "stop"), tasks.spawn(app.failed.wait(), "failure")]
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            logger.info("stopping")
    finally:
        health.close()
        metrics.close()
        logger.info("stopped")
    return 1 if app.failed.is_set() else 0


async def run(app: App) -> None:
    """Until cancelled."""
    try:
        parts = assemble(app, await await_cluster(app.api, app.health))
        await parts.resync.first()
        app.health.waits_for = ""
        logger.info("ready", extra={"namespaces": ",".join(app.scope.namespaces) or "all"})
        await follow_and_lead(app, parts)
    finally:
        await asyncio.to_thread(app.api.close)
        await asyncio.to_thread(app.lease_api.close)


async def follow_and_lead(app: App, parts: Parts) -> None:
    """Until cancelled; then acting ends first, and the lease is released when nothing is being written any more."""

    def fail(_name: str, _error: BaseException | None) -> None:
        app.failed.set()

    watching, following, standing, leading = (
        TaskOwner(name, fail) for name in ("watching", "following", "election", "leading")
    )
    try:
        watching.spawn(parts.watching.run(), "watch", forever=True)
        following.spawn(parts.resync.run(lambda pause_s: resynced(parts, pause_s)), "resync", forever=True)
        following.spawn(watch_queue(app, parts.queue), "queue progress", forever=True)
        leading.spawn(parts.acting.run(), "acting", forever=True)
        if app.settings.election.leader_elect:
            standing.spawn(parts.election.run(), "election", forever=True)
        else:
            app.metrics.set_leading(True)
            parts.acting.set_leading(True)
        await asyncio.Event().wait()
    finally:
        await leading.stop()
        await following.stop()
        await asyncio.to_thread(app.api.close)
        await standing.stop()
        await parts.election.release()
        await watching.stop()


def resynced(parts: Parts, pause_s: float) -> None:
    """Every model is looked at between two rounds, not all at once."""
    for key in parts.mirror.services():
        parts.queue.add(key, random.random() * pause_s / 2)


async def beat(progress: Progress) -> None:
    """A hung event loop shows by the silence of this."""
    while True:
        progress.mark("loop", BEAT_LIMIT_S)
        await asyncio.sleep(BEAT_S)


async def watch_queue(app: App, queue: WorkQueue[ServiceKey]) -> None:
    """The queue gets on as long as no model stays due or in work for too long; while standing by it is empty."""
    while True:
        app.progress.mark("queue", app.settings.loops.stall_s, lag_s=queue.oldest_s())
        await asyncio.sleep(BEAT_S)
