"""The EngineError tree as gRPC statuses, both directions. The one place where the two meet.

Every non-OK status carries an ErrorDetail in trailing metadata, so the far side raises the very error raised here.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from kvarn_proto.v1 import common_pb2

from kvarn_engine.core.errors import (
    Draining,
    EngineError,
    EngineFailure,
    HandoffError,
    InvalidRequest,
    LayoutMismatch,
    Overloaded,
    UnsupportedModel,
)

ERROR_DETAIL_KEY = "kvarn-error-bin"
REQUEST_ID_KEY = "x-request-id"

_CODES: Mapping[type[EngineError], grpc.StatusCode] = MappingProxyType(
    {
        InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
        LayoutMismatch: grpc.StatusCode.FAILED_PRECONDITION,
        Overloaded: grpc.StatusCode.RESOURCE_EXHAUSTED,
        Draining: grpc.StatusCode.UNAVAILABLE,
        HandoffError: grpc.StatusCode.ABORTED,
        UnsupportedModel: grpc.StatusCode.UNIMPLEMENTED,
        EngineFailure: grpc.StatusCode.INTERNAL,
    }
)
_BY_REASON: Mapping[str, type[EngineError]] = MappingProxyType({kind.__name__: kind for kind in _CODES})


class ErrorStatus(NamedTuple):
    code: grpc.StatusCode
    message: str
    trailing_metadata: tuple[tuple[str, bytes], ...]


def status_of(error: EngineError) -> ErrorStatus:
    """What a servicer aborts its call with."""
    kind = next((kind for kind in type(error).__mro__ if kind in _CODES), EngineFailure)
    detail = common_pb2.ErrorDetail(reason=kind.__name__, message=str(error), retryable=error.retryable)
    if isinstance(error, InvalidRequest):
        detail.field = error.field
    if isinstance(error, Overloaded):
        detail.retry_after_s = error.retry_after_s
    return ErrorStatus(_CODES[kind], str(error), ((ERROR_DETAIL_KEY, detail.SerializeToString()),))


def error_from_call(error: grpc.aio.AioRpcError) -> EngineError:
    """The EngineError a peer raised; a broken or unknown status becomes EngineFailure, which is retryable."""
    detail = error_detail(error)
    if detail is None:
        return EngineFailure(f"call ended with {error.code().name}: {error.details()}")
    if detail.reason == InvalidRequest.__name__:
        return InvalidRequest(detail.field, detail.message)
    if detail.reason == Overloaded.__name__:
        return Overloaded(detail.message, detail.retry_after_s)
    if detail.reason == LayoutMismatch.__name__:
        return _layout_mismatch(detail.message)
    return _BY_REASON.get(detail.reason, EngineFailure)(detail.message)


def error_detail(error: grpc.aio.AioRpcError) -> common_pb2.ErrorDetail | None:
    """None when the status did not come from a Kvarn servicer (connection lost, deadline, a proxy's answer)."""
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for key, value in metadata:
        if key == ERROR_DETAIL_KEY and isinstance(value, bytes):
            try:
                return common_pb2.ErrorDetail.FromString(value)
            except DecodeError:
                return None
    return None


def _layout_mismatch(message: str) -> LayoutMismatch:
    """Rebuilt with the peer's own words: its message already holds both fingerprints."""
    mismatch = LayoutMismatch("", "")
    mismatch.args = (message,)
    return mismatch
