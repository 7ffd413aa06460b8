"""The Worker service: identity, the cache and load feed for routers, and draining. The same for both roles.

Called by routers and by operators. It never touches a request; it reads the engine and closes the gate.
"""

import asyncio
import logging
from collections.abc import Coroutine

import grpc.aio
from kvarn_proto.v1 import worker_pb2, worker_pb2_grpc

from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.serving.protocol import BlockDelta, CacheFeed, CacheSnapshot, Engine
from kvarn_engine.serving.worker_errors import errors_as_status
from kvarn_engine.serving.worker_identity import WorkerIdentity
from kvarn_engine.serving.worker_requests import RequestGate
from kvarn_engine.wire.convert import layout_to_proto, load_to_proto

logger = logging.getLogger("kvarn.worker")

WatchContext = grpc.aio.ServicerContext[worker_pb2.WatchRequest, worker_pb2.WatchEvent]
DescribeContext = grpc.aio.ServicerContext[worker_pb2.DescribeRequest, worker_pb2.DescribeResponse]
DrainContext = grpc.aio.ServicerContext[worker_pb2.DrainRequest, worker_pb2.DrainResponse]


class WorkerService(worker_pb2_grpc.WorkerServicer):
    def __init__(
        self, identity: WorkerIdentity, engine: Engine, gate: RequestGate, load_report_interval_s: float
    ) -> None:
        self._identity = identity
        self._engine = engine
        self._gate = gate
        self._interval_s = load_report_interval_s
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End every Watch stream, so that the server can stop without cutting them."""
        self._closing.set()

    async def Describe(
        self, request: worker_pb2.DescribeRequest, context: DescribeContext
    ) -> worker_pb2.DescribeResponse:
        layout = self._engine.layout
        return worker_pb2.DescribeResponse(
            worker_id=self._identity.worker_id,
            incarnation=self._identity.incarnation,
            role=self._identity.role,
            model=self._identity.model,
            layout=layout_to_proto(layout),
            layout_fingerprint=layout.fingerprint,
            render_fingerprint=self._identity.render_fingerprint,
            max_model_len=self._engine.max_model_len,
            draining=self._gate.draining,
            load=load_to_proto(self._engine.load(), self._gate.draining),
            version=self._identity.version,
            vocab_size=self._engine.vocab_size,
        )

    async def Watch(self, request: worker_pb2.WatchRequest, context: WatchContext) -> None:
        """Runs until the router leaves, the feed ends or the worker closes."""
        async with (
            errors_as_status(context),
            self._engine.watch_cache() as feed,
            TaskOwner("watch") as tasks,
        ):
            stream = _WatchStream(context, self._identity.incarnation, feed.snapshot.sequence)
            await stream.send_snapshot(feed.snapshot)
            ends = {
                tasks.spawn(_until_gone(stream.send_deltas(feed)), "deltas"),
                tasks.spawn(_until_gone(self._send_loads(stream)), "loads"),
                tasks.spawn(self._closing.wait(), "closing"),
            }
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)

    async def Drain(self, request: worker_pb2.DrainRequest, context: DrainContext) -> worker_pb2.DrainResponse:
        async with errors_as_status(context):
            if not request.timeout_s >= 0.0:
                raise InvalidRequest("timeout_s", f"timeout_s must not be below 0, got {request.timeout_s}")
        self._gate.close()
        drained = await self._gate.wait_idle(request.timeout_s)
        return worker_pb2.DrainResponse(drained=drained, remaining=self._gate.in_flight)

    async def _send_loads(self, stream: "_WatchStream") -> None:
        """One report at once, one per interval, and one the moment the gate closes."""
        while True:
            was_draining = self._gate.draining
            await stream.send_load(load_to_proto(self._engine.load(), was_draining))
            if was_draining:
                await asyncio.sleep(self._interval_s)
                continue
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._gate.closed()
            except TimeoutError:
                continue


async def _until_gone(sending: Coroutine[None, None, None]) -> None:
    """A watcher that hangs up during a write fails it; the cancellation of its call is on the way then."""
    try:
        await sending
    except grpc.aio.InternalError:
        logger.info("watcher is gone")


class _WatchStream:
    """One router's stream. Deltas and loads come from two tasks; the lock keeps writes and sequences in one order."""

    def __init__(self, context: WatchContext, incarnation: str, sequence: int) -> None:
        self._context = context
        self._incarnation = incarnation
        self._sequence = sequence
        self._lock = asyncio.Lock()

    async def send_snapshot(self, snapshot: CacheSnapshot) -> None:
        await self._write(worker_pb2.WatchEvent(snapshot=worker_pb2.BlockSet(hashes=snapshot.hashes)))

    async def send_deltas(self, feed: CacheFeed) -> None:
        async for delta in feed.deltas():
            await self._send_delta(delta)

    async def send_load(self, load: worker_pb2.Load) -> None:
        await self._write(worker_pb2.WatchEvent(load=load))

    async def _send_delta(self, delta: BlockDelta) -> None:
        event = worker_pb2.WatchEvent(delta=worker_pb2.BlockDelta(stored=delta.stored, removed=delta.removed))
        async with self._lock:
            self._sequence = delta.sequence
            await self._send(event)

    async def _write(self, event: worker_pb2.WatchEvent) -> None:
        async with self._lock:
            await self._send(event)

    async def _send(self, event: worker_pb2.WatchEvent) -> None:
        event.sequence = self._sequence
        event.incarnation = self._incarnation
        await self._context.write(event)
