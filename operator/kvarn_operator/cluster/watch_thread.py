"""One life of kopf, in a thread with an event loop of its own. Started and ended by `watching`.

kopf ends every task of its loop that began after itself, which is why it gets a loop to itself. It may also never end:
then the thread is abandoned, and what it still hears goes nowhere.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import kopf
from kubernetes import client

from kvarn_operator.cluster.handlers import Sink, build_registry, build_settings
from kvarn_operator.cluster.kinds import Kind
from kvarn_operator.cluster.kopf_sessions import KopfSessions
from kvarn_operator.cluster.mirror import Resource

logger = logging.getLogger("kvarn.operator.watching")

CANCEL_AGAIN_S = 0.5
"""kopf may be about to end by itself and then takes no notice of the first cancellation."""

STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class Scope:
    namespaces: tuple[str, ...] = ()
    """Empty: the whole cluster."""

    def each(self) -> tuple[str, ...]:
        """For one call each; the empty name stands for all namespaces."""
        return self.namespaces or ("",)


@dataclass(frozen=True, slots=True)
class WatchPlan:
    kinds: Sequence[Kind]
    scope: Scope
    request_timeout_s: float = 10.0


class WatchThread:
    def __init__(self, plan: WatchPlan, configuration: Callable[[], client.Configuration], sink: Sink) -> None:
        """`sink` is called in the running loop, in order, until `stop`."""
        self._plan = plan
        self._configuration = configuration
        self._sink = sink
        self._home = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._stopped = False
        self._lock = threading.Lock()  # over the two fields above
        self.ended = asyncio.Event()
        self.reason = ""
        """Why it ended by itself."""

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        end = time.monotonic() + STOP_S
        while self._thread.is_alive() and time.monotonic() < end:
            self._cancel()
            await asyncio.to_thread(self._thread.join, CANCEL_AGAIN_S)
        if self._thread.is_alive():
            logger.warning("a watch does not end and is abandoned")

    def _cancel(self) -> None:
        with self._lock:
            self._stopped = True
            if self._inside is not None:
                loop, task = self._inside
                loop.call_soon_threadsafe(task.cancel)

    def _run(self) -> None:
        """The body of the thread."""
        try:
            asyncio.run(self._serve())
            self.reason = "ended"
        except asyncio.CancelledError:
            self.reason = "cancelled"
        except Exception as error:  # noqa: BLE001  the thread's edge: whatever kopf ends with is a reason
            self.reason = f"{type(error).__name__}: {error}"
        self._at_home(self.ended.set)

    async def _serve(self) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        # Of several watchers that end, kopf asks only one for its error.
        loop.set_exception_handler(_say_quietly)
        with self._lock:
            if self._stopped:
                return
            self._inside = (loop, task)
        sessions = KopfSessions(self._configuration)
        try:
            await kopf.operator(
                registry=build_registry(self._plan.kinds, self._hand_over, sessions.open),
                settings=build_settings(self._plan.kinds, self._plan.request_timeout_s),
                standalone=True,
                clusterwide=not self._plan.scope.namespaces,
                namespaces=self._plan.scope.namespaces,
            )
        finally:
            with self._lock:
                self._inside = None
            await sessions.close()

    def _hand_over(self, kind: Kind, event_type: str, resource: Resource) -> None:
        """In kopf's loop."""
        self._at_home(self._sink, kind, event_type, resource)

    def _at_home(self, call: Callable[..., object], *arguments: object) -> None:
        """After `stop` nobody listens any more, and the operator's loop may be closed."""
        with self._lock:
            if not self._stopped:
                self._home.call_soon_threadsafe(call, *arguments)


def _say_quietly(_loop: asyncio.AbstractEventLoop, context: Mapping[str, object]) -> None:
    logger.debug("in kopf", extra={"reason": f"{context['message']}: {context.get('exception')}"})
