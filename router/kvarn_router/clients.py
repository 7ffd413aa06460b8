"""The router's side of the wire: one `Decode.Generate` call, and what its failures mean.

Used by `stream`, one `DecodeCall` for each attempt. Knows gRPC; does not know which failure is retried.
"""

import asyncio
import logging

import grpc
import grpc.aio
from kvarn_engine.core.errors import Draining, EngineError, InvalidRequest, LayoutMismatch, Overloaded
from kvarn_engine.core.ids import RequestId
from kvarn_engine.wire.status import REQUEST_ID_KEY, error_detail, error_from_call
from kvarn_proto.v1 import decode_pb2, decode_pb2_grpc

from kvarn_router.retry import Failure
from kvarn_router.workers import LiveWorker

logger = logging.getLogger("kvarn.router.clients")

STOP_DEADLINE_S = 5.0
"""A stop that takes longer is pointless: the choice has run on anyway."""

_BY_CODE = {
    grpc.StatusCode.INVALID_ARGUMENT: Failure.INVALID,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Failure.OVERLOADED,
    grpc.StatusCode.FAILED_PRECONDITION: Failure.MISMATCHED,
    grpc.StatusCode.INTERNAL: Failure.FAILED,
    grpc.StatusCode.UNIMPLEMENTED: Failure.FAILED,
}


class AttemptFailed(Exception):
    """One attempt is over without its end event."""

    def __init__(self, failure: Failure, message: str, field: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.failure = failure
        self.field = field
        self.retry_after_s = retry_after_s


class DecodeCall:
    """One running stream. Whoever opens it closes it; closing cancels the call on every hop behind it."""

    def __init__(self, worker: LiveWorker, request: decode_pb2.GenerateRequest) -> None:
        self._worker = worker
        self._request_id = RequestId(request.request_id)
        self._stub = decode_pb2_grpc.DecodeStub(worker.channel)  # type: ignore[no-untyped-call]  # generated code
        self._call = self._stub.Generate(request, metadata=((REQUEST_ID_KEY, request.request_id),))
        self._reading: asyncio.Timeout | None = None
        worker.on_lost.add(self._wake)

    async def read(self, idle_timeout_s: float) -> decode_pb2.GenerateEvent:
        """The next event. Raises AttemptFailed, at once when the worker leaves the table."""
        try:
            async with asyncio.timeout(idle_timeout_s) as self._reading:
                if self._worker.lost:
                    raise AttemptFailed(Failure.LOST, "the worker is gone")
                message = await self._read()
        except TimeoutError:
            if self._worker.lost:
                raise AttemptFailed(Failure.LOST, "the worker is gone") from None
            raise AttemptFailed(Failure.FROZEN, f"no event within {idle_timeout_s:g} s") from None
        finally:
            self._reading = None
        if not isinstance(message, decode_pb2.GenerateEvent):
            raise AttemptFailed(Failure.LOST, "the stream ended without its end event")
        return message

    async def stop_choice(self, choice: int) -> None:
        """Tell the worker that a choice is over. A failure shows on the stream itself, so it is only logged here."""
        request = decode_pb2.StopChoiceRequest(request_id=self._request_id, choice=choice)
        metadata = ((REQUEST_ID_KEY, self._request_id),)
        try:
            await self._stub.StopChoice(request, timeout=STOP_DEADLINE_S, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            fields = {"request_id": self._request_id, "code": error.code().name}
            logger.info("stop was not delivered", extra=fields)

    def close(self) -> None:
        self._worker.on_lost.discard(self._wake)
        self._call.cancel()

    async def _read(self) -> object:
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise failure_of(error) from error
        except asyncio.CancelledError:
            # grpc.aio reports a status CANCELLED sent by the peer as if this task had been cancelled.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise AttemptFailed(Failure.LOST, "the worker cancelled the stream") from None

    def _wake(self) -> None:
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())


def failure_of(error: grpc.aio.AioRpcError) -> AttemptFailed:
    if error_detail(error) is None:
        failure = _BY_CODE.get(error.code(), Failure.LOST)
        return AttemptFailed(failure, f"call ended with {error.code().name}: {error.details()}")
    return _failure_of_engine_error(error_from_call(error))


def _failure_of_engine_error(error: EngineError) -> AttemptFailed:
    match error:
        case InvalidRequest():
            return AttemptFailed(Failure.INVALID, str(error), field=error.field)
        case Overloaded():
            return AttemptFailed(Failure.OVERLOADED, str(error), retry_after_s=error.retry_after_s)
        case Draining():
            return AttemptFailed(Failure.DRAINING, str(error))
        case LayoutMismatch():
            return AttemptFailed(Failure.MISMATCHED, str(error))
        case _:
            return AttemptFailed(Failure.FAILED, str(error))
