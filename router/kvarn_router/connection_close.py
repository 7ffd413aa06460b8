"""Once the process is about to end, every answer asks its client to close the connection.

Wraps the whole API. A client that keeps connections open would else send its next request into one that is being
closed, and never learn that the router's address leads to another process by now.
"""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ConnectionClose:
    def __init__(self, app: ASGIApp, is_ending: Callable[[], bool]) -> None:
        self._app = app
        self._is_ending = is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_closing(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_ending():
                others = [(name, value) for name, value in message["headers"] if name != b"connection"]
                message = {**message, "headers": [*others, (b"connection", b"close")]}
            await send(message)

        await self._app(scope, receive, send_closing)
