"""What `endpoint` needs to know of an API's answers, shared by `chat` and `completions`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvarn_engine.core.ids import RequestId

from kvarn_router.api.choices import ChoiceDelta, TokenLogprob
from kvarn_router.api.fields import Fields
from kvarn_router.api.generation import Usage
from kvarn_router.api.requests import Job

Payload = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of an answer repeat."""

    request_id: RequestId
    created: int
    model: str
    with_logprobs: bool


@dataclass(frozen=True, slots=True)
class FinishedChoice:
    index: int
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish: str


class AnswerShape(Protocol):
    async def parse(self, fields: Fields) -> Job: ...

    def opening(self, head: Head, index: int, echo: str) -> Payload | None:
        """Chunk in front of a choice's first one."""
        ...

    def chunk(self, head: Head, delta: ChoiceDelta) -> Payload: ...

    def usage_chunk(self, head: Head, usage: Usage) -> Payload: ...

    def whole(self, head: Head, choices: list[FinishedChoice], usage: Usage) -> Payload: ...


def usage_payload(usage: Usage) -> Payload:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
