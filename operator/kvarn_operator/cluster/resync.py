"""Lists every kind in regular intervals: heals the mirror, and proves the watch. Runs also while standing by.

A deleted object whose event got lost leaves the mirror here. An object that the lists show again and again and the
watch does not deliver means a deaf watch, which liveness then reports. An API server that does not answer is no stall:
asking it is the progress. A namespace without rights, perhaps deleted, is told and holds no other one back.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.errors import ClusterError, Expired, Refused
from kvarn_operator.cluster.kinds import Kind
from kvarn_operator.cluster.mirror import Mirror
from kvarn_operator.cluster.progress import Progress
from kvarn_operator.cluster.watch_thread import Scope

logger = logging.getLogger("kvarn.operator.resync")


@dataclass(frozen=True, slots=True)
class ResyncTimes:
    interval_s: float = 60.0
    retry_s: float = 2.0
    """After a list that failed."""

    stall_s: float = 300.0
    """A kind without progress for this long stops the process, through liveness."""


class Resync:
    def __init__(
        self,
        api: Api,
        kinds: Sequence[Kind],
        scope: Scope,
        mirror: Mirror,
        progress: Progress,
        times: ResyncTimes,
    ) -> None:
        self._api = api
        self._kinds = tuple(kinds)
        self._scope = scope
        self._mirror = mirror
        self._progress = progress
        self._times = times
        self._missing: set[tuple[Kind, str]] = set()  # kinds and namespaces whose last list failed
        self._refused: set[str] = set()  # namespaces in which a list of this round was refused

    async def first(self) -> None:
        """Until every kind has been listed once, in every namespace that may be read, if there is any."""
        while True:
            if await self.once() and not self._refused.issuperset(self._scope.each()):
                return
            await asyncio.sleep(self._times.retry_s)

    async def run(self, on_round: Callable[[float], None]) -> None:
        """Until cancelled. `on_round` hears of each full round and the time until the next one."""
        while True:
            pause_s = self._times.interval_s * (0.9 + random.random() / 5)
            complete = await self.once()
            on_round(pause_s)
            await asyncio.sleep(pause_s if complete else self._times.retry_s)

    async def once(self) -> bool:
        """Whether all lists succeeded that are worth another try soon."""
        self._refused.clear()
        return all([await self._list(kind) for kind in self._kinds])

    async def _list(self, kind: Kind) -> bool:
        complete = True
        for namespace in self._scope.each():
            try:
                listing = await self._api.list(kind, namespace)
            except Expired:
                complete = False  # the list changed under our hands: again soon
                continue
            except Refused as error:
                self._refused.add(namespace)
                self._tell(kind, namespace, error)
                continue
            except ClusterError as error:
                self._tell(kind, namespace, error)
                complete = False
                continue
            self._missing.discard((kind, namespace))
            self._mirror.reset(kind, namespace, listing.items, listing.version)
        deaf_s = self._mirror.untold_for_s(kind)
        self._progress.mark(f"watch {kind.plural}", self._times.stall_s, lag_s=deaf_s)
        return complete

    def _tell(self, kind: Kind, namespace: str, error: ClusterError) -> None:
        """Loud once per outage: the next tries say nothing new."""
        level = logging.DEBUG if (kind, namespace) in self._missing else logging.WARNING
        where = {"kind": kind.plural, "namespace": namespace or "all"}
        logger.log(level, "not listed", extra={**where, "reason": str(error)})
        self._missing.add((kind, namespace))
