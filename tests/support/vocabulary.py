"""From the bytes of a token, as the API reports them, back to its id. Byte-level BPE makes this one to one."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode


class Vocabulary:
    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        byte_of = {character: byte for byte, character in bytes_to_unicode().items()}
        special = set(tokenizer.all_special_ids) | set(tokenizer.added_tokens_decoder)
        self._id_of: dict[bytes, int] = {}
        for text, token in tokenizer.get_vocab().items():
            if token in special:
                self._id_of[text.encode()] = token
            else:
                self._id_of[bytes(byte_of[character] for character in text)] = token

    def ids(self, token_bytes: Sequence[bytes]) -> list[int]:
        return [self._id_of[piece] for piece in token_bytes]
