"""Keeps the table of live workers true: one supervised task for each endpoint of a worker source.

    connect -> Describe -> admit -> Watch until it breaks or falls silent -> remove -> wait -> connect

A worker that renders text otherwise than we do is refused, with both fingerprints, and asked again later.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import grpc.aio
from kvarn_engine.core.ids import BlockHash, Incarnation, WorkerId
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.convert import layout_from_proto, load_from_proto
from kvarn_engine.wire.tls import TlsFiles
from kvarn_proto.v1 import common_pb2, worker_pb2, worker_pb2_grpc

from kvarn_router.discovery.endpoint import Endpoint, WorkerSource
from kvarn_router.followers import Followed, Followers
from kvarn_router.metrics import RoutingMetrics
from kvarn_router.routing.prefix_index import PrefixIndex, SequenceGap
from kvarn_router.workers import LiveWorker, Role, WorkerIdentity, WorkerTable

logger = logging.getLogger("kvarn.router.registration")

_ROLES = {common_pb2.ROLE_PREFILL: Role.PREFILL, common_pb2.ROLE_DECODE: Role.DECODE}


class _Ending(Enum):
    """Why one Watch stream is over."""

    GAP = auto()
    """A new snapshot is due."""

    GOODBYE = auto()
    """The worker closed it in good order."""

    LOST = auto()


class Refused(Exception):
    """This worker cannot serve here; the message says what differs."""


@dataclass(frozen=True, slots=True)
class RegistrationLimits:
    describe_timeout_s: float
    watch_silence_s: float
    """A worker that says nothing for this long is taken for lost; its load reports come far more often."""

    backoff_min_s: float = 0.1
    backoff_max_s: float = 0.5
    """Short, because a refused connection costs little and a worker that has just started should get work at once."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a worker must show to be let in."""

    render_fingerprint: str
    tls: TlsFiles | None = None
    """With them, a certificate too. Each new connection uses the files as they are then."""


class Registrar:
    def __init__(
        self,
        table: WorkerTable,
        index: PrefixIndex,
        metrics: RoutingMetrics,
        limits: RegistrationLimits,
        admission: Admission,
        on_failure: Callable[[str, BaseException | None], None] | None = None,
    ) -> None:
        self._table = table
        self._index = index
        self._metrics = metrics
        self._limits = limits
        self._admission = admission
        self._followers = Followers(self._follow, table, TaskOwner("registration", on_failure))

    def start(self, source: WorkerSource) -> None:
        self._followers.start(source)

    async def stop(self) -> None:
        await self._followers.stop()

    async def _follow(self, followed: Followed) -> None:
        address = followed.endpoint.address
        backoff_s = self._limits.backoff_min_s
        while not followed.vanished:
            try:
                async with open_channel(address, tls=self._admission.tls) as channel:
                    if await self._serve(followed, channel):
                        backoff_s = self._limits.backoff_min_s
            except grpc.aio.AioRpcError as error:
                # Once per outage: the next tries say nothing new.
                is_news = self._table.refuse(address, f"it does not answer ({error.code().name})")
                level = logging.INFO if is_news else logging.DEBUG
                logger.log(level, "waiting for worker", extra={"address": address, "code": error.code().name})
            except Refused as refusal:
                self._metrics.refused()
                level = logging.ERROR if self._table.refuse(address, str(refusal)) else logging.DEBUG
                logger.log(level, "worker refused", extra={"address": address, "reason": str(refusal)})
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, self._limits.backoff_max_s)

    async def _serve(self, followed: Followed, channel: grpc.aio.Channel) -> bool:
        """From Describe to the end of this incarnation. True when the worker was let in."""
        stub = worker_pb2_grpc.WorkerStub(channel)  # type: ignore[no-untyped-call]  # generated code
        description = await stub.Describe(worker_pb2.DescribeRequest(), timeout=self._limits.describe_timeout_s)
        identity = self._admit(followed.endpoint, description)
        incarnation = identity.incarnation
        worker = LiveWorker(
            identity,
            channel,
            load_from_proto(description.load),
            draining=description.draining,
            cordoned=followed.cordoned,
        )
        self._table.add(worker)
        followed.worker = worker
        logger.info("worker registered", extra=_fields(identity))
        try:
            while (ending := await self._watch(stub, incarnation)) is _Ending.GAP:
                self._metrics.watch_gap()
            if ending is _Ending.GOODBYE:
                # Closing the channel would cut the answers that the worker still finishes.
                self._table.leave(incarnation)
                await worker.wait_idle()
        finally:
            followed.worker = None
            self._table.remove(incarnation)
            self._index.forget(incarnation)
            logger.info("worker left", extra=_fields(identity))
        return True

    async def _watch(self, stub: worker_pb2_grpc.WorkerStub, incarnation: Incarnation) -> _Ending:
        """Follow one Watch stream to its end."""
        call = stub.Watch(worker_pb2.WatchRequest())
        try:
            while True:
                async with asyncio.timeout(self._limits.watch_silence_s):
                    event = await call.read()
                if not isinstance(event, worker_pb2.WatchEvent):
                    return _Ending.GOODBYE
                if event.incarnation != incarnation:
                    return _Ending.LOST
                self._take(incarnation, event)
        except SequenceGap as gap:
            logger.warning("cache events have a gap", extra={"incarnation": incarnation, "reason": str(gap)})
            return _Ending.GAP
        except TimeoutError:
            logger.warning("worker fell silent", extra={"incarnation": incarnation})
            return _Ending.LOST
        except grpc.aio.AioRpcError as error:
            logger.warning("watch broke", extra={"incarnation": incarnation, "code": error.code().name})
            return _Ending.LOST
        except asyncio.CancelledError:
            # grpc.aio reports a status CANCELLED sent by the peer as if this task had been cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return _Ending.LOST
        finally:
            call.cancel()

    def _take(self, incarnation: Incarnation, event: worker_pb2.WatchEvent) -> None:
        match event.WhichOneof("event"):
            case "snapshot":
                self._index.reset(incarnation, event.sequence, map(BlockHash, event.snapshot.hashes))
            case "delta":
                stored, removed = map(BlockHash, event.delta.stored), map(BlockHash, event.delta.removed)
                self._index.apply(incarnation, event.sequence, stored, removed)
            case "load":
                self._table.heard(incarnation, load_from_proto(event.load), event.load.draining)
                return
        self._table.heard(incarnation, None, None)

    def _admit(self, endpoint: Endpoint, description: worker_pb2.DescribeResponse) -> WorkerIdentity:
        """Raises Refused. All workers of one router share one render fingerprint; layouts may be several."""
        if endpoint.worker_id not in (None, description.worker_id):
            raise Refused(f"worker {description.worker_id} answers at the address of {endpoint.worker_id}")
        role = _ROLES.get(description.role)
        if role is None:
            raise Refused(f"worker {description.worker_id} has no role this router knows")
        expected = self._admission.render_fingerprint
        if description.render_fingerprint != expected:
            raise Refused(
                f"render fingerprint {description.render_fingerprint} of {role.value} worker {description.worker_id} "
                f"does not match this router's {expected}"
            )
        layout = layout_from_proto(description.layout)
        if layout.fingerprint != description.layout_fingerprint:
            raise Refused(
                f"layout fingerprint {description.layout_fingerprint} of {role.value} worker {description.worker_id} "
                f"does not follow from its layout, which gives {layout.fingerprint}"
            )
        return WorkerIdentity(
            worker_id=WorkerId(description.worker_id),
            incarnation=Incarnation(description.incarnation),
            role=role,
            address=endpoint.address,
            layout=layout,
            layout_fingerprint=layout.fingerprint,
            render_fingerprint=description.render_fingerprint,
            max_model_len=description.max_model_len,
            vocab_size=description.vocab_size,
        )


def _fields(identity: WorkerIdentity) -> dict[str, str]:
    return {
        "worker": identity.worker_id,
        "role": identity.role.value,
        "incarnation": identity.incarnation,
        "address": identity.address,
    }
