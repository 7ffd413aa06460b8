"""Runs kopf in a thread with an event loop of its own, and begins anew when it breaks. Owned by the composition root.

kopf ends every task of its loop that began after itself, which is why it gets a loop to itself. What it hears is handed
to the operator's loop in order. It keeps nothing that matters: what it misses, the regular lists find.
"""

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import kopf
from kubernetes import client

from kvarn_operator.cluster.handlers import Sink, build_registry, build_settings
from kvarn_operator.cluster.kinds import Kind
from kvarn_operator.cluster.mirror import Resource

logger = logging.getLogger("kvarn.operator.watching")

STOP_S = 15.0
"""kopf is cancelled and ends at once as a rule; after this the daemon thread is left to the process's end."""


@dataclass(frozen=True, slots=True)
class Scope:
    namespaces: tuple[str, ...] = ()
    """Empty: the whole cluster."""

    def each(self) -> tuple[str, ...]:
        """For one call each; the empty name stands for all namespaces."""
        return self.namespaces or ("",)


class Meter(Protocol):
    def watch_restarted(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchPlan:
    kinds: Sequence[Kind]
    scope: Scope
    request_timeout_s: float = 10.0
    backoff_min_s: float = 1.0
    backoff_max_s: float = 30.0


class Watching:
    def __init__(
        self, plan: WatchPlan, configuration: Callable[[], client.Configuration], sink: Sink, meter: Meter
    ) -> None:
        """`sink` is called in the loop in which `start` is called."""
        self._plan = plan
        self._configuration = configuration
        self._sink = sink
        self._meter = meter
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._home: asyncio.AbstractEventLoop | None = None
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        self._home = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Safe to call when it was never started."""
        self._stopped.set()
        with self._lock:
            if self._inside is not None:
                loop, task = self._inside
                loop.call_soon_threadsafe(task.cancel)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, STOP_S)

    def _run(self) -> None:
        """The body of the thread."""
        failures = 0
        while not self._stopped.is_set():
            try:
                asyncio.run(self._serve())
            except asyncio.CancelledError:
                return
            except Exception as error:  # noqa: BLE001  the thread's edge
                # Whatever kopf ends with, the watch begins anew; the lists keep the mirror true in the meantime.
                logger.warning("watch broke", extra={"reason": f"{type(error).__name__}: {error}"})
            if self._stopped.is_set():
                return
            self._meter.watch_restarted()
            failures = min(failures + 1, 16)
            limit = min(self._plan.backoff_max_s, self._plan.backoff_min_s * 2.0 ** (failures - 1))
            self._stopped.wait(limit * (1.0 - random.random() / 2))

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # Of several watchers that end, kopf asks only one for its error.
        loop.set_exception_handler(_say_quietly)
        with self._lock:
            if self._stopped.is_set():
                return
            self._inside = (loop, task)
        try:
            await kopf.operator(
                registry=build_registry(self._plan.kinds, self._hand_over, self._configuration()),
                settings=build_settings(self._plan.kinds, self._plan.request_timeout_s),
                standalone=True,
                clusterwide=not self._plan.scope.namespaces,
                namespaces=self._plan.scope.namespaces,
            )
        finally:
            with self._lock:
                self._inside = None

    def _hand_over(self, kind: Kind, event_type: str, resource: Resource) -> None:
        """In kopf's loop. After the operator's loop is closed nobody listens any more."""
        assert self._home is not None
        if not self._stopped.is_set():
            self._home.call_soon_threadsafe(self._sink, kind, event_type, resource)


def _say_quietly(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    logger.debug("in kopf", extra={"reason": f"{context['message']}: {context.get('exception')}"})
