"""A small API server on loopback: discovery, objects, watches, and the faults of a real one on demand.

    async with served_cluster(cluster) as url: ...

Faults hit requests that fit them; `hold_at` stops the n-th write after it was carried out and before it is answered,
which is where a process that dies leaves the cluster.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import uvicorn
from kubernetes import client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.kubernetes_store import KINDS, Answer, Change, Json, Served, Store, matches

POD, SERVICE, POOL, BUDGET, LEASE = (
    next(kind for kind in KINDS if kind.plural == plural)
    for plural in ("pods", "modelservices", "workerpools", "poddisruptionbudgets", "leases")
)
EVENT = next(kind for kind in KINDS if kind.group_version == "events.k8s.io/v1")

WRITES = ("create", "update", "patch", "apply", "delete")


@dataclass
class Fault:
    """Answers the next `times` requests of a verb and plural with a status, or breaks their connection (0)."""

    verb: str
    plural: str
    status: int
    times: int = 1
    retry_after: float | None = None
    reason: str = "Injected"


@dataclass
class Cluster:
    store: Store = field(default_factory=Store)
    faults: list[Fault] = field(default_factory=list)
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By verb and plural."""

    unserved: set[str] = field(default_factory=set)
    """Plurals that do not exist, as before a CRD is installed."""

    forbidden: set[str] = field(default_factory=set)
    """Namespaces in which the operator has no rights, as after they were deleted with its RoleBinding."""

    deaf: bool = False
    """Watches get nothing any more, and nobody says so."""

    oldest: int = 0
    """Watches from an older version are answered 410."""

    hold_at: int | None = None
    """The write with this number is carried out and never answered."""

    held: asyncio.Event = field(default_factory=asyncio.Event)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    """Breaks the connection of the write that is held."""

    writes: int = 0
    watchers: set["asyncio.Queue[Json | None]"] = field(default_factory=set)
    down: bool = False
    """Every answer breaks off."""

    def __post_init__(self) -> None:
        self.store.listeners.append(self._tell)
        self._by_watcher: dict[int, Callable[[Change], bool]] = {}

    def expire_watches(self) -> None:
        """Every watch ends with 410, and cannot go on from where it was."""
        self.oldest = self.store.version
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        for watcher in self.watchers:
            watcher.put_nowait({"type": "ERROR", "object": status})

    def drop_watches(self) -> None:
        for watcher in self.watchers:
            watcher.put_nowait(None)

    def forget_silently(self, kind: Served, namespace: str, name: str) -> None:
        """Delete an object without any watch being told."""
        self.deaf, before = True, self.deaf
        self.store.finish(kind, namespace, name)
        self.deaf = before

    def _tell(self, change: Change) -> None:
        if self.deaf:
            return
        for watcher in self.watchers:
            if self._by_watcher[id(watcher)](change):
                watcher.put_nowait({"type": change.type, "object": change.object})

    async def watch(self, kind: Served, namespace: str, request: Request) -> AsyncIterator[bytes]:
        selector, since = request.query_params.get("labelSelector", ""), int(request.query_params["resourceVersion"])

        def fits(change: Change) -> bool:
            here = change.kind == kind and namespace in ("", change.object["metadata"]["namespace"])
            return here and matches(change.object, selector)

        queue: asyncio.Queue[Json | None] = asyncio.Queue()
        for change in self.store.changes:
            if change.version > since and fits(change):
                queue.put_nowait({"type": change.type, "object": change.object})
        self.watchers.add(queue)
        self._by_watcher[id(queue)] = fits
        try:
            while (event := await queue.get()) is not None:
                yield json.dumps(event).encode() + b"\n"
                if event["type"] == "ERROR":
                    return
        finally:
            self.watchers.discard(queue)
            del self._by_watcher[id(queue)]

    async def answer(self, request: Request) -> Response:
        if self.down:
            return _broken()
        parts = request.url.path.strip("/").split("/")
        try:
            if (discovery := self._discover(parts)) is not None:
                return JSONResponse(discovery)
            return await self._answer(request, parts)
        except Answer as refusal:
            details = {"retryAfterSeconds": refusal.retry_after} if refusal.retry_after is not None else {}
            headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after is not None else {}
            status = {"kind": "Status", "code": refusal.code, "reason": refusal.reason, "message": str(refusal)}
            return JSONResponse({**status, "details": details}, refusal.code, headers)

    def _discover(self, parts: list[str]) -> Json | None:
        versions = sorted({kind.group_version for kind in KINDS if kind.plural not in self.unserved})
        if parts == ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        if parts == ["apis"]:
            return {"kind": "APIGroupList", "groups": [_group(each) for each in versions if "/" in each]}
        group_version = "/".join(parts[1:])
        if len(parts) != (2 if parts[0] == "api" else 3):
            return None
        kinds = [kind for kind in KINDS if kind.group_version == group_version and kind.plural not in self.unserved]
        if not kinds:
            raise Answer(404, "NotFound", group_version)
        return {"kind": "APIResourceList", "resources": [each for kind in kinds for each in _resources(kind)]}

    async def _answer(self, request: Request, parts: list[str]) -> Response:
        kind, rest = _kind(parts)
        if kind.plural in self.unserved:
            raise Answer(404, "NotFound", kind.plural)
        namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 2 else ""
        name, subresource = [*(rest[3:] if namespace else rest[1:]), "", ""][:2]
        verb = _verb(request, name)
        self.calls[(verb, kind.plural)] += 1
        if (fault := self._fault(verb, kind.plural)) is not None:
            if fault.status == 0:
                return _broken()
            raise Answer(fault.status, fault.reason, "injected", fault.retry_after)
        if namespace in self.forbidden:
            raise Answer(403, "Forbidden", f"no rights in {namespace}")
        if verb == "watch":
            if int(request.query_params["resourceVersion"]) < self.oldest:
                raise Answer(410, "Expired", "too old resource version")
            return StreamingResponse(self.watch(kind, namespace, request), media_type="application/json")
        body = json.loads(await request.body() or b"{}")
        code, content = self._carry_out(verb, kind, (namespace, name, subresource), body, request)
        if verb in WRITES:
            self.writes += 1
            if self.writes == self.hold_at:
                self.held.set()
                await self.let_go.wait()
                return _broken()
        return JSONResponse(content, code)

    def _fault(self, verb: str, plural: str) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and (fault.verb, fault.plural) == (verb, plural):
                fault.times -= 1
                return fault
        return None

    def _carry_out(
        self, verb: str, kind: Served, where: tuple[str, str, str], body: Json, request: Request
    ) -> tuple[int, Json]:
        namespace, name, subresource = where
        manager = request.query_params.get("fieldManager", "test")
        match verb:
            case "get":
                return 200, self.store.get(kind, namespace, name)
            case "list":
                items = self.store.list(kind, namespace, request.query_params.get("labelSelector", ""))
                metadata = {"resourceVersion": str(self.store.version)}
                return 200, {"kind": f"{kind.kind}List", "metadata": metadata, "items": items}
            case "create":
                return 201, self.store.create(kind, namespace, body, manager)
            case "update":
                return 200, self.store.replace(kind, namespace, name, body)
            case "apply":
                return 200, self.store.apply(kind, namespace, body, manager, subresource)
            case "patch":
                return 200, self.store.merge(kind, namespace, name, body, subresource)
            case _:
                uid = (body.get("preconditions") or {}).get("uid")
                return 200, self.store.delete(kind, namespace, name, uid)


def _broken() -> Response:
    """The connection ends in the middle of the answer."""

    async def half() -> AsyncIterator[bytes]:
        yield b'{"kind": '
        raise Dropped

    return StreamingResponse(half(), media_type="application/json", headers={"Content-Length": "1000"})


class Dropped(Exception):
    """Ends a connection; uvicorn logs it and nothing else."""


def _verb(request: Request, name: str) -> str:
    if request.method == "GET":
        watched = request.query_params.get("watch", "").lower() == "true"
        return "watch" if watched else "get" if name else "list"
    if request.method == "PATCH":
        return "apply" if "apply-patch" in request.headers["content-type"] else "patch"
    return {"POST": "create", "PUT": "update", "DELETE": "delete"}[request.method]


def _kind(parts: list[str]) -> tuple[Served, list[str]]:
    head = 2 if parts[0] == "api" else 3
    group_version, rest = "/".join(parts[1:head]), parts[head:]
    plural = rest[2] if rest[0] == "namespaces" and len(rest) > 2 else rest[0]
    for kind in KINDS:
        if (kind.group_version, kind.plural) == (group_version, plural):
            return kind, rest
    raise Answer(404, "NotFound", "/".join(parts))


def _group(group_version: str) -> Json:
    group, _, version = group_version.partition("/")
    entry = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _resources(kind: Served) -> list[Json]:
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    base = {"kind": kind.kind, "singularName": kind.kind.lower(), "namespaced": True, "verbs": verbs}
    names = [kind.plural, *(f"{kind.plural}/{each}" for each in kind.subresources)]
    return [{"name": name, **base} for name in names]


@asynccontextmanager
async def served_cluster(cluster: Cluster) -> AsyncIterator[str]:
    """Base URL."""
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(routes=[Route("/{path:path}", cluster.answer, methods=methods)])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off")
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
        cluster.drop_watches()
        server.should_exit = True
        await task


def configuration_for(url: str) -> client.Configuration:
    configuration = client.Configuration()
    configuration.host = url
    return configuration
