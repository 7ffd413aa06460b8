"""Shape, type and size of a KV block, and the fingerprint by which two workers agree on it."""

import hashlib
from dataclasses import astuple, dataclass

_DTYPE_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class KvLayout:
    """One block holds `block_size` tokens of all layers, K and V: `[layer][K|V][slot][kv_head][dim]`, one run."""

    model_revision: str
    dtype: str
    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int

    @property
    def token_bytes(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * _DTYPE_BYTES[self.dtype]

    @property
    def block_bytes(self) -> int:
        return self.block_size * self.token_bytes

    @property
    def fingerprint(self) -> str:
        """32 hex digits over every field; equal fingerprints mean that blocks can be exchanged."""
        text = "kvarn-layout-v1|" + "|".join(str(value) for value in astuple(self))
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
