"""What an answer of the API server means."""

import json

import pytest
from kvarn_operator.cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    NotFound,
    Refused,
    Unavailable,
)
from kvarn_operator.cluster.transport import Call, failure

CALL = Call("create", "POST", "/api/v1/namespaces/models/pods", "pods")


def answer(status: int, reason: str = "", headers: dict[str, str] | None = None, **details: object) -> ClusterError:
    content = {"kind": "Status", "reason": reason, "message": "what is wrong", "details": details}
    return failure(CALL, status, headers or {}, json.dumps(content).encode())


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", Refused),
        (401, "Unauthorized", Unavailable),
        (403, "Forbidden", Refused),
        (404, "NotFound", NotFound),
        (408, "Timeout", Unavailable),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Expired),
        (422, "Invalid", Refused),
        (429, "TooManyRequests", Unavailable),
        (500, "InternalError", Unavailable),
        (503, "ServiceUnavailable", Unavailable),
        (504, "Timeout", Unavailable),
    ],
)
def test_each_status_is_one_error(status: int, reason: str, kind: type[ClusterError]) -> None:
    error = answer(status, reason)
    assert type(error) is kind
    assert "what is wrong" in str(error)
    assert "/api/v1/namespaces/models/pods" in str(error)


def test_the_server_may_say_how_long_to_wait() -> None:
    assert answer(429, headers={"Retry-After": "7"}).retry_after_s == 7.0
    assert answer(503, retryAfterSeconds=4).retry_after_s == 4.0
    assert answer(429, headers={"Retry-After": "Tue, 01 Dec 2026 05:00:00 GMT"}).retry_after_s is None
    assert answer(500).retry_after_s is None


def test_a_webhook_that_is_away_refuses_only_what_it_watches_over() -> None:
    """An outage would stop everything else of the model too."""
    content = {"message": 'Internal error occurred: failed calling webhook "pods.policy.test": connection refused'}
    assert type(failure(CALL, 500, {}, json.dumps(content).encode())) is Refused


def test_an_answer_that_is_no_status_is_quoted() -> None:
    error = failure(CALL, 502, {}, b"<html>bad gateway</html>")
    assert isinstance(error, Unavailable)
    assert "bad gateway" in str(error)
    assert isinstance(failure(CALL, 502, {}, b"[]"), Unavailable)
