"""The verbs that the operator needs of the API server, for the event loop. Each is one call in a thread of this object.

It does not know what the objects mean, whether this process may act, or when to try again.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kvarn_operator.cluster.errors import NotFound
from kvarn_operator.cluster.kinds import Kind
from kvarn_operator.cluster.transport import APPLY_PATCH_TYPE, MERGE_PATCH_TYPE, Call, Json, Transport

Body = Mapping[str, Any]

PAGE = 500


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[Json, ...]
    version: str


class Api:
    def __init__(self, transport: Transport, threads: int, name: str) -> None:
        self._transport = transport
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=f"api-{name}")
        self._lists = ThreadPoolExecutor(1, thread_name_prefix=f"lists-{name}")

    def close(self) -> None:
        """Waits for calls that run, at most as long as their timeouts; not for lists, which change nothing."""
        self._lists.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._transport.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Json:
        return await self._send(Call("get", "GET", kind.item(namespace, name), kind.plural))

    async def list(self, kind: Kind, namespace: str) -> Listing:
        """All pages. An empty namespace means all. Raises Expired when the server forgets the list in between."""
        items: list[Json] = []
        query = {"limit": str(PAGE)} | ({"labelSelector": kind.selector} if kind.selector else {})
        while True:
            page = await self._send(Call("list", "GET", kind.collection(namespace), kind.plural, query=query))
            # Items of a list do not repeat what the list itself says.
            items += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page.get("items") or ()]
            if not (rest := page["metadata"].get("continue")):
                return Listing(tuple(items), page["metadata"].get("resourceVersion", ""))
            query = query | {"continue": rest}

    async def create(self, kind: Kind, namespace: str, body: Body, manager: str) -> Json:
        query = {"fieldManager": manager}
        return await self._send(Call("create", "POST", kind.collection(namespace), kind.plural, body, query=query))

    async def replace(self, kind: Kind, namespace: str, name: str, body: Body) -> Json:
        """The body's resourceVersion is the precondition."""
        return await self._send(Call("update", "PUT", kind.item(namespace, name), kind.plural, body))

    async def apply(self, kind: Kind, body: Body, manager: str, subresource: str = "") -> Json:
        """Server-side apply, forced: what the body holds becomes the manager's."""
        metadata = body["metadata"]
        path = kind.item(metadata["namespace"], metadata["name"], subresource)
        query = {"fieldManager": manager, "force": "true"}
        return await self._send(Call("apply", "PATCH", path, kind.plural, body, APPLY_PATCH_TYPE, query))

    async def merge(self, kind: Kind, namespace: str, name: str, body: Body, manager: str) -> Json:
        """Merge patch. A `metadata.uid` in the body is a precondition: Conflict when it differs."""
        path, query = kind.item(namespace, name), {"fieldManager": manager}
        return await self._send(Call("patch", "PATCH", path, kind.plural, body, MERGE_PATCH_TYPE, query))

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> Json:
        """Raises Conflict when the name belongs to another object by now."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        return await self._send(Call("delete", "DELETE", kind.item(namespace, name), kind.plural, options))

    async def served(self, api_version: str) -> frozenset[str]:
        """Plural names of the resources in a group version; empty when the server does not have it."""
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            content = await self._send(Call("get", "GET", path, "discovery"))
        except NotFound:
            return frozenset()
        return frozenset(resource["name"] for resource in content.get("resources") or ())

    async def _send(self, call: Call) -> Json:
        threads = self._lists if call.verb == "list" else self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, self._transport.send, call)
