"""The one place that maps the router's error tree to HTTP statuses and OpenAI error bodies. Called by `edge`."""

import json
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException

from kvarn_router.errors import (
    BodyTooLarge,
    InternalError,
    InvalidInput,
    ModelNotFound,
    NoWorker,
    PromptTooLong,
    RouterError,
    TooManyRequests,
    Unauthorized,
    WorkerLost,
)

CLIENT_GONE_STATUS = 499
"""Only in logs and metrics: nobody is there to read it."""


class ClientGone(Exception):
    """The client closed the connection or takes no bytes."""


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    status: int
    type: str
    message: str
    code: str | None = None
    param: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=())

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return json.dumps({"error": error}, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class _Kind:
    status: int
    type: str
    code: str | None
    headers: tuple[tuple[str, str], ...] = ()


_KINDS: tuple[tuple[type[RouterError], _Kind], ...] = (
    (PromptTooLong, _Kind(400, "invalid_request_error", "context_length_exceeded")),
    (InvalidInput, _Kind(400, "invalid_request_error", None)),
    (Unauthorized, _Kind(401, "invalid_request_error", "invalid_api_key", (("www-authenticate", "Bearer"),))),
    (ModelNotFound, _Kind(404, "invalid_request_error", "model_not_found")),
    (BodyTooLarge, _Kind(413, "invalid_request_error", "request_too_large", (("connection", "close"),))),
    (TooManyRequests, _Kind(429, "rate_limit_error", "rate_limit_exceeded")),
    (NoWorker, _Kind(503, "service_unavailable_error", "no_worker")),
    (WorkerLost, _Kind(502, "server_error", "worker_lost")),
    (InternalError, _Kind(500, "server_error", "internal_error")),
)
_INTERNAL = ErrorAnswer(500, "server_error", "The server had an internal error.", "internal_error")


def answer_for(error: Exception) -> ErrorAnswer:
    if isinstance(error, HTTPException):
        return _http_answer(error)
    for error_type, kind in _KINDS:
        if isinstance(error, error_type):
            return _router_answer(error, kind)
    return _INTERNAL


def _router_answer(error: RouterError, kind: _Kind) -> ErrorAnswer:
    code, param, headers = kind.code, None, kind.headers
    if isinstance(error, InvalidInput):
        code, param = error.code or kind.code, error.param
    if isinstance(error, ModelNotFound):
        param = "model"
    if isinstance(error, TooManyRequests | NoWorker):
        headers = (*headers, ("retry-after", str(max(1, round(error.retry_after_s)))))
    return ErrorAnswer(kind.status, kind.type, str(error), code, param, headers)


def _http_answer(error: HTTPException) -> ErrorAnswer:
    """What Starlette's router refuses by itself: unknown paths and wrong methods."""
    code = {404: "not_found", 405: "method_not_allowed", 408: "request_timeout"}.get(error.status_code)
    message = {
        404: "There is no such path on this server.",
        405: "This path does not take this method.",
        408: "The request body did not arrive in time.",
    }
    headers = tuple((name.lower(), value) for name, value in (error.headers or {}).items())
    text = message.get(error.status_code, error.detail)
    return ErrorAnswer(error.status_code, "invalid_request_error", text, code, None, headers)
