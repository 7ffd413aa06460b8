"""What the API half hands to the pipeline, and what comes back. Token ids only: text stays on the API side."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from kvarn_engine.core.ids import RequestId, TokenId
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.protocol import FinishedEvent as FinishedEvent
from kvarn_engine.serving.protocol import TokensEvent as TokensEvent


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One validated request."""

    request_id: RequestId
    prompt_tokens: tuple[TokenId, ...]
    sampling: SamplingParams
    num_choices: int = 1
    priority: int = 0
    """Lower is served earlier."""

    cache_salt: str = ""
    """Requests share cached blocks only with requests of the same salt."""

    may_be_cut: bool = False
    """The client named no output limit: the chosen worker's context length may lower `max_tokens`."""


@dataclass(frozen=True, slots=True)
class PlacedEvent:
    """A worker takes the request: at its start, and each time it moves to another one. Until the first of these the
    request may be held, and may still be refused."""

    decode_worker: str


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The last event. `cached_tokens` is what really was not computed, not what routing predicted."""

    cached_tokens: int
    prefill_worker: str = ""
    decode_worker: str = ""
    resumed: int = 0
    """How often the stream was moved to another decode worker."""


StreamEvent = PlacedEvent | TokensEvent | FinishedEvent | DoneEvent


class TokenStream(Protocol):
    """A running request. Leaving its `async with` block cancels the work behind it on every hop."""

    def events(self) -> AsyncIterator[StreamEvent]:
        """Raises RouterError. Errors before the first TokensEvent can still become an HTTP status."""
        ...

    def stop_choice(self, choice: int) -> None:
        """A stop string was seen: end this choice; no more events of it follow but its FinishedEvent."""
        ...


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What the router knows of the model it serves."""

    served_names: tuple[str, ...]
    max_model_len: int
    """The largest that a registered decode worker offers; 0 while there is none."""


class Pipeline(Protocol):
    """Routes a request, runs it on a decode worker, moves it when that worker is lost."""

    def open(self, request: GenerationRequest) -> AbstractAsyncContextManager[TokenStream]: ...

    def card(self) -> ModelCard: ...

    def is_ready(self) -> bool:
        """Whether this router should be sent requests now."""
        ...
