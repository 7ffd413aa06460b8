"""One thread that takes turns for an engine, and the two queues between it and the event loop.

Commands from the event loop run between turns, in order. Calls back to the event loop are collected during a turn and
handed over together.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

Call = Callable[[], None]

_log = logging.getLogger("kvarn.engine")


class StepWork(Protocol):
    def turn(self) -> bool:
        """Do what can be done now. False when only a command can bring more work."""
        ...

    def run(self, command: Call) -> None: ...

    def crash(self, error: Exception) -> None:
        """Everything in flight fails; so will everything that comes."""
        ...


class Outbox:
    """Calls that the step thread makes on the event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: list[Call] = []

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def post(self, call: Call) -> None:
        self._calls.append(call)

    def flush(self) -> None:
        if self._calls:
            calls, self._calls = self._calls, []
            assert self._loop is not None
            self._loop.call_soon_threadsafe(_run_all, calls)


class StepLoop:
    """Owner of the step thread, from `start` to the return of `stop`."""

    def __init__(self, work: StepWork) -> None:
        self._work = work
        self._commands: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        """When the step thread took up what it does now; None while it waits. Other threads only read it."""

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def busy_s(self) -> float:
        """How long the current turn or command has taken so far, 0 when there is none. Any thread may ask."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def start(self) -> None:
        assert self._thread is None
        self._thread = threading.Thread(target=self._main, name="kvarn-step-loop", daemon=True)
        self._thread.start()

    def submit(self, command: Call) -> None:
        """Run `command` on the step thread before the next turn. Dropped when the loop has been stopped."""
        if self.is_running:
            self._commands.put(command)

    async def stop(self) -> None:
        """Commands submitted before are still run; then the thread ends."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._commands.put(None)
            await asyncio.to_thread(thread.join)

    def _main(self) -> None:
        has_work = False
        while True:
            command = self._next(has_work)
            while command is not _nothing:
                if command is None:
                    return
                self._guarded(lambda command=command: self._work.run(command))  # type: ignore[misc]
                command = self._next(True)
            has_work = self._guarded(self._work.turn)

    def _next(self, has_work: bool) -> Call | None:
        try:
            return self._commands.get(block=not has_work)
        except queue.Empty:
            return _nothing

    def _guarded(self, work: Callable[[], bool | None]) -> bool:
        self._began = time.monotonic()
        try:
            return bool(work())
        except Exception as error:  # noqa: BLE001  the thread's edge: whoever waits must hear of any defect
            _log.error("step loop crashed", exc_info=error)
            self._work.crash(error)
            return False
        finally:
            self._began = None


def _nothing() -> None:
    """Marks an empty command queue."""


def _run_all(calls: list[Call]) -> None:
    for call in calls:
        call()
