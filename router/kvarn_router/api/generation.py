"""Runs a job through the pipeline and hands out what each choice gains, in order of arrival.

Called by `endpoint`. Knows nothing of HTTP or of answer shapes. Choice `c` of prompt `p` has index `p * n + c`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kvarn_engine.core.ids import RequestId

from kvarn_router.api.choices import Choice, ChoiceDelta
from kvarn_router.api.requests import Job, Prompt
from kvarn_router.context import (
    DoneEvent,
    FinishedEvent,
    GenerationRequest,
    Pipeline,
    PlacedEvent,
    StreamEvent,
    TokensEvent,
    TokenStream,
)
from kvarn_router.errors import InvalidInput, PromptTooLong, RouterError, WorkerLost
from kvarn_router.tokenization import Tokenizer

Emit = Callable[[ChoiceDelta], Awaitable[None]]

_NO_LIMIT = 2**31 - 1
"""Output limit of a request that names none, while no worker has told how long its sequences may be."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Where a job's progress goes."""

    emit: Emit
    on_placed: Callable[[], None]
    """Called once, when a worker has been found for every prompt."""


@dataclass(frozen=True, slots=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


def plan_requests(job: Job, request_id: RequestId, salt: str, max_model_len: int) -> tuple[GenerationRequest, ...]:
    """One request for each prompt. Raises before anything runs when one of them fits no worker that is known of; with
    `max_model_len` 0 there is none yet, and routing decides once there is."""
    single = len(job.prompts) == 1
    return tuple(
        GenerationRequest(
            request_id=request_id if single else RequestId(f"{request_id}-{position}"),
            prompt_tokens=prompt.tokens,
            sampling=replace(job.common.sampling, max_tokens=_max_tokens(job, prompt, max_model_len)),
            num_choices=job.common.num_choices,
            priority=job.common.priority,
            cache_salt=salt,
            may_be_cut=not job.common.sampling.max_tokens,
        )
        for position, prompt in enumerate(job.prompts)
    )


def _max_tokens(job: Job, prompt: Prompt, max_model_len: int) -> int:
    length, wanted = len(prompt.tokens), job.common.sampling.max_tokens
    if length == 0:
        raise InvalidInput("The prompt has no tokens.", job.prompt_field)
    room = max_model_len - length if max_model_len > 0 else _NO_LIMIT
    if room < max(wanted, 1):
        raise PromptTooLong(max_model_len, length, wanted, job.prompt_field)
    limit = wanted or min(job.default_max_tokens or room, room)
    if job.common.sampling.min_tokens > limit:
        message = f"Invalid value for 'min_tokens': must be at most the output limit of {limit}."
        raise InvalidInput(message, "min_tokens", "invalid_value")
    return limit


async def generate(
    pipeline: Pipeline, tokenizer: Tokenizer, job: Job, requests: tuple[GenerationRequest, ...], sink: Sink
) -> Usage:
    """Ends when every choice has finished. Cancelling it, or an error of one prompt, ends all of them."""
    places = _Places(len(requests), sink)
    runs = [
        _PromptRun(pipeline, tokenizer, job, position, request, places) for position, request in enumerate(requests)
    ]
    if len(runs) == 1:
        await runs[0].run()
    else:
        await _run_all(runs)
    return Usage(
        prompt_tokens=sum(len(request.prompt_tokens) for request in requests),
        completion_tokens=sum(choice.token_count for run in runs for choice in run.choices),
        cached_tokens=sum(run.cached_tokens for run in runs),
    )


async def _run_all(runs: list["_PromptRun"]) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run.run(), name=f"api-prompt-{run.request.request_id}")
    except ExceptionGroup as failures:
        known = next((error for error in failures.exceptions if isinstance(error, RouterError)), None)
        raise (known or failures.exceptions[0]) from failures


class _Places:
    """Prompts that no worker has taken yet."""

    def __init__(self, num_prompts: int, sink: Sink) -> None:
        self._missing = set(range(num_prompts))
        self._sink = sink
        self.emit = sink.emit

    def placed(self, position: int) -> None:
        if position in self._missing:
            self._missing.discard(position)
            if not self._missing:
                self._sink.on_placed()


class _PromptRun:
    def __init__(
        self,
        pipeline: Pipeline,
        tokenizer: Tokenizer,
        job: Job,
        position: int,
        request: GenerationRequest,
        places: _Places,
    ) -> None:
        self._pipeline = pipeline
        self._places = places
        self._position = position
        self._prompt_field = job.prompt_field
        self.request = request
        self.cached_tokens = 0
        first, echo = position * request.num_choices, len(job.prompts[position].echo)
        self.choices = [
            Choice(first + offset, tokenizer, request.prompt_tokens, job.common.output, echo)
            for offset in range(request.num_choices)
        ]

    async def run(self) -> None:
        try:
            await self._run()
        except PromptTooLong as error:
            error.param = error.param or self._prompt_field
            raise

    async def _run(self) -> None:
        async with self._pipeline.open(self.request) as stream, _closing(stream.events()) as events:
            async for event in events:
                if isinstance(event, PlacedEvent):
                    self._places.placed(self._position)
                elif isinstance(event, TokensEvent):
                    await self._on_tokens(stream, event)
                elif isinstance(event, FinishedEvent):
                    await self._on_finished(event)
                elif isinstance(event, DoneEvent):
                    self.cached_tokens = event.cached_tokens
                    break
        if not all(choice.is_finished for choice in self.choices):
            raise WorkerLost("The generation ended before all of its choices did.")

    async def _on_tokens(self, stream: TokenStream, event: TokensEvent) -> None:
        choice = self.choices[event.choice]
        if choice.is_finished:
            return  # Drawn before the worker heard of the stop.
        delta = choice.add(event.tokens)
        if choice.is_finished:
            stream.stop_choice(event.choice)
        await self._places.emit(delta)

    async def _on_finished(self, event: FinishedEvent) -> None:
        choice = self.choices[event.choice]
        if not choice.is_finished:
            await self._places.emit(choice.finish(event.reason))


@asynccontextmanager
async def _closing(events: AsyncIterator[StreamEvent]) -> AsyncIterator[AsyncIterator[StreamEvent]]:
    """Ends a generator here and now, not when the garbage collector finds it."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
