"""The edge of a worker process: signals, the ready line, the stages of a shutdown, the exit status.

Called by `__main__` of each role with a function that builds the app. The first SIGTERM drains,
the second forces; SIGINT counts the same.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field

from kvarn_engine.core.errors import EngineError
from kvarn_engine.model_folder import ModelNotFound
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.serving.worker_app import WorkerApp

logger = logging.getLogger("kvarn.worker")


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


def run_worker(build: Callable[[], WorkerApp]) -> int:
    """Exit status: 0 after a shutdown that was asked for, 1 when the worker could not start or go on."""
    try:
        return asyncio.run(_run(build))
    except (EngineError, ModelNotFound, OSError, RuntimeError) as error:
        logger.error("worker cannot run", extra={"reason": type(error).__name__, "detail": str(error)})
        return 1


async def _run(build: Callable[[], WorkerApp]) -> int:
    app = build()
    signals = StopSignals()
    signals.install()
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
