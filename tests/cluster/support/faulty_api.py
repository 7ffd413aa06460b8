"""A door before a real API server that misbehaves when told to: it refuses calls, ends watches as expired, keeps to
itself what they say. Behind it `kubectl proxy` has the administrator's rights.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Client
from tests.support.process import wait_until
from tests.support.stack import free_port

EXPIRED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
BUSY = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429}


class FaultyApi:
    """Its switches may be set from any thread."""

    def __init__(self, upstream: httpx.Client) -> None:
        self.upstream = upstream
        self.is_deaf = False
        """Watches stay open, and nothing comes of them."""

        self.refusals_left = 0
        self.expired = 0
        """Watches that were ended with 410."""

        self._age = 0
        self._lock = threading.Lock()

    def refuse(self, calls: int) -> None:
        """So many of the next ones, other than watches, are answered with 429."""
        with self._lock:
            self.refusals_left = calls

    def expire_watches(self) -> None:
        """Each that is open ends at its next event, as when the server has forgotten the version it goes on from."""
        with self._lock:
            self._age += 1

    @property
    def age(self) -> int:
        """A watch that began at a lower one has expired."""
        with self._lock:
            return self._age

    def count_expired(self) -> None:
        with self._lock:
            self.expired += 1

    def takes(self) -> bool:
        """One call; False where it is to be refused."""
        with self._lock:
            self.refusals_left -= int(refused := self.refusals_left > 0)
            return not refused


class _Door(BaseHTTPRequestHandler):
    api: FaultyApi

    def do_GET(self) -> None:
        if "watch=true" in self.path.lower() or "watch=1" in self.path:
            with suppress(ConnectionError, httpx.RemoteProtocolError):  # either side may leave
                self._watch()
        else:
            self._pass_on()

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.api.takes():
            self._answer(429, json.dumps(BUSY).encode(), {"Retry-After": "1"})
            return
        found = self.api.upstream.request(self.command, self.path, content=body, headers=self._headers())
        self._answer(found.status_code, found.content, {"Content-Type": found.headers["content-type"]})

    do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on

    def _watch(self) -> None:
        age = self.api.age
        with self.api.upstream.stream("GET", self.path, headers=self._headers(), timeout=None) as events:
            self.send_response(events.status_code)
            self.send_header("Content-Type", events.headers["content-type"])
            self.end_headers()
            for line in events.iter_lines():
                if self.api.age > age:
                    self.api.count_expired()
                    self._tell(json.dumps({"type": "ERROR", "object": EXPIRED}))
                    return
                if not self.api.is_deaf:
                    self._tell(line)

    def _tell(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\n")
        self.wfile.flush()

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _headers(self) -> dict[str, str]:
        wanted = ("Accept", "Content-Type")
        return {name: value for name in wanted if (value := self.headers.get(name))}

    def log_message(self, format: str, *args: object) -> None:
        """Tests print what they need."""


@contextmanager
def behind_faulty_api(cluster: Cluster, folder: Path) -> Iterator[tuple[FaultyApi, Cluster]]:
    """The door, and the cluster as those see it who go through it."""
    with _proxied(cluster) as address, httpx.Client(base_url=address, timeout=60) as upstream:
        api = FaultyApi(upstream)
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Door", (_Door,), {"api": api}))
        server.daemon_threads = True  # those that watch end with what they watch
        threading.Thread(target=server.serve_forever, name="faulty API", daemon=True).start()
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(_config(f"http://127.0.0.1:{server.server_address[1]}")))
        try:
            yield api, replace(cluster, client=Client(kubeconfig, cluster.client.programs))
        finally:
            server.shutdown()
            server.server_close()


@contextmanager
def _proxied(cluster: Cluster) -> Iterator[str]:
    port = free_port()
    command = ["kubectl", "proxy", f"--port={port}"]
    environment = cluster.client.environment()
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as child:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(address), "kubectl proxy answers")
            yield address
        finally:
            child.kill()


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _config(server: str) -> object:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "faulty",
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "faulty", "namespace": "default"}}],
        "clusters": [{"name": "faulty", "cluster": {"server": server}}],
        "users": [{"name": "faulty", "user": {}}],
    }
