"""The decision behind an answer, for those who ask."""

from kvarn_engine.core.ids import Incarnation, RequestId, WorkerId
from kvarn_router.decisions import DecisionLog
from kvarn_router.explain_header import ExplainHeader
from kvarn_router.routing.cost import SaturationLimits, WorkerView
from kvarn_router.routing.policy import LayoutViews, choose
from starlette.types import Message, Receive, Scope, Send


def log_with(*names: str) -> DecisionLog:
    log = DecisionLog(8)
    for number, name in enumerate(names):
        view = WorkerView(Incarnation(f"life-{number}"), WorkerId(f"d{number}"), 0, 0, 0, 0, 0, 0, 0.0)
        decision = choose(RequestId(name), [LayoutViews("layout", 16, 1, (view,), ())], SaturationLimits())
        assert decision is not None
        log.add(decision)
    return log


async def answer_headers(log: DecisionLog, asked: bool, request_id: bytes = b"r") -> list[tuple[bytes, bytes]]:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-request-id", request_id)]})

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.request"}

    headers = [(b"x-kvarn-explain", b"1")] if asked else []
    await ExplainHeader(app, log)({"type": "http", "headers": headers}, receive, send)
    return sent[0]["headers"]


async def test_only_who_asks_is_told() -> None:
    assert len(await answer_headers(log_with("r"), asked=False)) == 1
    name, value = (await answer_headers(log_with("r"), asked=True))[1]
    assert name == b"x-kvarn-explain"
    assert b"d0" in value


async def test_newest_decision_of_this_request_counts() -> None:
    headers = await answer_headers(log_with("r", "r", "other"), asked=True)
    assert b"d1" in headers[1][1]


async def test_first_prompt_speaks_for_a_request_of_several() -> None:
    headers = await answer_headers(log_with("r-0", "r-1"), asked=True)
    assert b"d0" in headers[1][1]


async def test_unknown_request_gets_no_header() -> None:
    assert len(await answer_headers(log_with("r"), asked=True, request_id=b"gone")) == 1
