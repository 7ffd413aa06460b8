"""The lines of an OpenAI completion stream as typed chunks. Pure: text in, values out."""

import json
from dataclasses import dataclass


class StreamError(Exception):
    """The server ended the stream with an error event, or sent what is not a completion chunk."""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Chunk:
    text: str = ""
    usage: Usage | None = None
    done: bool = False
    """The closing `[DONE]`."""


def read_line(line: str) -> Chunk | None:
    """None for blank lines, comments (pings) and other fields. Raises StreamError."""
    if not line.startswith("data:"):
        return None
    data = line[len("data:") :].strip()
    if data == "[DONE]":
        return Chunk(done=True)
    try:
        body = json.loads(data)
    except ValueError:
        raise StreamError("not JSON") from None
    if not isinstance(body, dict):
        raise StreamError("not an object")
    if body.get("error"):
        raise StreamError("error event")
    usage = body.get("usage")
    choices = body.get("choices") or []
    return Chunk(text="".join(_text(choice) for choice in choices), usage=_usage(usage) if usage else None)


def _text(choice: dict[str, object]) -> str:
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return text if isinstance(text, str) else ""


def _usage(usage: dict[str, object]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    return Usage(_count(usage.get("prompt_tokens")), _count(cached), _count(usage.get("completion_tokens")))


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
