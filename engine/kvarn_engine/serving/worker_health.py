"""What a worker answers to `/ready` and `/live`, from the start of its process to the end.

Written by the process and the app on the event loop; asked on the metrics endpoint's threads.
"""

import time
from collections.abc import Callable

from kvarn_engine.serving.protocol import Engine
from kvarn_engine.serving.worker_requests import RequestGate


class WorkerHealth:
    """Loading, then serving, then stopping. A worker that loads is alive however long that takes: a startup probe on
    `/ready` is what bounds it."""

    def __init__(self, stall_timeout_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        """A timeout of 0 never takes a worker for stalled."""
        self._stall_timeout_s = stall_timeout_s
        self._clock = clock
        self._engine: Engine | None = None
        self._gate: RequestGate | None = None
        self._stopping = False
        self._last_beat = clock()

    def serve(self, engine: Engine, gate: RequestGate) -> None:
        """Requests are served from now on."""
        self.beat()
        self._engine, self._gate = engine, gate

    def beat(self) -> None:
        """The event loop runs. Called more often than the stall timeout."""
        self._last_beat = self._clock()

    def stop(self) -> None:
        """Nothing is served any more."""
        self._stopping = True

    def ready(self) -> str:
        if self._stopping:
            return "stopping"
        if self._engine is None or self._gate is None:
            return "loading"
        return "draining" if self._gate.draining else self.live()

    def live(self) -> str:
        if self._engine is None or self._stopping:
            return ""
        if self._engine.is_defective:
            return "defective"
        return "stalled" if self._is_stalled(self._engine) else ""

    def _is_stalled(self, engine: Engine) -> bool:
        silent_s = self._clock() - self._last_beat
        return 0 < self._stall_timeout_s < max(engine.busy_s(), silent_s)
