"""Server-sent events: starts the response at the first event, and pings after silence. Called by `endpoint`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Send

from kvarn_router.api.errors import ClientGone

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)


class SseWriter:
    """The first byte commits the status, so nothing is sent before there is an event, or a worker is at work and its
    silence is to be broken."""

    def __init__(self, send: Send, ping_s: float, send_timeout_s: float) -> None:
        self._send = send
        self._ping_s = ping_s
        self._send_timeout_s = send_timeout_s
        self._started = False
        self._may_ping = asyncio.Event()
        self._last_sent = asyncio.get_running_loop().time()
        self._lock = asyncio.Lock()

    async def event(self, *payloads: object) -> None:
        """Several payloads go out as one write."""
        texts = (json.dumps(payload, ensure_ascii=False, separators=(",", ":")) for payload in payloads)
        await self._write("".join(f"data: {text}\n\n" for text in texts).encode("utf-8"))

    def allow_pings(self) -> None:
        """The request is no longer held: its silence counts from now on."""
        self._last_sent = asyncio.get_running_loop().time()
        self._may_ping.set()

    async def done(self) -> None:
        await self._write(b"data: [DONE]\n\n", more=False)

    @asynccontextmanager
    async def pinging(self) -> AsyncIterator[None]:
        ping = asyncio.create_task(self._ping(), name="api-sse-ping")
        try:
            yield
        finally:
            ping.cancel()
            await asyncio.gather(ping, return_exceptions=True)

    async def _ping(self) -> None:
        loop = asyncio.get_running_loop()
        await self._may_ping.wait()
        while True:
            silence = loop.time() - self._last_sent
            if silence >= self._ping_s:
                await self._write(b": ping\n\n")
            else:
                await asyncio.sleep(self._ping_s - silence)

    async def _write(self, body: bytes, more: bool = True) -> None:
        async with self._lock:
            try:
                async with asyncio.timeout(self._send_timeout_s):
                    await self._send_now(body, more)
            except TimeoutError as error:
                raise ClientGone from error
            self._last_sent = asyncio.get_running_loop().time()

    async def _send_now(self, body: bytes, more: bool) -> None:
        if not self._started:
            self._started = True
            self._may_ping.set()
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
