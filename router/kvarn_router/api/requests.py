"""What the parsers hand to `generation`: a job of one or more prompts with the same parameters."""

from dataclasses import dataclass

from kvarn_engine.core.ids import TokenId

from kvarn_router.api.sampling_fields import CommonFields


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: tuple[TokenId, ...]
    echo: str = ""
    """Text put in front of the output."""


@dataclass(frozen=True, slots=True)
class Job:
    model: str
    """The name the client used."""

    prompts: tuple[Prompt, ...]
    common: CommonFields
    default_max_tokens: int
    """Output limit when the client gave none; 0: as many as fit behind the prompt."""

    prompt_field: str
    """Name of the body's field that the prompts come from."""
