"""What of a request has reached the client so far: all that another worker needs to go on. Pure; used by `stream`."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kvarn_engine.core.ids import TokenId
from kvarn_engine.core.sampling import FinishReason, SampledToken

from kvarn_router.context import FinishedEvent, GenerationRequest, TokensEvent


@dataclass(slots=True)
class ChoiceProgress:
    index: int
    output_tokens: list[TokenId] = field(default_factory=list)
    stopped: bool = False
    """The API saw a stop string: tokens that still arrive are dropped."""

    finished: bool = False


class Progress:
    def __init__(self, request: GenerationRequest, eos_token_ids: frozenset[TokenId]) -> None:
        sampling = request.sampling
        self._prompt_tokens = request.prompt_tokens
        self._max_tokens = sampling.max_tokens
        self._end_tokens = sampling.stop_token_ids | (frozenset() if sampling.ignore_eos else eos_token_ids)
        self._choices = [ChoiceProgress(index) for index in range(request.num_choices)]

    @property
    def has_tokens(self) -> bool:
        return any(choice.output_tokens for choice in self._choices)

    @property
    def longest_output(self) -> int:
        return max(len(choice.output_tokens) for choice in self._choices)

    @property
    def all_stopped(self) -> bool:
        """Nothing but end events is still expected."""
        return all(choice.stopped or choice.finished for choice in self._choices)

    @property
    def unfinished(self) -> tuple[ChoiceProgress, ...]:
        return tuple(choice for choice in self._choices if not choice.finished)

    @property
    def tokens(self) -> Sequence[TokenId]:
        """What is computed again when the request moves: one choice brings its output, several only their prompt."""
        if len(self._choices) > 1:
            return self._prompt_tokens
        return (*self._prompt_tokens, *self._choices[0].output_tokens)

    @property
    def may_use_peers(self) -> bool:
        """A prefill peer draws for choices that stand at one position; after a move of many they do not."""
        return len(self._choices) == 1 or not self.has_tokens

    def limit(self, max_tokens: int) -> None:
        """The worker that goes on ends every choice there."""
        self._max_tokens = max_tokens

    def stop(self, choice: int) -> bool:
        """Whether this was news."""
        progress = self._choices[choice]
        if progress.stopped or progress.finished:
            return False
        progress.stopped = True
        return True

    def take_tokens(self, choice: int, tokens: tuple[SampledToken, ...]) -> TokensEvent | None:
        progress = self._choices[choice]
        if progress.stopped or progress.finished or not tokens:
            return None
        progress.output_tokens.extend(token.token_id for token in tokens)
        return TokensEvent(choice, tokens)

    def finish(self, choice: int, reason: FinishReason) -> FinishedEvent | None:
        progress = self._choices[choice]
        if progress.finished:
            return None
        progress.finished = True
        return FinishedEvent(choice, reason)

    def finish_complete(self) -> list[FinishedEvent]:
        """End the choices whose last token was sent, though the worker was lost before it said so."""
        events = []
        for choice in self.unfinished:
            reason = self._implied_reason(choice)
            if reason is not None:
                choice.finished = True
                events.append(FinishedEvent(choice.index, reason))
        return events

    def _implied_reason(self, choice: ChoiceProgress) -> FinishReason | None:
        if choice.stopped:
            return FinishReason.ABORTED
        if choice.output_tokens and choice.output_tokens[-1] in self._end_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if len(choice.output_tokens) >= self._max_tokens else None
