"""Turns token ids into text piece by piece, never cutting a character in two.

Called by `api.choices`. One `Detokenizer` per choice. A piece is the difference of two decodings of a short window of
ids: decoders may look at neighbouring tokens (leading spaces, byte fallback), so decoding ids one by one is wrong.
"""

import codecs
from collections.abc import Callable, Sequence

from kvarn_engine.core.ids import TokenId

_REPLACEMENT = "\ufffd"
_CONTEXT_TOKENS = 4


class Detokenizer:
    """Window [0, read) has been sent; [read, end) waits for the rest of a character."""

    def __init__(
        self,
        decode: Callable[[Sequence[TokenId]], str],
        token_bytes: Callable[[TokenId], bytes],
        prompt_tokens: Sequence[TokenId],
    ) -> None:
        self._decode = decode
        self._token_bytes = token_bytes
        self._window = list(prompt_tokens[-_CONTEXT_TOKENS:])
        self._sent = decode(self._window)
        if self._sent.endswith(_REPLACEMENT):
            self._window, self._sent = [], ""
        self._read = len(self._window)

    def push(self, token: TokenId) -> str:
        self._window.append(token)
        text = self._decode(self._window)
        if text.endswith(_REPLACEMENT) and self._ends_inside_character():
            return ""
        piece = text[len(self._sent) :]
        self._window = self._window[-_CONTEXT_TOKENS:]
        self._sent = self._decode(self._window)
        self._read = len(self._window)
        return piece

    def flush(self) -> str:
        """The output ended. Bytes of a character that never became whole are dropped, not shown as a replacement."""
        if self._read == len(self._window):
            return ""
        piece = self._decode(self._window)[len(self._sent) :]
        self._read = len(self._window)
        return piece.rstrip(_REPLACEMENT)

    def _ends_inside_character(self) -> bool:
        """False for a real U+FFFD and for bytes that no later byte can make valid."""
        pending = b"".join(self._token_bytes(token) for token in self._window[self._read :])
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        decoder.decode(pending)
        return bool(decoder.getstate()[0])
