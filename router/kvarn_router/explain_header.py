"""`x-kvarn-explain: 1` on a request puts the routing decision behind it on the answer, under the same name.

Wraps the whole API: the answer's `x-request-id`, set by its edge, leads to the decision. Asked for only by people.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvarn_router.decisions import DecisionLog

_HEADER = b"x-kvarn-explain"


class ExplainHeader:
    def __init__(self, app: ASGIApp, decisions: DecisionLog) -> None:
        self._app = app
        self._decisions = decisions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (_HEADER, b"1") not in scope["headers"]:
            await self._app(scope, receive, send)
            return

        async def send_explained(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *self._explanation(message)]}
            await send(message)

        await self._app(scope, receive, send_explained)

    def _explanation(self, message: Message) -> list[tuple[bytes, bytes]]:
        request_id = next((value.decode() for name, value in message["headers"] if name == b"x-request-id"), "")
        decision = self._decisions.find(request_id)
        return [] if decision is None else [(_HEADER, decision.explain().encode("ascii", "replace"))]
