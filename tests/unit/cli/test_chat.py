"""A conversation in the terminal: it outlives questions without an answer, and what `kvarn up` says in greeting."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kvarn_cli.chat import ChatOptions, run_chat
from kvarn_cli.greeting import Served, ask_served, show_banner
from rich.console import Console


class Replies:
    """Refuses a question with the word `refuse`, else answers with how many messages it was given."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = json.loads((await receive())["body"])
        messages = [message["content"] for message in body["messages"]]
        self.asked.append(messages)
        refused = "refuse" in messages[-1]
        error = {"error": {"message": "too long"}}
        events = [{"choices": [{"index": 0, "delta": {"content": f"answer {len(messages)}"}}]}, USAGE]
        stream = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        headers = [(b"content-type", b"application/json" if refused else b"text/event-stream")]
        await send({"type": "http.response.start", "status": 400 if refused else 200, "headers": headers})
        await send({"type": "http.response.body", "body": (json.dumps(error) if refused else stream).encode()})


USAGE = {"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}


def typed(*lines: str) -> Iterator[str]:
    """Then Ctrl-D."""
    yield from lines
    raise EOFError


async def test_a_refused_question_is_forgotten_and_the_conversation_goes_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies, lines = Replies(), typed("one", "refuse two", "three", "/new", "four")
    url, console = await serve(replies), Console(record=True, width=200)
    monkeypatch.setattr(console, "input", lambda prompt: next(lines))
    assert await asyncio.to_thread(run_chat, ChatOptions(url, "m", "", 8), "", console) == 0
    assert replies.asked == [["one"], ["one", "answer 1", "refuse two"], ["one", "answer 1", "three"], ["four"]]
    assert "the question is forgotten: 400: too long" in console.export_text()


async def test_the_greeting_names_what_is_served(serve: Any) -> None:
    async def models(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({"data": [{"id": "public-name"}]}).encode()})

    assert await ask_served(await serve(models), "folder") == Served("public-name", needs_key=False)


async def test_the_greeting_knows_that_a_key_is_needed(serve: Any) -> None:
    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    served = await ask_served(await serve(refuse), "folder")
    assert served == Served("folder", needs_key=True)
    console = Console(record=True, width=200)
    show_banner(console, "http://here", served)
    shown = console.export_text()
    assert "-H 'Authorization: Bearer YOUR_KEY'" in shown
    assert "kvarn chat --url http://here --api-key YOUR_KEY" in shown
