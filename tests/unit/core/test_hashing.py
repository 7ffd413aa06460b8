"""The hash chain against the vectors that HASHING.md publishes, and against its text spelled out anew."""

import json
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from kvarn_engine.core.hashing import block_hashes, partial_hash, root_hash
from kvarn_engine.core.ids import BlockHash

_PAGE = Path(__file__).parents[3] / "proto" / "kvarn_proto" / "HASHING.md"


def _vectors() -> dict[str, list[dict[str, Any]]]:
    text = _PAGE.read_text(encoding="utf-8")
    return json.loads(text.split("```json")[1].split("```")[0])


@pytest.mark.parametrize("vector", _vectors()["roots"], ids=lambda vector: "|".join(vector["fields"]))
def test_roots_match_the_page(vector: dict[str, Any]) -> None:
    encoded = b""
    for field in vector["fields"]:
        encoded += struct.pack("<I", len(field.encode())) + field.encode()
    spelled_out = blake2b(encoded, digest_size=16, person=b"kvarn-root-v1").hexdigest()
    assert root_hash(*vector["fields"]).hex() == vector["root"] == spelled_out


@pytest.mark.parametrize("vector", _vectors()["chains"], ids=lambda vector: str(vector["tokens"]))
def test_chains_match_the_page(vector: dict[str, Any]) -> None:
    root, tokens = BlockHash(bytes.fromhex(vector["root"])), vector["tokens"]
    blocks = block_hashes(root, tokens, 4)
    assert [block.hex() for block in blocks] == vector["blocks"]
    parent: bytes = root
    for number, block in enumerate(blocks):
        parent = blake2b(parent + struct.pack("<4I", *tokens[4 * number : 4 * number + 4]), digest_size=16).digest()
        assert block == parent
    rest = tokens[4 * len(blocks) :]
    assert bool(rest) == ("partial" in vector)
    if rest:
        assert partial_hash(BlockHash(parent), rest).hex() == vector["partial"]


def test_a_block_hash_depends_on_everything_before_it() -> None:
    root = root_hash("render", "layout")
    tail = [9, 9, 9, 9]
    last = {
        block_hashes(root, [1, 2, 3, 4, *tail], 4)[-1],
        block_hashes(root, [1, 2, 3, 5, *tail], 4)[-1],
        block_hashes(root, tail, 4)[-1],
        block_hashes(root_hash("render", "layout", "tenant"), [1, 2, 3, 4, *tail], 4)[-1],
        block_hashes(root_hash("render", "layout", "", "adapter"), [1, 2, 3, 4, *tail], 4)[-1],
    }
    assert len(last) == 5


@pytest.mark.parametrize("token", [-1, 1 << 32])
def test_a_token_id_outside_32_bits_is_refused(token: int) -> None:
    with pytest.raises(OverflowError):
        block_hashes(root_hash("render", "layout"), [token, 0, 0, 0], 4)
