"""/v1/chat/completions: its request and the shapes of its answers. Used by `endpoint`."""

from kvarn_router.api.chat_request import read_chat, read_chat_logprobs
from kvarn_router.api.choices import ChoiceDelta, TokenLogprob, TokenText
from kvarn_router.api.fields import Fields
from kvarn_router.api.generation import Usage
from kvarn_router.api.requests import Job, Prompt
from kvarn_router.api.sampling_fields import read_common, read_max_tokens
from kvarn_router.api.services import Services
from kvarn_router.api.shapes import FinishedChoice, Head, Payload, usage_payload


class ChatShape:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def parse(self, fields: Fields) -> Job:
        model = self._services.read_model(fields)
        max_tokens = read_max_tokens(fields, "max_completion_tokens", "max_tokens")
        draw_seed = self._services.sources.draw_seed
        common = read_common(fields, max_tokens, read_chat_logprobs(fields), self._services.vocabulary, draw_seed)
        chat = read_chat(fields)
        prompt = Prompt(await self._services.tokenizer.render(chat))
        return Job(model, (prompt,), common, self._services.settings.default_max_tokens, "messages")

    def opening(self, head: Head, index: int, echo: str) -> Payload:
        return self._chunk(head, index, {"role": "assistant", "content": ""}, None, None)

    def chunk(self, head: Head, delta: ChoiceDelta) -> Payload:
        content = {"content": delta.text} if delta.text or delta.logprobs else {}
        return self._chunk(head, delta.index, content, _logprobs(head, delta.logprobs), delta.finish)

    def usage_chunk(self, head: Head, usage: Usage) -> Payload:
        return {**_head(head, "chat.completion.chunk"), "choices": [], "usage": usage_payload(usage)}

    def whole(self, head: Head, choices: list[FinishedChoice], usage: Usage) -> Payload:
        entries = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": _logprobs(head, choice.logprobs),
                "finish_reason": choice.finish,
            }
            for choice in choices
        ]
        return {**_head(head, "chat.completion"), "choices": entries, "usage": usage_payload(usage)}

    def _chunk(self, head: Head, index: int, delta: Payload, logprobs: Payload | None, finish: str | None) -> Payload:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**_head(head, "chat.completion.chunk"), "choices": [choice]}


def _head(head: Head, kind: str) -> dict[str, object]:
    return {"id": f"chatcmpl-{head.request_id}", "object": kind, "created": head.created, "model": head.model}


def _logprobs(head: Head, entries: tuple[TokenLogprob, ...]) -> Payload | None:
    if not head.with_logprobs:
        return None
    content = [{**_token(entry.token), "top_logprobs": [_token(token) for token in entry.top]} for entry in entries]
    return {"content": content, "refusal": None}


def _token(token: TokenText) -> dict[str, object]:
    return {"token": token.text, "logprob": token.logprob, "bytes": list(token.raw)}
