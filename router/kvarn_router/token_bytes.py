"""The bytes behind one token, for logprobs and for finding character borders.

Called by `tokenization`. Knows the two ways vocabularies spell bytes: GPT-2's printable stand-ins (byte-level BPE) and
`<0xAB>` pieces with `▁` for a space (SentencePiece with byte fallback).
"""

import json
import re

import tokenizers
from kvarn_engine.core.ids import TokenId

_BYTE_PIECE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE_MARK = "\u2581"


class TokenBytes:
    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._added = {i: t.content.encode() for i, t in backend.get_added_tokens_decoder().items()}
        self._alphabet = _byte_alphabet() if _is_byte_level(backend) else None

    def of(self, token: TokenId) -> bytes:
        if token in self._added:
            return self._added[token]
        piece = self._backend.id_to_token(token)
        if piece is None:
            return b""
        if self._alphabet is not None:
            return bytes(self._alphabet[char] for char in piece if char in self._alphabet)
        byte = _BYTE_PIECE.fullmatch(piece)
        if byte is not None:
            return bytes([int(byte.group(1), 16)])
        return piece.replace(_SPACE_MARK, " ").encode()


def _is_byte_level(backend: tokenizers.Tokenizer) -> bool:
    decoder = json.loads(backend.to_str()).get("decoder") or {}
    parts = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    return any(part.get("type") == "ByteLevel" for part in parts)


def _byte_alphabet() -> dict[str, int]:
    """Printable Latin-1 bytes stand for themselves; the others take code points from 256 on, in byte order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(256 + offset): byte for offset, byte in enumerate(others)})
    return alphabet
