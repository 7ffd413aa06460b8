"""Parses the prompts of /v1/completions. Called by `completions`; knows nothing of HTTP."""

from collections.abc import Sequence

from kvarn_engine.core.ids import TokenId

from kvarn_router.api.fields import Fields, clean_text, wrong_type, wrong_value
from kvarn_router.api.sampling_fields import read_token_ids
from kvarn_router.errors import InvalidInput

TextOrTokens = str | tuple[TokenId, ...]


def read_prompts(fields: Fields, vocabulary_size: int, max_prompts: int) -> list[TextOrTokens]:
    """A string, a list of strings, a list of token ids, or a list of lists of token ids."""
    value = fields.raw("prompt")
    if value is None:
        fields.missing("prompt")
    if isinstance(value, str):
        return [_read_text(value, "prompt")]
    if not isinstance(value, list):
        fields.wrong_type("prompt", "a string or an array", value)
    if not value:
        fields.wrong_value("prompt", "must not be empty")
    if isinstance(value[0], int) and not isinstance(value[0], bool):
        return [_read_tokens(value, "prompt", vocabulary_size)]
    if len(value) > max_prompts:
        fields.wrong_value("prompt", f"must hold at most {max_prompts} prompts, but got {len(value)}")
    return [_read_entry(entry, f"prompt[{i}]", value[0], vocabulary_size) for i, entry in enumerate(value)]


def read_completion_logprobs(fields: Fields) -> int | None:
    return fields.integer("logprobs", 0, 5)


def refuse_completion_options(fields: Fields) -> None:
    if fields.text("suffix"):
        raise InvalidInput("'suffix' is not supported by this server.", "suffix", "unsupported_parameter")
    echo = fields.boolean("echo")
    if echo and fields.has("logprobs"):
        message = "'echo' together with 'logprobs' is not supported: prompt tokens have no logprobs here."
        raise InvalidInput(message, "echo", "unsupported_parameter")
    best_of = fields.integer("best_of", 1, 20)
    if best_of is not None and best_of != (fields.integer("n", 1, 8) or 1):
        raise InvalidInput("'best_of' other than 'n' is not supported.", "best_of", "unsupported_parameter")


def _read_entry(entry: object, name: str, first: object, vocabulary_size: int) -> TextOrTokens:
    if isinstance(first, str) and isinstance(entry, str):
        return _read_text(entry, name)
    if isinstance(first, list) and isinstance(entry, list):
        return _read_tokens(entry, name, vocabulary_size)
    if isinstance(first, str):
        raise wrong_type(name, "a string", entry)
    if isinstance(first, list):
        raise wrong_type(name, "an array of token ids", entry)
    raise wrong_type(name, "a string or an array of token ids", entry)


def _read_text(value: str, name: str) -> str:
    if not value:
        raise wrong_value(name, "must not be empty")
    return clean_text(value, name)


def _read_tokens(value: Sequence[object], name: str, vocabulary_size: int) -> tuple[TokenId, ...]:
    if not value:
        raise wrong_value(name, "must not be empty")
    return read_token_ids(value, name, vocabulary_size)
