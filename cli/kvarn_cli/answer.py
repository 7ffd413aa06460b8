"""One streamed answer over the OpenAI API, and how fast it came. Used by `chat` and by the greeting of `up`."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

TextHandler = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    ttft_s: float
    """Request sent until the first text arrived."""

    itl_s: float
    """Mean time between tokens after the first; 0 with fewer than two."""

    prompt_tokens: int
    output_tokens: int
    cached_tokens: int

    @property
    def summary(self) -> str:
        return (
            f"TTFT {self.ttft_s * 1000:.0f} ms · ITL {self.itl_s * 1000:.1f} ms · "
            f"{self.output_tokens} tokens · {self.cached_tokens} of {self.prompt_tokens} prompt tokens cached"
        )


class AnswerError(Exception):
    """The server refused or broke off; the message is for a person."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one SSE data line holds."""

    text: str
    usage: tuple[int, int, int] | None
    """Prompt, output and cached tokens, in the last chunk."""


async def stream_answer(
    client: httpx.AsyncClient,
    model: str,
    messages: Sequence[Message],
    on_text: TextHandler,
    max_tokens: int,
    temperature: float = 1.0,
) -> Answer:
    """Calls `on_text` as text arrives. Raises AnswerError."""
    body = {
        "model": model,
        "messages": [{"role": each.role, "content": each.content} for each in messages],
        "max_tokens": max_tokens,
        "temperature": temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    sent = time.perf_counter()
    arrivals: list[float] = []
    parts: list[str] = []
    usage = (0, 0, 0)
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise AnswerError(error_message(response.status_code, await response.aread()))
            async for line in response.aiter_lines():
                chunk = parse_line(line)
                if chunk is None:
                    continue
                usage = chunk.usage or usage
                if chunk.text:
                    arrivals.append(time.perf_counter())
                    parts.append(chunk.text)
                    on_text(chunk.text)
    except httpx.HTTPError as error:
        raise AnswerError(f"no answer from {client.base_url}: {error or type(error).__name__}") from error
    return _measured("".join(parts), sent, arrivals, usage)


def parse_line(line: str) -> Chunk | None:
    """None for comments, blank lines and the end mark. Raises AnswerError for an error event."""
    if not line.startswith("data:") or line[5:].strip() == "[DONE]":
        return None
    data = json.loads(line[5:])
    if "error" in data:
        raise AnswerError(str(data["error"].get("message", "the stream broke off")))
    text = "".join(choice.get("delta", {}).get("content") or "" for choice in data.get("choices", ()))
    usage = data.get("usage")
    if not usage:
        return Chunk(text, None)
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Chunk(text, (usage["prompt_tokens"], usage["completion_tokens"], cached))


def error_message(status: int, body: bytes) -> str:
    try:
        return f"{status}: {json.loads(body)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return f"{status} without an explanation"


def _measured(text: str, sent: float, arrivals: list[float], usage: tuple[int, int, int]) -> Answer:
    prompt_tokens, output_tokens, cached_tokens = usage
    spread = arrivals[-1] - arrivals[0] if len(arrivals) > 1 else 0.0
    return Answer(
        text=text,
        ttft_s=arrivals[0] - sent if arrivals else 0.0,
        itl_s=spread / max(1, max(output_tokens, len(arrivals)) - 1),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
    )
