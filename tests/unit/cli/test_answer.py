"""Streamed answers over a real HTTP server."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from kvarn_cli.answer import AnswerError, Message, parse_line, stream_answer

App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


def sse(*events: object) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def delta(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}]}


USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 16}},
}


def answering(status: int, body: bytes) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["path"] == "/v1/chat/completions"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": body})

    return app


async def ask(url: str, on_text: Callable[[str], None] = lambda text: None) -> Any:
    async with httpx.AsyncClient(base_url=url) as client:
        return await stream_answer(client, "m", [Message("user", "hi")], on_text, 8)


async def test_text_and_usage_arrive(serve: Any) -> None:
    seen: list[str] = []
    url = await serve(answering(200, b": ping\n\n" + sse(delta("Hel"), delta("lo"), USAGE)))
    answer = await ask(url, seen.append)
    assert seen == ["Hel", "lo"]
    assert (answer.text, answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == ("Hello", 20, 3, 16)
    assert "16 of 20 prompt tokens cached" in answer.summary


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b'{"error": {"message": "no such model"}}', "404: no such model"),
        (502, b"<html>", "502 without an explanation"),
        (200, sse(delta("Hel"), {"error": {"message": "worker lost"}}), "worker lost"),
    ],
)
async def test_failures_are_told(serve: Any, status: int, body: bytes, message: str) -> None:
    url = await serve(answering(status, body))
    with pytest.raises(AnswerError, match=message):
        await ask(url)


async def test_no_server_is_told() -> None:
    with pytest.raises(AnswerError, match=r"no answer from http://127\.0\.0\.1:1"):
        await ask("http://127.0.0.1:1")


@pytest.mark.parametrize("line", ["", ": ping", "data: [DONE]", "event: x"])
def test_lines_without_content(line: str) -> None:
    assert parse_line(line) is None
