"""Scrapes workers and routers over HTTP and keeps the last readings of each model. Runs while the operator leads.

Models whose scaling or drains depend on the readings are scraped at every tick and reconciled after it; the others now
and then, for their status. A pod that does not answer is left alone for a growing time.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from kvarn_operator.cluster.demand import DemandWindow
from kvarn_operator.cluster.exposition import BadExposition, RouterReading, read_router, read_worker
from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL
from kvarn_operator.cluster.mirror import Mirror, ServiceKey
from kvarn_operator.cluster.scrape_plan import Part, Target, needs_fast, targets
from kvarn_operator.reconcile.observed import Readings, WorkerReading
from kvarn_operator.scaling.spec import PodName

logger = logging.getLogger("kvarn.operator.sampler")

NO_READINGS = Readings()


@dataclass(frozen=True, slots=True)
class SampleTimes:
    fast_s: float = 5.0
    slow_s: float = 30.0
    timeout_s: float = 2.0
    concurrency: int = 32
    longest_rest_s: float = 60.0
    """A pod that never answers is asked this often."""


@dataclass(slots=True)
class _Service:
    window: DemandWindow = field(default_factory=DemandWindow)
    readings: Readings = NO_READINGS
    due: float = 0.0


@dataclass(slots=True)
class _Rest:
    until: float = 0.0
    failures: int = 0


class Sampler:
    def __init__(
        self,
        mirror: Mirror,
        times: SampleTimes,
        on_sampled: Callable[[ServiceKey], None],
        clock: Callable[[], float] = time.time,
        pace: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_sampled` hears of services whose decisions wait for readings. Readings are dated by the planner's clock,
        wall time, which may be set back; `pace` says when to ask."""
        self._mirror = mirror
        self._times = times
        self._on_sampled = on_sampled
        self._clock = clock
        self._pace = pace
        self._services: dict[ServiceKey, _Service] = {}
        self._rests: dict[str, _Rest] = {}
        self._slots = asyncio.Semaphore(times.concurrency)

    def readings(self, key: ServiceKey) -> Readings:
        """The last of the pods that are still there."""
        service = self._services.get(key)
        if service is None:
            return NO_READINGS
        here = {str(pod["metadata"]["name"]) for pod in self._mirror.of(key, POD)}
        workers = {name: reading for name, reading in service.readings.workers.items() if name in here}
        return Readings(workers, service.readings.demand)

    async def run(self) -> None:
        """Until cancelled."""
        async with self._client() as client:
            while True:
                started = self._pace()
                await self.tick(client)
                await asyncio.sleep(max(self._times.fast_s / 5, started + self._times.fast_s - self._pace()))

    async def tick(self, client: httpx.AsyncClient) -> None:
        """Scrape what is due."""
        now = self._pace()
        keys = self._mirror.services()
        self._services = {key: self._services.get(key, _Service()) for key in keys}
        due = [key for key in keys if self._is_due(key, now)]
        await asyncio.gather(*(self._sample(client, key, now) for key in due))
        self._prune(keys)

    def _client(self) -> httpx.AsyncClient:
        timeout = httpx.Timeout(self._times.timeout_s)
        limits = httpx.Limits(max_connections=self._times.concurrency, max_keepalive_connections=0)
        return httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False)

    def _is_due(self, key: ServiceKey, now: float) -> bool:
        return now >= self._services[key].due or self._needs_fast(key)

    def _needs_fast(self, key: ServiceKey) -> bool:
        return needs_fast(self._mirror.of(key, WORKER_POOL), self._mirror.of(key, POD))

    async def _sample(self, client: httpx.AsyncClient, key: ServiceKey, now: float) -> None:
        service = self._services[key]
        service.due = now + self._times.slow_s
        found = targets(self._mirror.of(key, POD))
        answers = dict(zip(found, await asyncio.gather(*(self._scrape(client, each) for each in found)), strict=True))
        workers = {PodName(at.name): got for at, got in answers.items() if isinstance(got, WorkerReading)}
        routers = {at.uid: got for at, got in answers.items() if isinstance(got, RouterReading)}
        service.window.keep({target.uid for target in found})
        for uid, reading in routers.items():
            service.window.add(uid, reading)
        complete = all(answer is not None for target, answer in answers.items() if target.must_answer)
        demand = service.window.demand(routers, self._percentile(key)) if complete else None
        service.readings = Readings(workers, demand)
        if self._needs_fast(key):
            self._on_sampled(key)

    async def _scrape(self, client: httpx.AsyncClient, target: Target) -> WorkerReading | RouterReading | None:
        rest = self._rests.setdefault(target.uid, _Rest())
        if self._pace() < rest.until:
            return None
        try:
            async with self._slots:
                asked_at = self._clock()  # the answer is at least as new, which drains rely on
                response = await client.get(target.url)
            response.raise_for_status()
            read = read_worker if target.part is Part.WORKER else read_router
            reading = read(response.text, asked_at)
        except (httpx.HTTPError, BadExposition) as error:
            rest.failures += 1
            pause = min(self._times.longest_rest_s, self._times.fast_s * 2.0 ** min(rest.failures - 1, 16))
            rest.until = self._pace() + (0.0 if rest.failures == 1 else pause)
            logger.debug("no metrics", extra={"pod": target.name, "reason": f"{type(error).__name__}: {error}"})
            return None
        self._rests[target.uid] = _Rest()
        return reading

    def _percentile(self, key: ServiceKey) -> float:
        objectives = [(each.get("spec") or {}).get("slo") or {} for each in self._mirror.of(key, MODEL_SERVICE)]
        value = objectives[0].get("percentile") if objectives else None
        return float(value) if isinstance(value, int | float) and 0 < value < 100 else 95.0

    def _prune(self, keys: tuple[ServiceKey, ...]) -> None:
        here = {str(pod["metadata"]["uid"]) for key in keys for pod in self._mirror.of(key, POD)}
        self._rests = {uid: rest for uid, rest in self._rests.items() if uid in here}
