"""What fake pods say of themselves: one endpoint for all workers of a test, and one for its router."""

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kvarn_operator.resources.labels import (
    COMPONENT_LABEL,
    METRICS_PORT,
    MODEL_SERVICE_LABEL,
    ROUTER_PORT,
    ROUTER_PORT_NAME,
)

from tests.cluster.support.kubectl import Resource

ADDRESS_ANNOTATION = "kvarn-bed/address"
IDLE_WORKER = {
    "kvarn_requests_in_flight": 0,
    "kvarn_running_requests": 0,
    'kvarn_kv_blocks{state="in_use"}': 0,
    'kvarn_kv_blocks{state="cached"}': 0,
    'kvarn_kv_blocks{state="total"}': 100,
}
IDLE_ROUTER = {"kvarn_router_requests_in_flight": 0, "kvarn_router_requests_held": 0}


@dataclass(slots=True)
class Readings:
    """May be changed at any time. Every worker says the same."""

    address: str
    worker: Mapping[str, float] = field(default_factory=lambda: IDLE_WORKER)
    router: Mapping[str, float] = field(default_factory=lambda: IDLE_ROUTER)

    def text(self, port: int) -> str:
        samples = self.worker if port == METRICS_PORT else self.router
        return "".join(f"{name} {value}\n" for name, value in samples.items())

    def busy(self, requests: int, blocks_in_use: int) -> None:
        """Each worker runs so many requests, which hold so many of its 100 blocks."""
        running = {"kvarn_requests_in_flight": requests, "kvarn_running_requests": requests}
        self.worker = {**IDLE_WORKER, **running, 'kvarn_kv_blocks{state="in_use"}': blocks_in_use}
        self.router = {**IDLE_ROUTER, "kvarn_router_requests_in_flight": requests}

    def held(self, requests: int) -> None:
        """So many wait at the router, and no worker has any."""
        waiting = {"kvarn_router_requests_in_flight": requests, "kvarn_router_requests_held": requests}
        self.worker, self.router = IDLE_WORKER, {**IDLE_ROUTER, **waiting}

    def idle(self) -> None:
        self.worker, self.router = IDLE_WORKER, IDLE_ROUTER

    def annotations(self) -> Mapping[str, str]:
        """Of pods whose address this is."""
        return {ADDRESS_ANNOTATION: self.address}

    def router_pod(self, model: str) -> Resource:
        ports = [{"name": ROUTER_PORT_NAME, "containerPort": ROUTER_PORT}]
        labels = {COMPONENT_LABEL: "router", MODEL_SERVICE_LABEL: model}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{model}-router", "labels": labels, "annotations": self.annotations()},
            "spec": {"containers": [{"name": "router", "image": "none", "ports": ports}]},
        }


@contextmanager
def served_readings() -> Iterator[Readings]:
    """On the ports that real pods have, so at an address of this test alone."""
    readings = Readings(f"127.{random.randrange(1, 250)}.{random.randrange(250)}.{random.randrange(2, 250)}")

    class Exposition(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = readings.text(self.server.server_address[1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Asked every few seconds."""

    servers = [ThreadingHTTPServer((readings.address, port), Exposition) for port in (METRICS_PORT, ROUTER_PORT)]
    for server in servers:
        threading.Thread(target=server.serve_forever, name="readings", daemon=True).start()
    try:
        yield readings
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
