"""How the tokens of a request are drawn, and what a draw returns.

Shared by router (validation, defaults), wire (conversion) and runtime (sampling). Knows nothing of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from kvarn_engine.core.ids import TokenId

_NO_BIAS: Mapping[TokenId, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Parameters of one request, the same for all of its choices. Validated by whoever builds it from user input."""

    max_tokens: int
    """Upper bound of output tokens for each choice."""

    temperature: float = 1.0
    """0 is greedy."""

    top_p: float = 1.0
    top_k: int = 0
    """0 is off."""

    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    """Frequency and presence penalties count output tokens only, as the OpenAI API defines them."""

    repetition_penalty: float = 1.0
    """Counts prompt and output tokens (CTRL, arXiv:1909.05858); 1 is off."""

    logit_bias: Mapping[TokenId, float] = field(default_factory=lambda: _NO_BIAS)
    seed: int = 0
    """Unsigned 64-bit. The draw for position i of choice c is keyed (seed, i, c), never a stateful generator."""

    logprobs: int | None = None
    """None: no logprobs; 0: the sampled token's only; k: also the k most likely tokens."""

    min_tokens: int = 0
    """End-of-sequence and stop token ids cannot be drawn before this many output tokens."""

    stop_token_ids: frozenset[TokenId] = frozenset()
    ignore_eos: bool = False

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class TopLogprob:
    token_id: TokenId
    logprob: float


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One drawn token. Logprobs are natural logs of the model's own distribution, before temperature and penalties."""

    token_id: TokenId
    logprob: float | None = None
    top_logprobs: tuple[TopLogprob, ...] = ()


class FinishReason(Enum):
    STOP = "stop"
    """End of sequence or a stop token id; that token is the last one of the choice."""

    LENGTH = "length"
    ABORTED = "aborted"
