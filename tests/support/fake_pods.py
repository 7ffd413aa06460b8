"""An API server that knows only pods of one namespace: list and watch with the JSON of Kubernetes, on loopback."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SELECTOR = "app=worker"


class Dropped(Exception):
    """The connection breaks in the middle of a watch."""


def make_pod(uid: str, port: int, ip: str = "127.0.0.1", ready: bool = True, **metadata: str) -> dict[str, object]:
    return {
        "metadata": {"name": f"pod-{uid}", "uid": uid, **metadata},
        "spec": {
            "containers": [
                {"name": "sidecar", "ports": [{"name": "metrics", "containerPort": 9}]},
                {"name": "worker", "ports": [{"name": "grpc", "containerPort": port}]},
            ]
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


@dataclass
class FakePods:
    pods: dict[str, dict[str, object]] = field(default_factory=dict)
    version: int = 100
    log: list[tuple[int, dict[str, object]]] = field(default_factory=list)
    watchers: set[asyncio.Queue[dict[str, object] | None]] = field(default_factory=set)
    requests: Counter[str] = field(default_factory=Counter)
    watched_from: list[str] = field(default_factory=list)
    selectors: set[str] = field(default_factory=set)
    fail_next: int = 0
    """So many requests get a 500."""

    expired: bool = False
    """Watches are answered 410 until the next list."""

    def put(self, pod: dict[str, object], silently: bool = False) -> None:
        uid = str(pod["metadata"]["uid"])  # type: ignore[index]
        kind = "MODIFIED" if uid in self.pods else "ADDED"
        self.pods[uid] = pod
        self._record(kind, pod, silently)

    def delete(self, uid: str, silently: bool = False) -> None:
        self._record("DELETED", self.pods.pop(uid), silently)

    def bookmark(self) -> None:
        self._record("BOOKMARK", {"metadata": {}}, silently=False)

    def expire(self) -> None:
        self.expired = True
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        self._send({"type": "ERROR", "object": status})

    def drop(self) -> None:
        """Break every watch that runs."""
        self._send(None)

    def _record(self, kind: str, pod: dict[str, object], silently: bool) -> None:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)  # type: ignore[index]
        event = {"type": kind, "object": json.loads(json.dumps(pod))}
        if not silently:
            self.log.append((self.version, event))
            self._send(event)

    def _send(self, event: dict[str, object] | None) -> None:
        for watcher in self.watchers:
            watcher.put_nowait(event)

    async def answer(self, request: Request) -> Response:
        query = request.query_params
        verb = "watch" if query.get("watch", "").lower() == "true" else "list"
        self.requests[verb] += 1
        self.selectors.add(query["labelSelector"])
        if self.fail_next:
            self.fail_next -= 1
            return JSONResponse({"kind": "Status", "code": 500}, 500)
        if verb == "watch":
            self.watched_from.append(query["resourceVersion"])
            if self.expired:
                return JSONResponse({"kind": "Status", "code": 410}, 410)
            return StreamingResponse(self._watch(int(query["resourceVersion"])), media_type="application/json")
        self.expired = False
        return JSONResponse({"items": list(self.pods.values()), "metadata": {"resourceVersion": str(self.version)}})

    async def _watch(self, version: int) -> AsyncIterator[bytes]:
        queue: asyncio.Queue[dict[str, object] | None] = asyncio.Queue()
        for at, event in self.log:
            if at > version:
                queue.put_nowait(event)
        self.watchers.add(queue)
        try:
            while True:
                event = await queue.get()
                if event is None:
                    yield b'{"type": "ADDED", "obj'
                    raise Dropped
                yield json.dumps(event).encode() + b"\n"
                if event["type"] == "ERROR":
                    return
        finally:
            self.watchers.discard(queue)


@asynccontextmanager
async def served_pods(pods: FakePods, port: int = 0) -> AsyncIterator[str]:
    """Base URL."""
    app = Starlette(routes=[Route("/api/v1/namespaces/here/pods", pods.answer)])
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, access_log=False, lifespan="off")
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(), name="api-server")
    try:
        while not server.started:  # uvicorn sets no event
            assert not task.done()
            await asyncio.sleep(0.002)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        pods.drop()
        server.should_exit = True
        await task
