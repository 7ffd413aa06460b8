"""Renders a chat into the model's prompt text, as Hugging Face tokenizers do: same sandbox, filters and globals.

Called by `tokenization.Tokenizer` in its thread pool. Knows nothing of HTTP or of token ids.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kvarn_router.errors import InvalidInput

_CUT_MARK = "\u241fkvarn-continue\u241f "
_RESERVED = frozenset({"messages", "add_generation_prompt", "continue_final_message", "tools", "documents"})


@dataclass(frozen=True, slots=True)
class ChatMessage:
    role: str
    content: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Chat:
    """What a template is given."""

    messages: tuple[ChatMessage, ...]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, object] = field(default_factory=dict)


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's part for training; serving renders what is inside it."""

    tags = {"generation"}  # noqa: RUF012  jinja2 declares it as a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    def __init__(self, source: str, special_tokens: Mapping[str, str], now: Callable[[], datetime]) -> None:
        self._special_tokens = dict(special_tokens)
        self._template = _environment(now).from_string(source)

    def render(self, chat: Chat) -> str:
        messages = [_as_template_data(message) for message in chat.messages]
        if chat.continue_final_message:
            messages[-1]["content"] += _CUT_MARK
        text = self._render(messages, chat)
        return _cut_at_mark(text) if chat.continue_final_message else text

    def _render(self, messages: Sequence[Mapping[str, str]], chat: Chat) -> str:
        reserved = _RESERVED & chat.template_kwargs.keys()
        if reserved:
            name = min(reserved)
            raise InvalidInput(f"'{name}' cannot be set in 'chat_template_kwargs'", "chat_template_kwargs")
        variables = {
            **self._special_tokens,
            "tools": None,
            "documents": None,
            **chat.template_kwargs,
            "messages": messages,
            "add_generation_prompt": chat.add_generation_prompt,
        }
        try:
            return self._template.render(variables)
        except jinja2.TemplateError as error:
            raise InvalidInput(f"The chat template refused the messages: {error}", "messages") from error
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
            raise InvalidInput("The chat template cannot render these messages", "messages") from error


def _as_template_data(message: ChatMessage) -> dict[str, str]:
    data = {"role": message.role, "content": message.content}
    if message.name is not None:
        data["name"] = message.name
    return data


def _cut_at_mark(text: str) -> str:
    """Ends the prompt where the final message ends. A template that trims content has lost the mark's last space."""
    at = text.rfind(_CUT_MARK.strip())
    if at < 0:
        raise InvalidInput("The chat template does not keep the final message, so it cannot be continued", "messages")
    head = text[:at]
    return head if text.startswith(_CUT_MARK, at) else head.rstrip()


def _environment(now: Callable[[], datetime]) -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationTag]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: now().strftime(pattern)
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML characters, which would put other tokens into the prompt."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)
