"""A small OpenAI-shaped HTTP client for parity and chaos tests: one `Answer` per choice, streamed or not.

It is strict where the `openai` package is lenient: one finish reason, one usage, one `[DONE]`, nothing after it.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

TIMEOUT = httpx.Timeout(120.0, connect=10.0)
Body = Mapping[str, object]


@dataclass
class Answer:
    """What one request with one choice brought back."""

    text: str = ""
    finish_reason: str = ""
    error: str = ""
    """The code or type of an SSE error event; empty for an answer that ended well."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    token_bytes: list[bytes] = field(default_factory=list)
    """Of each token, when a chat request asked for logprobs."""


def chat_body(model: str, messages: Sequence[Mapping[str, str]], max_tokens: int, **extra: object) -> Body:
    return {"model": model, "messages": list(messages), "max_tokens": max_tokens, "temperature": 0, **extra}


def completion_body(model: str, prompt: str | Sequence[int], max_tokens: int, **extra: object) -> Body:
    wire_prompt = prompt if isinstance(prompt, str) else list(prompt)
    return {"model": model, "prompt": wire_prompt, "max_tokens": max_tokens, "temperature": 0, **extra}


async def ask(client: httpx.AsyncClient, body: Body, stream: bool = False) -> Answer:
    """Send one request and read it to its end. A status other than 200 fails the test."""
    if stream:
        async with streaming(client, body) as growing:
            return [answer async for answer in growing][-1]
    response = await client.post(_path(body), json=body)
    assert response.status_code == 200, response.text
    payload = response.json()
    answer = Answer()
    _take_choice(answer, payload["choices"][0])
    _take_usage(answer, payload["usage"])
    return answer


@asynccontextmanager
async def streaming(client: httpx.AsyncClient, body: Body) -> AsyncIterator[AsyncIterator[Answer]]:
    """Yields the growing answer after every event; leaving early disconnects."""
    wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", _path(body), json=wanted) as response:
        if response.status_code != 200:
            raise AssertionError((await response.aread()).decode())
        yield _read_events(response)


async def _read_events(response: httpx.Response) -> AsyncIterator[Answer]:
    answer = Answer()
    done = False
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue
        assert not done, f"an event after the end: {line}"
        if line == "data: [DONE]":
            done = True
            continue
        _take_event(answer, json.loads(line.removeprefix("data: ")))
        yield answer
    assert done or answer.error, "the stream ended without a terminal event"


def _take_event(answer: Answer, event: dict[str, object]) -> None:
    if "error" in event:
        error = event["error"]
        assert isinstance(error, dict)
        assert not answer.error
        answer.error = str(error.get("code") or error.get("type"))
        return
    choices = event["choices"]
    assert isinstance(choices, list)
    for choice in choices:
        _take_choice(answer, choice)
    if event.get("usage"):
        _take_usage(answer, event["usage"])


def _take_choice(answer: Answer, choice: Mapping[str, object]) -> None:
    part = choice.get("delta") or choice.get("message")
    piece = part.get("content") if isinstance(part, dict) else choice.get("text")
    answer.text += str(piece or "")
    logprobs = choice.get("logprobs")
    if isinstance(logprobs, dict) and logprobs.get("content"):
        answer.token_bytes += [bytes(entry["bytes"]) for entry in logprobs["content"]]
    if choice.get("finish_reason"):
        assert not answer.finish_reason, "a choice finished twice"
        answer.finish_reason = str(choice["finish_reason"])


def _take_usage(answer: Answer, usage: object) -> None:
    assert isinstance(usage, dict)
    answer.prompt_tokens = usage["prompt_tokens"]
    answer.completion_tokens = usage["completion_tokens"]
    answer.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def _path(body: Body) -> str:
    return "/v1/chat/completions" if "messages" in body else "/v1/completions"
