"""kopf's part: which resources it follows and how. Its handlers do nothing but pass the event on.

Only low-level event handlers are registered, so kopf writes nothing into any object: no finalizer, no annotation, no
Event. Peering is off, since the Lease decides who acts; so is the observation of namespaces and CRDs, which would need
rights on the whole cluster.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import kopf

from kvarn_operator.cluster.kinds import Kind
from kvarn_operator.cluster.mirror import Resource

Sink = Callable[[Kind, str, Resource], None]
"""Gets the kind, the event's type (empty for an object of the first list) and the object."""

SERVER_TIMEOUT_S = 300
"""The API server ends a watch after this time, and kopf goes on from the last version."""

INACTIVITY_TIMEOUT_S = 70.0
"""Bookmarks come every minute: a watch silent for longer is dead."""


def build_registry(
    kinds: Sequence[Kind], sink: Sink, open_session: Callable[[], Awaitable[kopf.AiohttpSession]]
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    for kind in kinds:
        _follow(registry, kind, sink)

    @kopf.on.login(registry=registry)
    async def login(**_: object) -> kopf.AiohttpSession:
        return await open_session()

    return registry


def build_settings(kinds: Sequence[Kind], request_timeout_s: float) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = SERVER_TIMEOUT_S
    settings.watching.inactivity_timeout = INACTIVITY_TIMEOUT_S
    settings.watching.connect_timeout = request_timeout_s
    settings.watching.reconnect_backoff = 0.5
    settings.networking.request_timeout = 60.0
    settings.networking.connect_timeout = request_timeout_s
    settings.queueing.worker_limit = None  # a limit can lock it up while it lists
    for kind in kinds:
        if kind.selector:
            settings.watching.label_selectors[(kind.group, kind.version, kind.plural)] = kind.selector
    return settings


def _follow(registry: kopf.OperatorRegistry, kind: Kind, sink: Sink) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry)
    async def pass_on(event: Any, **_: object) -> None:
        resource = {"apiVersion": kind.api_version, "kind": kind.name, **event["object"]}
        sink(kind, event["type"] or "", resource)
