"""The live workers of this router, keyed by incarnation. Registration writes, the dispatcher reads and claims.

One event loop owns the table: between a look and a claim there is no await, so load is counted atomically.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum

import grpc.aio
from kvarn_engine.core.ids import Incarnation, WorkerId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.serving.protocol import LoadReport


class Role(Enum):
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """What a worker said of itself at registration; true for the whole incarnation."""

    worker_id: WorkerId
    incarnation: Incarnation
    role: Role
    address: str
    layout: KvLayout
    layout_fingerprint: str
    render_fingerprint: str
    max_model_len: int
    vocab_size: int


@dataclass(slots=True, eq=False)
class LiveWorker:
    identity: WorkerIdentity
    channel: grpc.aio.Channel
    load: LoadReport
    draining: bool = False
    """It said so itself."""

    cordoned: bool = False
    """Discovery wants no new work on it: its endpoint drains or is gone."""

    suspect: bool = False
    """A request lost it; nothing has been heard since."""

    last_event_at: float = 0.0
    """By the table's clock."""

    in_flight: int = 0
    in_flight_tokens: int = 0
    lost: bool = False
    on_lost: set[Callable[[], None]] = field(default_factory=set)
    """Called once when the worker is lost, so that its streams move at once."""

    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_candidate(self) -> bool:
        return not (self.draining or self.cordoned or self.suspect or self.lost)

    @property
    def kv_usage(self) -> float:
        """0 to 1, from its last report; cached blocks that nobody uses do not count."""
        return self.load.blocks_in_use / self.load.blocks_total if self.load.blocks_total else 0.0

    @contextmanager
    def claim(self, tokens: int) -> Iterator[None]:
        """Count one request on this worker until the block is left."""
        self.in_flight += 1
        self.in_flight_tokens += tokens
        self._idle.clear()
        try:
            yield
        finally:
            self.in_flight -= 1
            self.in_flight_tokens -= tokens
            if not self.in_flight:
                self._idle.set()

    async def wait_idle(self) -> None:
        """Until no request of this router is on the worker."""
        if self.in_flight:
            await self._idle.wait()


class WorkerTable:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._workers: dict[Incarnation, LiveWorker] = {}
        self._refusals: dict[str, str] = {}
        self._changed = asyncio.Event()

    def add(self, worker: LiveWorker) -> None:
        worker.last_event_at = self._clock()
        self._workers[worker.identity.incarnation] = worker
        self._refusals.pop(worker.identity.address, None)
        self._announce()

    def leave(self, incarnation: Incarnation) -> None:
        """A worker said goodbye: no new requests for it, but the streams on it may end in peace."""
        if self._workers.pop(incarnation, None) is not None:
            self._announce()

    def remove(self, incarnation: Incarnation) -> None:
        """Take a lost worker out and move its streams. Unknown incarnations are ignored."""
        worker = self._workers.pop(incarnation, None)
        if worker is None:
            return
        worker.lost = True
        for callback in tuple(worker.on_lost):
            callback()
        self._announce()

    def heard(self, incarnation: Incarnation, load: LoadReport | None, draining: bool | None) -> None:
        """An event of this worker arrived: it is alive, and perhaps says how loaded it is."""
        worker = self._workers.get(incarnation)
        if worker is None:
            return
        was_candidate = worker.is_candidate
        worker.suspect = False
        worker.last_event_at = self._clock()
        if load is not None:
            worker.load = load
        if draining is not None:
            worker.draining = draining
        if worker.is_candidate != was_candidate:
            self._announce()

    def cordon(self, incarnation: Incarnation, cordoned: bool) -> None:
        """Discovery's word on whether a worker may get new work. Unknown incarnations are ignored."""
        worker = self._workers.get(incarnation)
        if worker is not None and worker.cordoned != cordoned:
            worker.cordoned = cordoned
            self._announce()

    def refuse(self, address: str, reason: str) -> bool:
        """Remember why no worker at an address is let in, for `/debug/workers`; whether that is news."""
        is_news = self._refusals.get(address) != reason
        self._refusals[address] = reason
        return is_news

    def forget_refusal(self, address: str) -> None:
        self._refusals.pop(address, None)

    @property
    def refusals(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self._refusals.items()))

    def get(self, incarnation: Incarnation) -> LiveWorker | None:
        return self._workers.get(incarnation)

    def all(self) -> tuple[LiveWorker, ...]:
        return tuple(self._workers.values())

    def candidates(self, role: Role) -> tuple[LiveWorker, ...]:
        return tuple(
            worker for worker in self._workers.values() if worker.identity.role is role and worker.is_candidate
        )

    def has_pair(self) -> bool:
        """Whether a prefill and a decode worker of one layout can take a request."""
        prefill, decode = (
            {worker.identity.layout_fingerprint for worker in self.candidates(role)}
            for role in (Role.PREFILL, Role.DECODE)
        )
        return not prefill.isdisjoint(decode)

    def max_model_len(self) -> int:
        """The largest that a decode worker offers now; of those that only finish, while no other is there; else 0."""
        decode = [worker for worker in self._workers.values() if worker.identity.role is Role.DECODE]
        offered = [worker.identity.max_model_len for worker in decode if worker.is_candidate]
        return max(offered or [worker.identity.max_model_len for worker in decode], default=0)

    def event_age_s(self, worker: LiveWorker) -> float:
        """Since anything was heard of it."""
        return self._clock() - worker.last_event_at

    async def wait_changed(self) -> None:
        """Until a worker is added or removed, or becomes or ceases to be a candidate."""
        await self._changed.wait()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
