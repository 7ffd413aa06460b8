"""An error raised on one side of a call is the error seen on the other."""

import grpc
import grpc.aio
import pytest
from kvarn_engine.core import errors
from kvarn_engine.wire.status import ERROR_DETAIL_KEY, error_from_call, status_of

ERRORS = [
    errors.InvalidRequest("prompt", "too long"),
    errors.LayoutMismatch("aa", "bb"),
    errors.Overloaded("queue is full", 2.5),
    errors.Draining("leaving"),
    errors.HandoffError("checksum"),
    errors.UnsupportedModel("sinks"),
    errors.EngineFailure("step loop"),
]


def call_error(code: grpc.StatusCode, metadata: tuple[tuple[str, bytes], ...], details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*metadata), details)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_error_survives(error: errors.EngineError) -> None:
    status = status_of(error)
    seen = error_from_call(call_error(status.code, status.trailing_metadata, status.message))
    assert type(seen) is type(error)
    assert str(seen) == str(error)
    assert seen.retryable == error.retryable
    if isinstance(error, errors.InvalidRequest):
        assert isinstance(seen, errors.InvalidRequest)
        assert seen.field == error.field
    if isinstance(error, errors.Overloaded):
        assert isinstance(seen, errors.Overloaded)
        assert seen.retry_after_s == error.retry_after_s


def test_codes_are_distinct() -> None:
    assert len({status_of(error).code for error in ERRORS}) == len(ERRORS)


@pytest.mark.parametrize("metadata", [(), ((ERROR_DETAIL_KEY, b"\xff\xff"),)])
def test_status_without_detail_is_a_retryable_failure(metadata: tuple[tuple[str, bytes], ...]) -> None:
    seen = error_from_call(call_error(grpc.StatusCode.UNAVAILABLE, metadata, "connection reset"))
    assert isinstance(seen, errors.EngineFailure)
    assert seen.retryable
    assert "UNAVAILABLE" in str(seen)
