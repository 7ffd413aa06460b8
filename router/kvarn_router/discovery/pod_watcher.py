"""Keeps a set of pods true, in a thread of its own: list -> watch until a re-list is due -> list.

A watch that breaks goes on from its last version; one that expired (410) leads to a new list. The re-list in fixed
intervals heals what a watch has lost without saying so.
"""

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from kvarn_router.discovery.backoff import Backoff
from kvarn_router.discovery.endpoint import Endpoint
from kvarn_router.discovery.pod_api import Expired, PodApiError, PodEvent, PodList
from kvarn_router.discovery.pod_set import PodSet

logger = logging.getLogger("kvarn.router.discovery")

_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)


class Pods(Protocol):
    """What the watcher needs of `PodApi`."""

    def list(self) -> PodList: ...

    def watch(self, resource_version: str, duration_s: float) -> Generator[PodEvent, None, None]: ...

    def interrupt(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Timing:
    relist_interval_s: float
    backoff: Backoff
    clock: Callable[[], float]


class PodWatcher:
    def __init__(
        self, api: Pods, pods: PodSet, timing: Timing, publish: Callable[[tuple[Endpoint, ...]], None]
    ) -> None:
        self._api = api
        self._pods = pods
        self._timing = timing
        self._publish = publish
        self._published: tuple[Endpoint, ...] | None = None
        self._stopped = threading.Event()

    def run(self) -> None:
        """The body of the thread: until `stop`."""
        while not self._stopped.is_set():
            try:
                listed = self._api.list()
                self._pods.reset(listed.pods, listed.resource_version)
                self._tell()
                self._follow(self._timing.clock() + self._timing.relist_interval_s)
            except Expired as error:
                logger.info("pod watch expired", extra={"reason": str(error)})
                self._wait()
            except PodApiError as error:
                self._failed(str(error))
            except _MALFORMED as error:
                self._failed(f"not a pod list: {type(error).__name__}: {error}")

    def stop(self) -> None:
        """From another thread. `run` returns soon, at the latest after the timeout of one request."""
        self._stopped.set()
        self._api.interrupt()

    def _follow(self, due: float) -> None:
        """Watch until the next list is due. Raises Expired, and for malformed events what `PodSet.apply` raises."""
        while not self._stopped.is_set() and (left_s := due - self._timing.clock()) > 0:
            heard = False
            try:
                # A watch left early gives its connection back at once, not at the next garbage collection.
                with closing(self._api.watch(self._pods.resource_version, left_s)) as events:
                    for event in events:
                        self._pods.apply(event.kind, event.pod)
                        heard = True
                        self._timing.backoff.succeeded()
                        self._tell()
                        if self._stopped.is_set() or self._timing.clock() >= due:
                            break
            except Expired:
                raise
            except PodApiError as error:
                self._failed(str(error))
                continue
            if heard or self._timing.clock() >= due:
                self._timing.backoff.succeeded()
            else:
                # A server that ends every watch at once would else be asked without pause.
                self._wait()

    def _tell(self) -> None:
        endpoints = self._pods.endpoints
        if endpoints != self._published:
            self._published = endpoints
            self._publish(endpoints)

    def _failed(self, reason: str) -> None:
        if self._stopped.is_set():
            return
        # Loud once per outage: the next tries say nothing new.
        level = logging.DEBUG if self._timing.backoff.failures else logging.WARNING
        logger.log(level, "pods not followed, the last known set stays", extra={"reason": reason})
        self._wait()

    def _wait(self) -> None:
        self._stopped.wait(self._timing.backoff.next_wait_s())
