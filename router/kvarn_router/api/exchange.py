"""How a request comes in and how long its client stays: bounded bodies, JSON, and the disconnect watch.

Called by the endpoints. Knows nothing of what bodies mean.
"""

import asyncio
import json
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from kvarn_router.api.errors import ClientGone
from kvarn_router.api.fields import Fields, kind_of
from kvarn_router.errors import BodyTooLarge, InvalidInput

T = TypeVar("T")

_DRAIN_LIMIT_BYTES = 16 * 1024 * 1024
_DRAIN_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class BodyLimits:
    max_bytes: int
    timeout_s: float


async def read_fields(scope: Scope, receive: Receive, limits: BodyLimits) -> Fields:
    try:
        async with asyncio.timeout(limits.timeout_s):
            body = await _read_body(scope, receive, limits.max_bytes)
    except TimeoutError as error:
        raise HTTPException(408, headers={"connection": "close"}) from error
    try:
        data = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("The body is not valid JSON.", None, "invalid_json") from error
    if not isinstance(data, dict):
        raise InvalidInput(f"The body must be a JSON object, but is {kind_of(data)}.", None, "invalid_json")
    return Fields(data)


async def send_json(send: Send, payload: object, status: int = 200) -> None:
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def until_disconnect(receive: Receive, work: Coroutine[object, object, T]) -> T:
    """Runs `work`, and cancels it when the client goes away. The body must have been read to its end before."""
    working = asyncio.create_task(work, name="api-work")
    watching = asyncio.create_task(_wait_for_disconnect(receive), name="api-disconnect-watch")
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        await _end(working)
        await _end(watching)


async def _end(task: asyncio.Task[T]) -> None:
    """The task is over when this returns. A failure of cancelled work has nobody left to be told."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read_body(scope: Scope, receive: Receive, max_bytes: int) -> bytes:
    declared = next((value for key, value in scope["headers"] if key == b"content-length"), b"0")
    if declared.isdigit() and int(declared) > max_bytes:
        await _refuse_body(scope, receive, max_bytes)
    parts: list[bytes] = []
    size = 0
    while True:
        message = await _receive_part(receive)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > max_bytes:
            parts.clear()
            await _refuse_body(scope, receive, max_bytes)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse_body(scope: Scope, receive: Receive, max_bytes: int) -> NoReturn:
    """Reads on for a moment without keeping anything: a client that is still sending would not see the answer."""
    expects = any(key == b"expect" for key, _ in scope["headers"])
    if not expects:
        try:
            async with asyncio.timeout(_DRAIN_TIMEOUT_S):
                await _drain(receive)
        except TimeoutError:
            pass  # The answer goes out all the same.
    raise BodyTooLarge(f"The request body is larger than the limit of {max_bytes} bytes.")


async def _drain(receive: Receive) -> None:
    dropped = 0
    while dropped < _DRAIN_LIMIT_BYTES:
        message = await _receive_part(receive)
        dropped += len(message.get("body", b""))
        if not message.get("more_body", False):
            return


async def _receive_part(receive: Receive) -> Message:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
