"""An operator inside the test: the real composition root against an API server on loopback.

    async with operator(url) as running: ...

`kill` ends it as SIGKILL would as far as the cluster can see: nothing more is written, the lease is not released.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kvarn_operator.app import App, build, run
from kvarn_operator.cluster.controller import Reconcile
from kvarn_operator.reconcile.service import reconcile as real_reconcile
from kvarn_operator.settings import ElectionSettings, LoopSettings, OperatorSettings, ScopeSettings, WorkloadSettings

from tests.support.kubernetes_api import configuration_for

NAMESPACE = "models"

ALONE = ElectionSettings(leader_elect=False, lease_namespace=NAMESPACE)
QUICK_ELECTION = ElectionSettings(
    lease_namespace=NAMESPACE, lease_duration_s=1.0, lease_renew_deadline_s=0.7, lease_retry_s=0.1
)
SETTINGS = OperatorSettings(
    scope=ScopeSettings(namespaces=(NAMESPACE,)),
    workloads=WorkloadSettings(worker_image="example/worker:1"),
    election=ALONE,
    loops=LoopSettings(resync_s=60.0, kubernetes_timeout_s=5.0),
)


@dataclass
class Running:
    app: App
    task: "asyncio.Task[None]"

    async def kill(self) -> None:
        self.app.candidate.unsure()  # a dead process releases no lease
        self.app.candidate.observed(None, 0.0)
        self.task.cancel()
        await asyncio.wait([self.task])


@asynccontextmanager
async def operator(
    url: str, settings: OperatorSettings = SETTINGS, reconcile: Reconcile = real_reconcile
) -> AsyncIterator[Running]:
    app = build(settings, reconcile, lambda: configuration_for(url))
    task = asyncio.create_task(run(app), name="operator-under-test")
    try:
        yield Running(app, task)
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def eventually(condition: Callable[[], object], what: str, deadline_s: float = 20.0) -> None:
    """The deadline only bounds a failing test."""
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {deadline_s:.0f} s: {what}") from None


def with_resync(seconds: float) -> OperatorSettings:
    return replace(SETTINGS, loops=replace(SETTINGS.loops, resync_s=seconds))
