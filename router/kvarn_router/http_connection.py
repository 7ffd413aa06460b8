"""One client's HTTP connection: uvicorn's, with bounds on what comes before a request. Made by uvicorn for each.

Bodies are bounded by the API, which reads them; headers are read before anything of ours runs.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class HttpConnection(HttpToolsProtocol):
    header_timeout_s = 60.0
    """For all headers of a request, and for the first one of a connection."""

    max_header_bytes = 64 * 1024
    keep_alive_s = 90.0
    """Longer than clients and load balancers keep an idle connection, mostly 60 s: who closes one first must be the one
    that may send the next request on it, or that request is lost."""

    _header_bytes = 0
    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.timeout_keep_alive = self.keep_alive_s  # type: ignore[assignment]  # uvicorn's settings know whole seconds
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._header_timer is not None:
            self._header_bytes += len(data)
            if self._header_bytes > self.max_header_bytes:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._expect_headers()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_timer()
        super().on_headers_complete()

    def _expect_headers(self) -> None:
        self._stop_timer()
        self._header_bytes = 0
        self._header_timer = self.loop.call_later(self.header_timeout_s, self._refuse, b"")

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, answer: bytes) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
