"""Refuses requests that can never succeed on this engine, naming the field."""

from kvarn_engine.core.errors import InvalidRequest
from kvarn_engine.core.plan import ModelRunner
from kvarn_engine.serving.protocol import RequestSpec


def check_request(spec: RequestSpec, num_prompt_tokens: int, runner: ModelRunner, max_sequences: int) -> None:
    """`spec.prompt_tokens` beyond `num_prompt_tokens` are output of a resumed stream."""
    _check_tokens(spec, runner.vocab_size)
    if not 0 < num_prompt_tokens <= len(spec.prompt_tokens):
        raise InvalidRequest("num_prompt_tokens", f"must be from 1 to {len(spec.prompt_tokens)}")
    indexes = [choice.index for choice in spec.choices]
    if not indexes or len(set(indexes)) != len(indexes):
        raise InvalidRequest("choices", "must name at least one choice, and each once")
    if len(indexes) > max_sequences:
        raise InvalidRequest("n", f"{len(indexes)} choices exceed this worker's limit of {max_sequences}")
    if spec.sampling.max_tokens < 1:
        raise InvalidRequest("max_tokens", "must be at least 1")
    total = num_prompt_tokens + spec.sampling.max_tokens
    if total > runner.max_model_len:
        raise InvalidRequest(
            "prompt_tokens",
            f"{num_prompt_tokens} prompt tokens and max_tokens {spec.sampling.max_tokens} exceed the model's limit of "
            f"{runner.max_model_len} tokens",
        )
    capacity = runner.num_blocks * runner.layout.block_size
    if total > capacity:
        raise InvalidRequest(
            "prompt_tokens",
            f"{num_prompt_tokens} prompt tokens and max_tokens {spec.sampling.max_tokens} exceed this worker's KV "
            f"store of {capacity} tokens",
        )


def _check_tokens(spec: RequestSpec, vocab_size: int) -> None:
    if not spec.prompt_tokens:
        raise InvalidRequest("prompt_tokens", "must not be empty")
    for tokens in (spec.prompt_tokens, *(choice.output_tokens for choice in spec.choices)):
        if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
            raise InvalidRequest("prompt_tokens", f"token ids must be from 0 to {vocab_size - 1}")
