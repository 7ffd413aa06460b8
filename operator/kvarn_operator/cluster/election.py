"""Takes part in the election by a Lease, for as long as the process runs. Owned by the composition root.

The loop acquires, renews and observes; `leads` is asked before every write of the operator. When a renewal does not
succeed in time the leading ends by the clock, whatever the API server does.
"""

import asyncio
import datetime
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.errors import ClusterError, Conflict, NotFound, NotLeading
from kvarn_operator.cluster.kinds import LEASE
from kvarn_operator.cluster.lease import Candidate, Step, lease_body, record_of
from kvarn_operator.reconcile.actions import Body
from kvarn_operator.resources.labels import APPLY_MANAGER

logger = logging.getLogger("kvarn.operator.election")


@dataclass(frozen=True, slots=True)
class LeaseName:
    namespace: str
    name: str


class Leadership:
    """Whether this process may act, for all who write. Without an election it always may."""

    def __init__(self, candidate: Candidate | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._candidate = candidate
        self._clock = clock

    def leads(self) -> bool:
        return self._candidate is None or self._candidate.leads(self._clock())

    def check(self) -> None:
        """Raises NotLeading."""
        if not self.leads():
            raise NotLeading("the lease is lost or was never held")


class Election:
    def __init__(
        self,
        api: Api,
        lease: LeaseName,
        candidate: Candidate,
        on_change: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` hears when leading begins and ends."""
        self._api = api
        self._lease = lease
        self._candidate = candidate
        self._on_change = on_change
        self._clock = clock
        self._led = False
        self._out_of_reach = False

    async def run(self) -> None:
        """Until cancelled. The lease stays held: `release` gives it back, once nothing acts any more."""
        while True:
            await self._try()
            self._tell()
            # Slept in pieces no longer than what is left of the leading, so that its end is told in time.
            await asyncio.sleep(self._candidate.pause_s(self._clock(), random.random()))
            self._tell()

    async def release(self) -> None:
        """Let another candidate take over at once. Best effort."""
        try:
            if self._candidate.leads(self._clock()):
                await self._write_release()
                logger.info("lease released")
        except ClusterError as error:
            logger.info("lease not released", extra={"reason": str(error)})

    async def _write_release(self) -> None:
        try:
            await self._write(Step.RENEW, release=True)
        except Conflict:
            # A renewal that was cut off with the loop may have been carried out all the same.
            await self._read()
            if self._candidate.leads(self._clock()):
                await self._write(Step.RENEW, release=True)

    async def _try(self) -> None:
        left_s = self._candidate.leads_until - self._clock()
        try:
            async with asyncio.timeout(left_s if left_s > 0 else None):
                await self._step()
        except TimeoutError:
            logger.warning("lease not renewed in time")
        except (Conflict, NotFound) as error:
            self._candidate.unsure()
            logger.info("lease written by another", extra={"reason": str(error)})
        except ClusterError as error:
            # Loud once per outage: the next tries say nothing new.
            level = logging.DEBUG if self._out_of_reach else logging.WARNING
            logger.log(level, "lease out of reach", extra={"reason": str(error)})
            self._out_of_reach = True
        else:
            self._out_of_reach = False

    async def _step(self) -> None:
        if self._candidate.must_read:
            await self._read()
        step = self._candidate.next_step(self._clock())
        if step is not Step.WAIT:
            await self._write(step)

    async def _read(self) -> None:
        try:
            record = record_of(await self._api.get(LEASE, self._lease.namespace, self._lease.name))
        except NotFound:
            record = None
        self._candidate.observed(record, self._clock())

    async def _write(self, step: Step, release: bool = False) -> None:
        started = self._clock()
        namespace, name = self._lease.namespace, self._lease.name
        body: Body = lease_body(namespace, name, self._candidate, _timestamp(), step, release)
        if step is Step.CREATE:
            written = await self._api.create(LEASE, namespace, body, APPLY_MANAGER)
        else:
            written = await self._api.replace(LEASE, namespace, name, body)
        self._candidate.written(record_of(written), started)

    def _tell(self) -> None:
        leads = self._candidate.leads(self._clock())
        if leads != self._led:
            self._led = leads
            logger.info("leading" if leads else "standing by", extra={"identity": self._candidate.identity})
            self._on_change(leads)


def _timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
