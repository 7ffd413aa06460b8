"""/v1/completions: its request and the shapes of its answers. Used by `endpoint`."""

from kvarn_router.api.choices import ChoiceDelta, TokenLogprob
from kvarn_router.api.completion_request import (
    TextOrTokens,
    read_completion_logprobs,
    read_prompts,
    refuse_completion_options,
)
from kvarn_router.api.fields import Fields
from kvarn_router.api.generation import Usage
from kvarn_router.api.requests import Job, Prompt
from kvarn_router.api.sampling_fields import read_common, read_max_tokens
from kvarn_router.api.services import Services
from kvarn_router.api.shapes import FinishedChoice, Head, Payload, usage_payload

_DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for this endpoint."""


class CompletionShape:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def parse(self, fields: Fields) -> Job:
        model = self._services.read_model(fields)
        refuse_completion_options(fields)
        vocabulary = self._services.vocabulary
        max_tokens = read_max_tokens(fields, "max_tokens")
        draw_seed = self._services.sources.draw_seed
        common = read_common(fields, max_tokens, read_completion_logprobs(fields), vocabulary, draw_seed)
        prompts = read_prompts(fields, vocabulary.size, self._services.settings.max_prompts)
        echo, special = fields.boolean("echo"), fields.boolean("add_special_tokens", True)
        read = [await self._prompt(prompt, echo, special) for prompt in prompts]
        return Job(model, tuple(read), common, _DEFAULT_MAX_TOKENS, "prompt")

    def opening(self, head: Head, index: int, echo: str) -> Payload | None:
        return self._chunk(head, index, echo, None, None) if echo else None

    def chunk(self, head: Head, delta: ChoiceDelta) -> Payload:
        return self._chunk(head, delta.index, delta.text, _logprobs(head, delta.logprobs), delta.finish)

    def usage_chunk(self, head: Head, usage: Usage) -> Payload:
        return {**_head(head), "choices": [], "usage": usage_payload(usage)}

    def whole(self, head: Head, choices: list[FinishedChoice], usage: Usage) -> Payload:
        entries = [
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": _logprobs(head, choice.logprobs),
                "finish_reason": choice.finish,
            }
            for choice in choices
        ]
        return {**_head(head), "choices": entries, "usage": usage_payload(usage)}

    async def _prompt(self, prompt: TextOrTokens, echo: bool, add_special_tokens: bool) -> Prompt:
        tokenizer = self._services.tokenizer
        if isinstance(prompt, str):
            return Prompt(await tokenizer.encode(prompt, add_special_tokens), prompt if echo else "")
        return Prompt(prompt, await tokenizer.decode_in_pool(prompt, True) if echo else "")

    def _chunk(self, head: Head, index: int, text: str, logprobs: Payload | None, finish: str | None) -> Payload:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        return {**_head(head), "choices": [choice]}


def _head(head: Head) -> dict[str, object]:
    return {
        "id": f"cmpl-{head.request_id}",
        "object": "text_completion",
        "created": head.created,
        "model": head.model,
    }


def _logprobs(head: Head, entries: tuple[TokenLogprob, ...]) -> Payload | None:
    if not head.with_logprobs:
        return None
    return {
        "tokens": [entry.token.text for entry in entries],
        "token_logprobs": [entry.token.logprob for entry in entries],
        # As documented for this API: the drawn token too, when it is not one of the likeliest.
        "top_logprobs": [{token.text: token.logprob for token in (*entry.top, entry.token)} for entry in entries],
        "text_offset": [entry.offset for entry in entries],
    }
