"""`/live` and `/ready` for the kubelet, from a thread of their own: a hung event loop is to be seen, not to hang them.

`/live` is 200 while every part of the process gets on; `/ready` is 200 once the operator has seen the cluster, leading
or standing by. Both say why not.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kvarn_operator.cluster.progress import Progress


@dataclass(frozen=True, slots=True)
class HealthEndpoint:
    port: int
    server: ThreadingHTTPServer | None = None
    thread: threading.Thread | None = None

    def close(self) -> None:
        if self.server is not None and self.thread is not None:
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()


class Health:
    """What the probes are answered from."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.waits_for = "the first view of the cluster"
        """Empty once the operator is ready."""

    def live(self) -> tuple[bool, object]:
        stalls = self._progress.stalls()
        return not stalls, {"stalled": [asdict(stall) for stall in stalls]}

    def ready(self) -> tuple[bool, object]:
        return not self.waits_for, {"waits_for": self.waits_for}


def serve_health(health: Health, host: str, port: int) -> HealthEndpoint:
    """Serve until `close`. Port 0 turns the probes off. Raises OSError when the port is taken."""
    if port == 0:
        return HealthEndpoint(port=0)
    server = ThreadingHTTPServer((host, port), _handler({"/live": health.live, "/ready": health.ready}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    return HealthEndpoint(server.server_address[1], server, thread)


def _handler(answers: dict[str, Callable[[], tuple[bool, object]]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0

        def do_GET(self) -> None:
            answer = answers.get(self.path.partition("?")[0])
            if answer is None:
                self._send(HTTPStatus.NOT_FOUND, {"paths": sorted(answers)})
                return
            fine, content = answer()
            self._send(HTTPStatus.OK if fine else HTTPStatus.SERVICE_UNAVAILABLE, content)

        def log_message(self, format: str, *args: object) -> None:
            """Probes come every few seconds: not worth a line."""

        def _send(self, status: HTTPStatus, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
