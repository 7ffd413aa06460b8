"""The outermost ASGI layer: request ids, API keys, every failure's answer, one log line and the request metrics.

Wraps the router that `routes.build_api` makes. The only place in the API half that catches everything, because an
error that leaves it would reach the client as a broken connection.
"""

import asyncio
import hashlib
import hmac
import logging
import re
import traceback
from collections.abc import Callable

from kvarn_engine.core.ids import RequestId
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvarn_router.api.errors import CLIENT_GONE_STATUS, ClientGone, ErrorAnswer, answer_for
from kvarn_router.api.metrics import ApiMetrics
from kvarn_router.errors import NoWorker, Unauthorized

_log = logging.getLogger("kvarn.api")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_REQUEST_ID_KEY = "kvarn.request_id"
_TENANT_KEY = "kvarn.tenant"
_PROBE_PATHS = frozenset({"/health", "/ready", "/metrics"})


def request_id_of(scope: Scope) -> RequestId:
    return RequestId(str(scope[_REQUEST_ID_KEY]))


def tenant_of(scope: Scope) -> str:
    """Empty without API keys; else a digest of the key, which never appears itself."""
    return str(scope[_TENANT_KEY])


class Exchange:
    """One request's answer as it goes out."""

    def __init__(self, send: Send, request_id: RequestId) -> None:
        self._send = send
        self._request_id = request_id
        self.status = 0
        self._is_stream = False
        self._is_finished = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers = [*message.get("headers", ()), (b"x-request-id", self._request_id.encode())]
            self._is_stream = any(name == b"content-type" and b"event-stream" in value for name, value in headers)
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self._is_finished = not message.get("more_body", False)
        await self._send(message)

    async def fail(self, answer: ErrorAnswer) -> None:
        """A true status while nothing is sent; in a stream an error event, and no `[DONE]`."""
        if self.status == 0:
            body = answer.body()
            headers = [("content-type", "application/json"), ("content-length", str(len(body))), *answer.headers]
            raw = [(name.encode(), value.encode()) for name, value in headers]
            await self.send({"type": "http.response.start", "status": answer.status, "headers": raw})
            await self.send({"type": "http.response.body", "body": body})
        elif self._is_stream and not self._is_finished:
            await self.send({"type": "http.response.body", "body": b"data: " + answer.body() + b"\n\n"})


def _is_probe(scope: Scope) -> bool:
    """Asked every few seconds by whoever watches the router: answers are counted, and logged only for debugging."""
    return scope["path"] in _PROBE_PATHS or scope["path"].startswith("/debug/")


class Edge:
    def __init__(
        self, app: ASGIApp, api_keys: tuple[str, ...], metrics: ApiMetrics, make_id: Callable[[], str]
    ) -> None:
        self._app = app
        self._keys = tuple(key.encode() for key in api_keys)
        self._metrics = metrics
        self._make_id = make_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = RequestId(self._request_id(scope))
        exchange = Exchange(send, request_id)
        # Starlette's router raises for an unknown method, instead of answering in plain text, when it sees an app.
        scope.update({"app": self, _REQUEST_ID_KEY: request_id, _TENANT_KEY: ""})
        with self._metrics.request(scope["path"]) as record:
            failure = await self._answer(scope, receive, exchange)
            record.status = CLIENT_GONE_STATUS if failure == CLIENT_GONE_STATUS else exchange.status
        fields = {"request_id": request_id, "method": scope["method"], "path": scope["path"][:200]}
        fields |= {"status": record.status, "duration_s": round(record.duration_s, 4)}
        _log.log(logging.DEBUG if _is_probe(scope) else logging.INFO, "http_request", extra=fields)

    async def _answer(self, scope: Scope, receive: Receive, exchange: Exchange) -> int:
        """Status of the failure; 0 when there was none."""
        try:
            scope[_TENANT_KEY] = self._authenticate(scope)
            await self._app(scope, receive, exchange.send)
        except ClientGone:
            return CLIENT_GONE_STATUS
        except asyncio.CancelledError:
            # Only the server cancels an exchange: the process ends, and the time for running answers is over.
            answer = answer_for(NoWorker("The router is shutting down: send the request again."))
            await exchange.fail(answer)
            return answer.status
        except Exception as error:  # noqa: BLE001  process edge
            answer = answer_for(error)
            context = {"request_id": request_id_of(scope), "status": answer.status, "error": type(error).__name__}
            if answer.status == 500:
                # Frames only: the message of an unforeseen error may quote what the client sent.
                context["frames"] = "".join(traceback.format_tb(error.__traceback__)[-8:])
            if answer.status >= 500:
                is_expected = _is_probe(scope) and answer.status != 500  # such as /ready while nothing is
                _log.log(logging.DEBUG if is_expected else logging.ERROR, "request_failed", extra=context)
            await exchange.fail(answer)
            return answer.status
        return 0

    def _request_id(self, scope: Scope) -> str:
        given = _header(scope, b"x-request-id")
        return given.decode() if given and _REQUEST_ID.fullmatch(given) else self._make_id()

    def _authenticate(self, scope: Scope) -> str:
        path = scope["path"]
        if not self._keys or not (path.startswith("/v1/") or path in ("/tokenize", "/detokenize")):
            return ""
        scheme, _, token = (_header(scope, b"authorization") or b"").partition(b" ")
        token = token.strip()
        if scheme.lower() != b"bearer" or not token:
            raise Unauthorized("You didn't provide an API key: send 'Authorization: Bearer YOUR_KEY'.")
        if not any([hmac.compare_digest(token, key) for key in self._keys]):  # noqa: C419  every key, in equal time
            raise Unauthorized("Incorrect API key provided.")
        return hashlib.sha256(token).hexdigest()[:32]


def _header(scope: Scope, name: bytes) -> bytes | None:
    return next((value for key, value in scope["headers"] if key == name), None)
