"""The model's tokenizer and chat template, off the event loop.

Built once by the router's composition root and used by `api/`. Holds the only thread pool that text work runs in.
Reads a Hugging Face model folder with `tokenizers` and jinja2 alone, so that a router never installs torch.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import tokenizers
from kvarn_engine.core.ids import TokenId

from kvarn_router.chat_template import Chat, ChatTemplate
from kvarn_router.errors import InvalidInput
from kvarn_router.token_bytes import TokenBytes

_SPECIAL_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    def __init__(
        self, backend: tokenizers.Tokenizer, template: ChatTemplate | None, eos_ids: frozenset[TokenId], threads: int
    ) -> None:
        self._backend = backend
        self._template = template
        self._bytes = TokenBytes(backend)
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tokenizer")
        self.eos_ids = eos_ids
        self.vocab_size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self.special_ids = frozenset(
            token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special
        )

    @classmethod
    def load(cls, folder: Path, threads: int = 2, now: Callable[[], datetime] = datetime.now) -> "Tokenizer":
        """Raises OSError or ValueError when the folder has no readable tokenizer."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"{folder} has no tokenizer.json")
        backend = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        backend.no_padding()
        backend.no_truncation()
        # The file's own post-processor decides about bos and eos, as in Hugging Face's loaders.
        config = _read_json(folder / "tokenizer_config.json")
        source = _template_source(folder, config)
        special = _special_tokens(folder, config)
        template = ChatTemplate(source, special, now) if source is not None else None
        return cls(backend, template, _eos_ids(folder, backend, special), threads)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def encode(self, text: str, add_special_tokens: bool = True) -> tuple[TokenId, ...]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._encode, text, add_special_tokens)

    async def render(self, chat: Chat) -> tuple[TokenId, ...]:
        """The chat as prompt tokens. The template writes bos itself, so none is added here."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._render, chat)

    async def decode_in_pool(self, tokens: Sequence[TokenId], skip_special_tokens: bool) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self.decode, tokens, skip_special_tokens)

    def render_text(self, chat: Chat) -> str:
        if self._template is None:
            raise InvalidInput("This model has no chat template; use /v1/completions", "messages")
        return self._template.render(chat)

    def decode(self, tokens: Sequence[TokenId], skip_special_tokens: bool = False) -> str:
        return self._backend.decode(tokens, skip_special_tokens=skip_special_tokens)

    def token_bytes(self, token: TokenId) -> bytes:
        return self._bytes.of(token)

    def token_text(self, token: TokenId) -> str:
        """One token alone, for logprobs. Bytes that are no whole character are written out, never as a replacement."""
        raw = self._bytes.of(token)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def piece(self, token: TokenId) -> str:
        """The vocabulary's own spelling."""
        return self._backend.id_to_token(token) or ""

    def _encode(self, text: str, add_special_tokens: bool) -> tuple[TokenId, ...]:
        # As a batch of one: `encode` keeps the interpreter's lock for the whole text, and with it the event loop.
        (encoded,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoded.ids)

    def _render(self, chat: Chat) -> tuple[TokenId, ...]:
        return self._encode(self.render_text(chat), add_special_tokens=False)


def _read_json(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict):
        raise ValueError(f"{path.name} does not hold a JSON object")
    return data


def _template_source(folder: Path, config: dict[str, object]) -> str | None:
    """A file of its own goes before the configuration's field; of several named templates the default one is used."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    entry = config.get("chat_template")
    if isinstance(entry, str):
        return entry
    for named in entry if isinstance(entry, list) else ():
        if isinstance(named, dict) and named.get("name") == "default":
            return str(named["template"])
    return None


def _special_tokens(folder: Path, config: dict[str, object]) -> dict[str, str]:
    merged = {**_read_json(folder / "special_tokens_map.json"), **config}
    found: dict[str, str] = {}
    for name in _SPECIAL_NAMES:
        value = merged.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        if isinstance(content, str):
            found[name] = content
    return found


def _eos_ids(folder: Path, backend: tokenizers.Tokenizer, special: dict[str, str]) -> frozenset[TokenId]:
    """The generation settings' ids, else the model's, else the tokenizer's."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        found = frozenset(token for token in ids if isinstance(token, int))
        if found:
            return found
    token = backend.token_to_id(special.get("eos_token", ""))
    return frozenset() if token is None else frozenset({token})
