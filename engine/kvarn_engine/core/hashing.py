"""The block hash chain (proto/kvarn_proto/HASHING.md).

Router, prefill and decode workers compute it alike: equal hashes mean equal tokens behind equal roots, on any host.
"""

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b

from kvarn_engine.core.ids import BlockHash, TokenId

_DIGEST_BYTES = 16
_ROOT_PERSON = b"kvarn-root-v1"


def root_hash(render_fingerprint: str, layout_fingerprint: str, salt: str = "", adapter: str = "") -> BlockHash:
    """Where a chain starts. Every field is length-prefixed, so that no two tuples of fields read the same."""
    digest = blake2b(digest_size=_DIGEST_BYTES, person=_ROOT_PERSON)
    for value in (render_fingerprint, layout_fingerprint, salt, adapter):
        encoded = value.encode()
        digest.update(len(encoded).to_bytes(4, "little"))
        digest.update(encoded)
    return BlockHash(digest.digest())


def block_hashes(root: BlockHash, tokens: Sequence[TokenId], block_size: int) -> list[BlockHash]:
    """Chain hashes of the full blocks of `tokens`; a partial last block has none here."""
    encoded = _encode(tokens)
    stride = 4 * block_size
    hashes = []
    parent = root
    for start in range(0, len(encoded) - stride + 1, stride):
        parent = BlockHash(blake2b(parent + encoded[start : start + stride], digest_size=_DIGEST_BYTES).digest())
        hashes.append(parent)
    return hashes


def partial_hash(parent: BlockHash, tokens: Sequence[TokenId]) -> BlockHash:
    """Chain hash of one block, which may hold fewer tokens than a full one."""
    return BlockHash(blake2b(parent + _encode(tokens), digest_size=_DIGEST_BYTES).digest())


def _encode(tokens: Sequence[TokenId]) -> bytes:
    """Token ids as little-endian unsigned 32-bit integers. Raises OverflowError for an id that does not fit."""
    encoded = array("I", tokens)
    assert encoded.itemsize == 4
    if sys.byteorder == "big":
        encoded.byteswap()
    return encoded.tobytes()
