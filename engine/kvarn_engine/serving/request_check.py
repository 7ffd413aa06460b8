"""Refuses requests that can never succeed on this engine, naming the field."""

from dataclasses import dataclass

from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.serving.protocol import RequestSpec


@dataclass(frozen=True, slots=True)
class RequestLimits:
    vocab_size: int
    max_model_len: int
    max_sequences: int
    kv_tokens: int
    """Tokens that the whole KV store holds."""

    def check_prefill(self, spec: RequestSpec, num_prompt_tokens: int, have_blocks: int, block_size: int) -> None:
        """`spec.prompt_tokens` beyond `num_prompt_tokens` are output of a resumed stream. Only what is computed needs
        room here; the output to come does not."""
        self._check(spec, num_prompt_tokens)
        if not 0 < num_prompt_tokens <= len(spec.prompt_tokens):
            raise InvalidRequest("num_prompt_tokens", f"must be from 1 to {len(spec.prompt_tokens)}")
        num_blocks = -(-len(spec.prompt_tokens) // block_size)
        if not 0 <= have_blocks <= num_blocks:
            raise InvalidRequest("have_blocks", f"must be from 0 to {num_blocks}")
        if len(spec.prompt_tokens) > self.kv_tokens:
            raise InvalidRequest(
                "prompt_tokens",
                f"{len(spec.prompt_tokens)} tokens exceed this worker's KV store of {self.kv_tokens} tokens",
            )

    def check_generation(self, spec: RequestSpec) -> None:
        self._check(spec, len(spec.prompt_tokens))
        total = len(spec.prompt_tokens) + spec.sampling.max_tokens
        if total > self.kv_tokens:
            raise InvalidRequest(
                "prompt_tokens",
                f"{len(spec.prompt_tokens)} prompt tokens and max_tokens {spec.sampling.max_tokens} exceed this "
                f"worker's KV store of {self.kv_tokens} tokens",
            )

    def _check(self, spec: RequestSpec, num_prompt_tokens: int) -> None:
        self._check_tokens(spec)
        self._check_choices(spec)
        max_tokens = spec.sampling.max_tokens
        if max_tokens < 1:
            raise InvalidRequest("max_tokens", "must be at least 1")
        if num_prompt_tokens + max_tokens > self.max_model_len:
            raise InvalidRequest(
                "prompt_tokens",
                f"{num_prompt_tokens} prompt tokens and max_tokens {max_tokens} exceed the model's limit of "
                f"{self.max_model_len} tokens",
            )

    def _check_choices(self, spec: RequestSpec) -> None:
        indexes = [choice.index for choice in spec.choices]
        if not indexes or len(set(indexes)) != len(indexes):
            raise InvalidRequest("choices", "must name at least one choice, and each once")
        if len(indexes) > self.max_sequences:
            raise InvalidRequest("n", f"{len(indexes)} choices exceed this worker's limit of {self.max_sequences}")

    def _check_tokens(self, spec: RequestSpec) -> None:
        if not spec.prompt_tokens:
            raise InvalidRequest("prompt_tokens", "must not be empty")
        for tokens in (spec.prompt_tokens, *(choice.output_tokens for choice in spec.choices)):
            if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocab_size):
                raise InvalidRequest("prompt_tokens", f"token ids must be from 0 to {self.vocab_size - 1}")
