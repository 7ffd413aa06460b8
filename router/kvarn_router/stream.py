"""One running request: attempts on decode workers, joined into one unbroken stream.

Made by `pipeline`, read by the API. `_run` is the reading order: place, open one call, pass events on; when the worker
is lost, do it again with what was sent so far.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field

from kvarn_engine.core.ids import Incarnation, TokenId
from kvarn_engine.process.tasks import TaskOwner
from kvarn_engine.wire.convert import finish_reason_from_proto, token_from_proto
from kvarn_proto.v1 import decode_pb2

from kvarn_router.attempts import AttemptLimits, Attempts
from kvarn_router.clients import AttemptFailed, DecodeCall
from kvarn_router.context import (
    DoneEvent,
    GenerationRequest,
    PlacedEvent,
    StreamEvent,
)
from kvarn_router.dispatcher import Dispatcher, Placement, Wanted
from kvarn_router.errors import InternalError, InvalidInput, NoWorker, RouterError, TooManyRequests, WorkerLost
from kvarn_router.holding import Holding, UncachedTokens
from kvarn_router.messages import generate_request
from kvarn_router.metrics import RoutingMetrics
from kvarn_router.progress import Progress
from kvarn_router.retry import Failure, FinalError, Phase, Verdict, verdict

logger = logging.getLogger("kvarn.router.stream")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    idle_timeout_s: float
    worker_wait_s: float
    attempts: AttemptLimits = field(default_factory=AttemptLimits)
    stop_grace_s: float = 2.0
    """How long to wait for the end events of a request whose every choice was stopped."""


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What every stream of a pipeline shares."""

    dispatcher: Dispatcher
    tasks: TaskOwner
    metrics: RoutingMetrics
    limits: StreamLimits
    eos_token_ids: frozenset[TokenId]
    holding: Holding
    uncached: UncachedTokens
    router_id: str
    """Drawn for each process: makes the request ids that workers see unique among routers."""


class RoutedStream:
    def __init__(self, request: GenerationRequest, parts: StreamParts) -> None:
        self._request = request
        self._parts = parts
        self._progress = Progress(request, parts.eos_token_ids)
        self._max_tokens = request.sampling.max_tokens
        self._uncached = parts.uncached.open()
        self._excluded: frozenset[Incarnation] = frozenset()
        self._model_revision = ""
        self._attempts = Attempts(parts.limits.attempts)
        self._failure: AttemptFailed | None = None
        self._first_cached: int | None = None
        self._call: DecodeCall | None = None
        self._placement: Placement | None = None
        self._events = self._run()

    def events(self) -> AsyncIterator[StreamEvent]:
        return self._events

    def stop_choice(self, choice: int) -> None:
        if self._progress.stop(choice) and self._call is not None:
            self._parts.tasks.spawn(self._call.stop_choice(choice), f"stop {self._request.request_id}/{choice}")

    async def close(self) -> None:
        self._end_attempt()
        self._uncached.set(0)
        await self._events.aclose()

    async def _run(self) -> AsyncGenerator[StreamEvent, None]:
        while self._progress.unfinished:
            placement = await self._place()
            try:
                async with aclosing(self._attempt(placement)) as events:
                    async for event in events:
                        yield event
                return
            except AttemptFailed as failure:
                complete = self._progress.finish_complete()
                self._after(failure, placement)
            finally:
                self._end_attempt()
            for finished in complete:
                yield finished
        # Every choice had ended before its last worker was lost: only that worker's end event is missing.
        yield DoneEvent(self._first_cached or 0, resumed=self._attempts.count - 1)

    async def _place(self) -> Placement:
        wanted = self._wanted()
        placement = self._parts.dispatcher.try_place(wanted, self._excluded)
        if placement is None:
            failure = self._failure
            placement = await (self._hold(wanted) if failure is None else self._place_anywhere(wanted, failure))
        self._placement = placement
        self._model_revision = placement.decode.identity.layout.model_revision
        self._max_tokens = placement.max_tokens
        self._progress.limit(placement.max_tokens)
        self._uncached.arrive(placement.uncached_tokens)
        return placement

    def _wanted(self) -> Wanted:
        progress, request = self._progress, self._request
        least = max(request.sampling.min_tokens, progress.longest_output + 1)
        return Wanted(
            request_id=request.request_id,
            tokens=progress.tokens,
            salt=request.cache_salt,
            use_peers=progress.may_use_peers,
            num_prompt_tokens=len(request.prompt_tokens),
            max_tokens=self._max_tokens,
            min_room=min(least, self._max_tokens) if request.may_be_cut else self._max_tokens,
            is_resumed=self._failure is not None,
            model_revision=self._model_revision if progress.has_tokens else "",
        )

    async def _hold(self, wanted: Wanted) -> Placement:
        """No worker can take the request yet: wait for one, where the pool may be starting from zero."""
        holding = self._parts.holding
        with holding.hold():
            self._uncached.arrive(len(wanted.tokens))
            placement = await self._parts.dispatcher.place(wanted, holding.limits.hold_s)
        if placement is None:
            raise holding.refusal()
        return placement

    async def _place_anywhere(self, wanted: Wanted, failure: AttemptFailed) -> Placement:
        """No untried worker is left: wait for a new one, or for one that failed before and is heard of again."""
        ruling = self._verdict(failure)
        if ruling.wait:
            self._uncached.set(len(wanted.tokens))
            with self._parts.holding.move():
                if not ruling.suspect:
                    await asyncio.sleep(failure.retry_after_s)
                placement = await self._parts.dispatcher.place(wanted, self._parts.limits.worker_wait_s)
            if placement is not None:
                return placement
        raise self._final(failure)

    async def _attempt(self, placement: Placement) -> AsyncGenerator[StreamEvent, None]:
        self._attempts.begin()
        message = generate_request(self._request, self._progress.unfinished, placement, self._parts.router_id)
        call = self._call = DecodeCall(placement.decode, message)
        yield PlacedEvent(placement.decode.identity.worker_id)
        limits = self._parts.limits
        while True:
            idle_s = limits.stop_grace_s if self._progress.all_stopped else limits.idle_timeout_s
            event = await call.read(idle_s)
            match event.WhichOneof("event"):
                case "accepted":
                    self._accept(event.accepted)
                case "tokens":
                    placement.prefill_ended()
                    self._uncached.set(0)
                    tokens = tuple(token_from_proto(token) for token in event.tokens.tokens)
                    self._attempts.took_tokens()
                    if taken := self._progress.take_tokens(event.tokens.choice, tokens):
                        yield taken
                case "finished":
                    reason = finish_reason_from_proto(event.finished.reason)
                    if finished := self._progress.finish(event.finished.choice, reason):
                        yield finished
                case "done":
                    yield self._done(event.done, placement)
                    return

    def _accept(self, accepted: decode_pb2.GenerateAccepted) -> None:
        self._attempts.accepted()
        if self._first_cached is None:
            self._first_cached = accepted.cached_tokens

    def _done(self, done: decode_pb2.GenerateDone, placement: Placement) -> DoneEvent:
        if self._progress.unfinished:
            raise AttemptFailed(Failure.FAILED, "the stream was done before all of its choices")
        cached = done.cached_tokens
        if self._attempts.count > 1:
            # What the last worker found cached may be what an earlier attempt of this very request computed.
            cached = min(cached, self._first_cached or 0)
        else:
            self._parts.metrics.observe_prefix(placement.decision, cached, len(self._request.prompt_tokens))
        worker_id = placement.decode.identity.worker_id
        return DoneEvent(cached, done.prefill_worker_id, worker_id, self._attempts.count - 1)

    def _after(self, failure: AttemptFailed, placement: Placement) -> None:
        """Prepare the next attempt where anything is left to do, or raise what the client is told."""
        identity = placement.decode.identity
        ruling = self._verdict(failure)
        self._parts.metrics.attempt_failed(failure.failure)
        fields = {
            "request_id": self._request.request_id,
            "worker": identity.worker_id,
            "failure": failure.failure.name,
            "attempt": self._attempts.count,
            "reason": str(failure),
        }
        logger.warning("attempt failed", extra=fields)
        if failure.failure is Failure.DRAINING:
            # Before its own report says so.
            placement.decode.draining = True
        else:
            placement.decode.suspect |= ruling.suspect
        self._attempts.failed(failure.failure)
        if self._progress.all_stopped:
            return
        if self._attempts.lost_too_many:
            raise self._given_up() from failure
        if not ruling.retry or self._attempts.exhausted:
            raise self._final(failure) from failure
        if self._progress.has_tokens:
            self._parts.metrics.stream_moved()
        # A worker that failed before the last token may be well again.
        before = self._excluded if self._attempts.in_a_row > 1 else frozenset()
        self._failure, self._excluded = failure, before | {identity.incarnation}

    def _verdict(self, failure: AttemptFailed) -> Verdict:
        return verdict(failure.failure, Phase.AFTER_TOKENS if self._progress.has_tokens else Phase.BEFORE_TOKENS)

    def _final(self, failure: AttemptFailed) -> RouterError:
        return _final_error(failure, self._verdict(failure).final, self._attempts.count)

    def _given_up(self) -> WorkerLost:
        losses = self._attempts.worker_losses
        logger.error("request given up", extra={"request_id": self._request.request_id, "losses": losses})
        return WorkerLost(f"decode workers broke {losses} times while they ran this request: it may be why")

    def _end_attempt(self) -> None:
        if self._call is not None:
            self._call.close()
            self._call = None
        if self._placement is not None:
            self._placement.release()
            self._placement = None


def _final_error(failure: AttemptFailed, final: FinalError, attempts: int) -> RouterError:
    match final:
        case FinalError.INVALID_INPUT:
            return InvalidInput(str(failure), param=failure.field or None)
        case FinalError.TOO_MANY_REQUESTS:
            error = TooManyRequests("every decode worker is at its limit")
            error.retry_after_s = failure.retry_after_s
            return error
        case FinalError.NO_WORKER:
            return NoWorker("no decode worker can take the request now")
        case FinalError.WORKER_LOST:
            return WorkerLost(f"decode worker lost after {attempts} attempts: {failure}")
        case FinalError.INTERNAL:
            return InternalError("a worker refused to go on with the request")
