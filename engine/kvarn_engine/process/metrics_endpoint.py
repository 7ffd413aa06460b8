"""`/metrics`, `/ready` and `/live` of one process, on a port and threads of its own so that a busy event loop answers.

Called by each composition root with the registry it built and, where it has one, what answers the probes. It does not
know what is measured, nor what makes a process ready.
"""

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from socketserver import TCPServer, ThreadingMixIn
from typing import Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, make_wsgi_app

_CLIENT_TIMEOUT_S = 10.0
"""A client that sends no request must not hold a thread for ever."""

_POLL_S = 0.05
"""How long `close` may have to wait for the serving thread to look up."""


class Probes(Protocol):
    """Asked on the endpoint's threads. An answer is one word that says why not, empty when all is well."""

    def ready(self) -> str: ...

    def live(self) -> str: ...


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    port: int
    """0 when metrics are off."""

    server: WSGIServer | None = None
    thread: threading.Thread | None = None

    def close(self) -> None:
        """Release the port. Safe to call when metrics are off."""
        if self.server is not None and self.thread is not None:
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()


def serve_metrics(
    registry: CollectorRegistry, host: str, port: int, probes: Probes | None = None
) -> MetricsEndpoint:
    """Serve until `close`. Port 0 turns it off. Raises OSError when the port is taken."""
    if port == 0:
        return MetricsEndpoint(port=0)
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    server_class = _Server6 if family == socket.AF_INET6 else _Server
    server = server_class((str(address[0]), port), _Handler)
    server.set_app(_application(registry, probes))
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_S,), name="kvarn-metrics", daemon=True)
    thread.start()
    return MetricsEndpoint(port=port, server=server, thread=thread)


def _application(registry: CollectorRegistry, probes: Probes | None) -> WSGIApplication:
    metrics: WSGIApplication = make_wsgi_app(registry)
    checks: dict[str, Callable[[], str]] = {} if probes is None else {"/ready": probes.ready, "/live": probes.live}

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> object:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            return metrics(environ, start_response)
        if path in checks:
            reason = checks[path]()
            return _text(start_response, "503 Service Unavailable" if reason else "200 OK", reason or "ok")
        return _text(start_response, "404 Not Found", "not found")

    return answer  # type: ignore[return-value]  # an iterable of bytes on every path


def _text(start_response: StartResponse, status: str, word: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [f"{word}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Without the name lookup of the standard library, which can hang for seconds where DNS does not answer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _CLIENT_TIMEOUT_S

    def address_string(self) -> str:
        return str(self.client_address[0])

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds: not worth a line each."""
