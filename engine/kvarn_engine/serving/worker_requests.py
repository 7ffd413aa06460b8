"""Requests in flight on one worker, and the gate that closes when it drains.

Shared by the role's service (admits), the Worker service (reports, drains) and the shutdown (waits). Knows no gRPC.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from kvarn_engine.core.errors import Draining


class RequestGate:
    def __init__(self) -> None:
        self._in_flight = 0
        self._draining = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Hold one place in flight. Raises Draining when the gate is closed."""
        if self.draining:
            raise Draining("this worker is draining and takes no new requests")
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._idle.set()

    def close(self) -> None:
        """Refuse new requests from now on. Safe to call twice."""
        self._draining.set()

    async def closed(self) -> None:
        """Wait until the gate closes."""
        await self._draining.wait()

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether the last request in flight ended within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
