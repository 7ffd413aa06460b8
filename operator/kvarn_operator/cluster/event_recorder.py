"""Writes Events about models and pools, as events.k8s.io/v1. One that cannot be written is counted, never fatal."""

import datetime
import hashlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.errors import ClusterError, NotFound, NotLeading
from kvarn_operator.cluster.event_ledger import EventKey, EventLedger, Known, Verdict
from kvarn_operator.cluster.kinds import EVENT
from kvarn_operator.cluster.mirror import Resource
from kvarn_operator.resources.labels import APPLY_MANAGER, MANAGED_BY

logger = logging.getLogger("kvarn.operator.events")

MAX_NOTE = 1024
MAX_NAME = 253


class Notice(NamedTuple):
    reason: str
    message: str
    warning: bool


class Meter(Protocol):
    def event_asked(self, reason: str) -> None: ...

    def event_lost(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who the Events come from."""

    instance: str
    controller: str = f"kvarn.dev/{MANAGED_BY}"


class EventRecorder:
    def __init__(
        self,
        api: Api,
        ledger: EventLedger,
        reporter: Reporter,
        meter: Meter,
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is for people to read, and may be set back; `pace` counts for the ledger."""
        self._api = api
        self._ledger = ledger
        self._reporter = reporter
        self._meter = meter
        self._clock = clock
        self._pace = pace

    async def record(self, about: Resource, notice: Notice) -> None:
        self._meter.event_asked(notice.reason)
        key = EventKey(about["metadata"]["uid"], *notice)
        verdict = self._ledger.judge(key, self._pace())
        if verdict is Verdict.KEEP_QUIET:
            return
        try:
            if verdict is Verdict.WRITE:
                await self._write(about, key)
            else:
                await self._count_up(about, key)
        except NotLeading:
            raise
        except ClusterError as error:
            self._ledger.lost(key)
            self._meter.event_lost()
            level = logging.DEBUG if isinstance(error, NotFound) else logging.WARNING
            logger.log(level, "event not written", extra={"reason": str(error)})

    async def _write(self, about: Resource, key: EventKey) -> None:
        body = event_body(about, key, self._reporter, self._clock())
        await self._api.create(EVENT, about["metadata"]["namespace"], body, APPLY_MANAGER)
        self._ledger.written(key, body["metadata"]["name"], self._pace())

    async def _count_up(self, about: Resource, key: EventKey) -> None:
        known = self._ledger.known(key)
        assert known is not None, "an event that nobody knows is counted up"
        namespace = about["metadata"]["namespace"]
        await self._api.merge(EVENT, namespace, known.name, series_patch(known, self._clock()), APPLY_MANAGER)
        self._ledger.written(key, known.name, self._pace())


def event_body(about: Resource, key: EventKey, reporter: Reporter, now: float) -> Any:
    metadata = about["metadata"]
    digest = hashlib.sha256(f"{key}{now}{reporter.instance}".encode()).hexdigest()[:16]
    name = f"{metadata['name'][: MAX_NAME - len(digest) - 1]}.{digest}"
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "eventTime": _micro_time(now),
        "reportingController": reporter.controller,
        "reportingInstance": reporter.instance[:128],
        "action": key.reason[:128],
        "reason": key.reason[:128],
        "type": "Warning" if key.warning else "Normal",
        "note": _shortened(key.message),
        "regarding": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata.get("resourceVersion", ""),
        },
    }


def series_patch(known: Known, now: float) -> Any:
    """A series has at least two; its first is the Event itself."""
    return {"series": {"count": max(2, known.count), "lastObservedTime": _micro_time(now)}}


def _micro_time(now: float) -> str:
    return datetime.datetime.fromtimestamp(now, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _shortened(message: str) -> str:
    """At most 1024 bytes, as the API has it."""
    data = message.encode()
    return message if len(data) <= MAX_NOTE else data[: MAX_NOTE - 3].decode(errors="ignore") + "..."
