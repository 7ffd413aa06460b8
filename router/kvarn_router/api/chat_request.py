"""Parses the body of /v1/chat/completions. Called by `chat`; knows nothing of HTTP."""

from kvarn_router.api.fields import Fields, clean_text, wrong_type, wrong_value
from kvarn_router.chat_template import Chat, ChatMessage
from kvarn_router.errors import InvalidInput

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_MAX_MESSAGES = 4096


def read_chat(fields: Fields) -> Chat:
    entries = fields.items("messages")
    if entries is None:
        fields.missing("messages")
    if not 1 <= len(entries) <= _MAX_MESSAGES:
        fields.wrong_value("messages", f"must hold 1 to {_MAX_MESSAGES} messages, but got {len(entries)}")
    messages = tuple(_read_message(entry, f"messages[{position}]") for position, entry in enumerate(entries))
    continued = fields.boolean("continue_final_message")
    generation_prompt = fields.boolean("add_generation_prompt", not continued)
    if continued and generation_prompt:
        message = "'continue_final_message' and 'add_generation_prompt' cannot both be true."
        raise InvalidInput(message, "continue_final_message")
    return Chat(messages, generation_prompt, continued, fields.mapping("chat_template_kwargs") or {})


def read_chat_logprobs(fields: Fields) -> int | None:
    wanted = fields.boolean("logprobs")
    top = fields.integer("top_logprobs", 0, 20)
    if top is not None and not wanted:
        raise InvalidInput("'top_logprobs' needs 'logprobs' to be true.", "top_logprobs")
    return (top or 0) if wanted else None


def _read_message(entry: object, path: str) -> ChatMessage:
    if not isinstance(entry, dict):
        raise wrong_type(path, "an object", entry)
    fields = Fields(entry, path)
    role = fields.text("role")
    if role is None:
        fields.missing("role")
    if role not in _ROLES:
        name = fields.name("role")
        if role in ("tool", "function"):
            raise InvalidInput(f"Messages of role '{role}' are not supported.", name, "unsupported_parameter")
        raise wrong_value(name, "must be one of system, developer, user, assistant")
    for key in ("tool_calls", "function_call", "audio"):
        if fields.raw(key):
            raise InvalidInput(f"'{fields.name(key)}' is not supported.", fields.name(key), "unsupported_parameter")
    return ChatMessage(_ROLES[role], _read_content(fields), fields.text("name"))


def _read_content(fields: Fields) -> str:
    value = fields.raw("content")
    name = fields.name("content")
    if value is None:
        fields.missing("content")
    if isinstance(value, str):
        return clean_text(value, name)
    if not isinstance(value, list):
        raise wrong_type(name, "a string or an array of content parts", value)
    return "\n".join(_read_part(part, f"{name}[{position}]") for position, part in enumerate(value))


def _read_part(part: object, path: str) -> str:
    if not isinstance(part, dict):
        raise wrong_type(path, "an object", part)
    fields = Fields(part, path)
    kind = fields.text("type")
    if kind is None:
        fields.missing("type")
    if kind != "text":
        message = f"Content parts other than text are not supported ('{fields.name('type')}')."
        raise InvalidInput(message, fields.name("type"), "unsupported_content")
    text = fields.text("text")
    if text is None:
        fields.missing("text")
    return text
