"""Turns the drawn tokens of one choice into text, logprobs and a finish reason.

Called by `generation`, one `Choice` each. Text passes detokenization, then stop strings; a logprob entry goes out only
when the text of its token has gone out, so that entries never show what a stop string hides.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvarn_engine.core.ids import TokenId
from kvarn_engine.core.sampling import FinishReason, SampledToken

from kvarn_router.api.sampling_fields import OutputOptions
from kvarn_router.detokenization import Detokenizer
from kvarn_router.errors import WorkerLost
from kvarn_router.stop_strings import StopMatcher
from kvarn_router.tokenization import Tokenizer

_LOWEST_LOGPROB = -9999.0
"""JSON has no infinity; OpenAI sends this for tokens that could not be drawn."""


@dataclass(frozen=True, slots=True)
class TokenText:
    text: str
    raw: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token: TokenText
    top: tuple[TokenText, ...]
    offset: int
    """Where the token's text begins in the choice's text."""


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    index: int
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None

    @property
    def is_empty(self) -> bool:
        return not self.text and not self.logprobs and self.finish is None


class Choice:
    def __init__(
        self, index: int, tokenizer: Tokenizer, prompt_tokens: Sequence[TokenId], options: OutputOptions, offset: int
    ) -> None:
        self._index = index
        self._tokenizer = tokenizer
        self._options = options
        self._detokenizer = Detokenizer(self._decode, tokenizer.token_bytes, self._visible(prompt_tokens[-16:]))
        self._matcher = StopMatcher(options.stop, options.include_stop)
        # Entries wait here with the text length at which their token is complete.
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()
        self._read_length = offset
        self._sent_length = offset
        self.token_count = 0
        self.is_finished = False

    def add(self, tokens: Sequence[SampledToken]) -> ChoiceDelta:
        text = ""
        for token in tokens:
            if self.is_finished:
                break
            self.token_count += 1
            text += self._add_token(token)
        return self._delta(text)

    def finish(self, reason: FinishReason) -> ChoiceDelta:
        if reason is FinishReason.ABORTED:
            raise WorkerLost("The generation was aborted before its end.")
        text = self._pass(self._detokenizer.flush())
        if not self.is_finished:
            text += self._matcher.flush()
        self.is_finished = True
        delta = self._delta(text, flush=self._matcher.matched is None)
        return replace(delta, finish="stop" if self._matcher.matched is not None else reason.value)

    def _add_token(self, token: SampledToken) -> str:
        start = self._read_length
        piece = self._detokenizer.push(token.token_id) if self._is_shown(token.token_id) else ""
        self._read_length += len(piece)
        if token.logprob is not None:
            self._waiting.append((self._read_length, self._entry(token, start)))
        return self._pass(piece)

    def _pass(self, piece: str) -> str:
        """Stop strings are looked for only behind the first `min_tokens` tokens."""
        if not piece:
            return ""
        if self.token_count <= self._options.min_tokens:
            return piece
        safe = self._matcher.push(piece)
        if self._matcher.matched is not None:
            self.is_finished = True
        return safe

    def _delta(self, text: str, flush: bool = False) -> ChoiceDelta:
        self._sent_length += len(text)
        ready: list[TokenLogprob] = []
        while self._waiting and (flush or self._waiting[0][0] <= self._sent_length):
            ready.append(self._waiting.popleft()[1])
        finish = "stop" if self.is_finished and self._matcher.matched is not None else None
        return ChoiceDelta(self._index, text, tuple(ready), finish)

    def _is_shown(self, token: TokenId) -> bool:
        if token in self._options.terminal_ids and not self._options.include_stop:
            return False
        return not (self._options.skip_special_tokens and token in self._tokenizer.special_ids)

    def _visible(self, tokens: Sequence[TokenId]) -> list[TokenId]:
        if not self._options.skip_special_tokens:
            return list(tokens)
        return [token for token in tokens if token not in self._tokenizer.special_ids]

    def _decode(self, tokens: Sequence[TokenId]) -> str:
        return self._tokenizer.decode(tokens)

    def _entry(self, token: SampledToken, offset: int) -> TokenLogprob:
        assert token.logprob is not None
        top = tuple(self._text(entry.token_id, entry.logprob) for entry in token.top_logprobs)
        return TokenLogprob(self._text(token.token_id, token.logprob), top, offset)

    def _text(self, token: TokenId, logprob: float) -> TokenText:
        raw = self._tokenizer.token_bytes(token)
        return TokenText(self._tokenizer.token_text(token), raw, max(logprob, _LOWEST_LOGPROB))
