"""The parameters that chat and completions share: how tokens are drawn, where output ends, what is refused.

Called by `chat_request` and `completion_request`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from kvarn_engine.core.ids import TokenId
from kvarn_engine.core.sampling import SamplingParams

from kvarn_router.api.fields import Fields, clean_text, wrong_type, wrong_value
from kvarn_router.errors import InvalidInput

MAX_CHOICES = 8
_MAX_STOPS = 16
_MAX_STOP_IDS = 128
_MAX_BIASES = 1024
_TOKEN_LIMIT = 2**31 - 1
_SEED_VALUES = 2**64

_UNBUILT = ("tools", "functions", "audio", "prediction", "web_search_options", "guided_json", "guided_regex",
            "guided_choice", "guided_grammar", "structured_outputs")  # fmt: skip
_UNBUILT_CHOICES = ("tool_choice", "function_call")


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How drawn tokens become text."""

    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special_tokens: bool = True
    min_tokens: int = 0
    terminal_ids: frozenset[TokenId] = field(default_factory=frozenset)
    """Ids that end a choice; their own text is shown only with `include_stop`."""


@dataclass(frozen=True, slots=True)
class CommonFields:
    sampling: SamplingParams
    """`max_tokens` is 0 until the prompt's length is known, unless the client gave one."""

    output: OutputOptions
    num_choices: int
    stream: bool
    include_usage: bool
    priority: int
    cache_salt: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    size: int
    eos_ids: frozenset[TokenId]


def read_common(
    fields: Fields, max_tokens: int | None, logprobs: int | None, vocabulary: Vocabulary, draw_seed: Callable[[], int]
) -> CommonFields:
    refuse_unbuilt(fields)
    fields.text("user")  # Has no effect, but a wrong type is still the client's mistake.
    sampling = _read_sampling(fields, max_tokens or 0, logprobs, vocabulary, draw_seed)
    stream = fields.boolean("stream")
    return CommonFields(
        sampling=sampling,
        output=_read_output(fields, sampling, vocabulary),
        num_choices=fields.integer("n", 1, MAX_CHOICES) or 1,
        stream=stream,
        include_usage=_read_include_usage(fields, stream),
        priority=fields.integer("priority", -(2**31), 2**31 - 1) or 0,
        cache_salt=_read_salt(fields),
    )


def read_max_tokens(fields: Fields, *keys: str) -> int | None:
    """Every key is checked; the first that is present counts."""
    values = [fields.integer(key, 1, _TOKEN_LIMIT) for key in keys]
    return next((value for value in values if value is not None), None)


def refuse_unbuilt(fields: Fields) -> None:
    for key in _UNBUILT:
        if fields.raw(key):
            raise InvalidInput(f"'{key}' is not supported by this server.", key, "unsupported_parameter")
    for key in _UNBUILT_CHOICES:
        if fields.has(key) and fields.raw(key) not in ("none", "auto"):
            raise InvalidInput(f"'{key}' is not supported by this server.", key, "unsupported_parameter")
    form = fields.group("response_format")
    if form is not None and form.text("type") != "text":
        message = '\'response_format\' other than {"type": "text"} is not supported by this server.'
        raise InvalidInput(message, "response_format", "unsupported_parameter")
    modalities = fields.items("modalities")
    if modalities and modalities != ["text"]:
        raise InvalidInput("'modalities' other than text are not supported.", "modalities", "unsupported_parameter")


def _read_sampling(
    fields: Fields, max_tokens: int, logprobs: int | None, vocabulary: Vocabulary, draw_seed: Callable[[], int]
) -> SamplingParams:
    seed = fields.integer("seed", -(2**63), _SEED_VALUES - 1)
    min_tokens = fields.integer("min_tokens", 0, _TOKEN_LIMIT) or 0
    if max_tokens and min_tokens > max_tokens:
        fields.wrong_value("min_tokens", f"must be at most max_tokens ({max_tokens}), but got {min_tokens}")
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=fields.number("temperature", 1.0, 0, 2),
        top_p=fields.number("top_p", 1.0, 0, 1, above=True),
        top_k=max(fields.integer("top_k", -1, _TOKEN_LIMIT) or 0, 0),
        min_p=fields.number("min_p", 0.0, 0, 1),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2, 2),
        presence_penalty=fields.number("presence_penalty", 0.0, -2, 2),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0, 100, above=True),
        logit_bias=_read_logit_bias(fields, vocabulary.size),
        seed=draw_seed() if seed is None else seed % _SEED_VALUES,
        logprobs=logprobs,
        min_tokens=min_tokens,
        stop_token_ids=_read_stop_ids(fields, vocabulary.size),
        ignore_eos=fields.boolean("ignore_eos"),
    )


def _read_output(fields: Fields, sampling: SamplingParams, vocabulary: Vocabulary) -> OutputOptions:
    eos_ids: frozenset[TokenId] = frozenset() if sampling.ignore_eos else vocabulary.eos_ids
    return OutputOptions(
        stop=_read_stop(fields),
        include_stop=fields.boolean("include_stop_str_in_output"),
        skip_special_tokens=fields.boolean("skip_special_tokens", True),
        min_tokens=sampling.min_tokens,
        terminal_ids=sampling.stop_token_ids | eos_ids,
    )


def _read_stop(fields: Fields) -> tuple[str, ...]:
    value = fields.raw("stop")
    if value is None:
        return ()
    if isinstance(value, str):
        entries: list[object] = [value]
    elif isinstance(value, list):
        entries = value
    else:
        fields.wrong_type("stop", "a string or an array of strings", value)
    if len(entries) > _MAX_STOPS:
        fields.wrong_value("stop", f"must hold at most {_MAX_STOPS} strings, but got {len(entries)}")
    stops: list[str] = []
    for position, entry in enumerate(entries):
        name = "stop" if isinstance(value, str) else f"stop[{position}]"
        if not isinstance(entry, str):
            raise wrong_type(name, "a string", entry)
        if not entry:
            raise wrong_value(name, "must not be empty")
        stops.append(clean_text(entry, name))
    return tuple(stops)


def _read_stop_ids(fields: Fields, vocabulary_size: int) -> frozenset[TokenId]:
    entries = fields.items("stop_token_ids") or []
    if len(entries) > _MAX_STOP_IDS:
        fields.wrong_value("stop_token_ids", f"must hold at most {_MAX_STOP_IDS} ids, but got {len(entries)}")
    return frozenset(read_token_ids(entries, "stop_token_ids", vocabulary_size))


def read_token_ids(values: Sequence[object], name: str, vocabulary_size: int) -> tuple[TokenId, ...]:
    return tuple(
        # Prompts may hold a million ids: names are made up for the wrong ones only.
        value if type(value) is int and 0 <= value < vocabulary_size else _bad_token_id(value, name, i, vocabulary_size)
        for i, value in enumerate(values)
    )


def _bad_token_id(value: object, name: str, position: int, vocabulary_size: int) -> NoReturn:
    read_token_id(value, f"{name}[{position}]", vocabulary_size)
    raise AssertionError("a good token id was taken for a bad one")


def read_token_id(value: object, name: str, vocabulary_size: int) -> TokenId:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, "an integer", value)
    if not 0 <= value < vocabulary_size:
        raise wrong_value(name, f"token id {value} is outside the vocabulary of {vocabulary_size}")
    return value


def _read_logit_bias(fields: Fields, vocabulary_size: int) -> Mapping[TokenId, float]:
    entries = fields.mapping("logit_bias") or {}
    if len(entries) > _MAX_BIASES:
        fields.wrong_value("logit_bias", f"must hold at most {_MAX_BIASES} entries, but got {len(entries)}")
    biases: dict[TokenId, float] = {}
    values = Fields(entries, "logit_bias")
    for key in entries:
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise wrong_value("logit_bias", "keys must be token ids")
        token = read_token_id(int(key), "logit_bias", vocabulary_size)
        biases[token] = values.number(key, 0.0, -100, 100)
    return biases


def _read_include_usage(fields: Fields, stream: bool) -> bool:
    options = fields.group("stream_options")
    if options is None:
        return False
    if not stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise InvalidInput(message, "stream_options")
    return options.boolean("include_usage")


def _read_salt(fields: Fields) -> str:
    salt = fields.text("cache_salt")
    if salt is not None and not 1 <= len(salt) <= 256:
        fields.wrong_value("cache_salt", "must be 1 to 256 characters")
    return salt or ""
