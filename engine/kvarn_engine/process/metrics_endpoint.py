"""`/metrics` of one process, on a port and threads of its own so that a busy event loop still answers.

Called by each composition root with the registry it built. It does not know what is measured.
"""

import threading
from dataclasses import dataclass
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server


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


def serve_metrics(registry: CollectorRegistry, host: str, port: int) -> MetricsEndpoint:
    """Serve until `close`. Port 0 turns metrics off. Raises OSError when the port is taken."""
    if port == 0:
        return MetricsEndpoint(port=0)
    server, thread = start_http_server(port, addr=host, registry=registry)
    return MetricsEndpoint(port=port, server=server, thread=thread)
