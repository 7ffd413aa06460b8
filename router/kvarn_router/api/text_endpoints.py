"""/tokenize and /detokenize, in the shape vLLM gives them. Used by `routes`."""

from starlette.types import Receive, Scope, Send

from kvarn_router.api.chat_request import read_chat
from kvarn_router.api.exchange import read_fields, send_json
from kvarn_router.api.sampling_fields import read_token_ids
from kvarn_router.api.services import Services
from kvarn_router.errors import InvalidInput


class TokenizeEndpoint:
    """Takes `prompt` or `messages`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fields = await read_fields(scope, receive, self._services.body_limits)
        self._services.read_model(fields, required=False)
        tokenizer = self._services.tokenizer
        with_pieces = fields.boolean("return_token_strs")
        if fields.has("messages"):
            if fields.has("prompt"):
                raise InvalidInput("Give either 'prompt' or 'messages', not both.", "prompt")
            tokens = await tokenizer.render(read_chat(fields))
        else:
            prompt = fields.text("prompt")
            if prompt is None:
                fields.missing("prompt")
            tokens = await tokenizer.encode(prompt, fields.boolean("add_special_tokens", True))
        pieces = [tokenizer.piece(token) for token in tokens] if with_pieces else None
        max_model_len = self._services.pipeline.card().max_model_len
        payload = {"count": len(tokens), "max_model_len": max_model_len, "tokens": tokens, "token_strs": pieces}
        await send_json(send, payload)


class DetokenizeEndpoint:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fields = await read_fields(scope, receive, self._services.body_limits)
        self._services.read_model(fields, required=False)
        entries = fields.items("tokens")
        if entries is None:
            fields.missing("tokens")
        tokenizer = self._services.tokenizer
        tokens = read_token_ids(entries, "tokens", tokenizer.vocab_size)
        await send_json(send, {"prompt": await tokenizer.decode_in_pool(tokens, False)})
