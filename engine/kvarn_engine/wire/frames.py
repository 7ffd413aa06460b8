"""Hand-off frames: a fixed header, then raw bytes (proto/kvarn_proto/FRAMES.md).

Written by the prefill worker's exporter, read by the decode worker's importer. A block is copied once when a frame is
built and never when it is read: decoded payloads are views of the received buffer. Knows nothing of streams or engines.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError
from kvarn_proto.v1 import prefill_pb2

from kvarn_engine.core.errors import HandoffError
from kvarn_engine.core.ids import BlockHash, TransferId
from kvarn_engine.core.kv_layout import KvLayout

MAGIC = b"KVRN"
VERSION = 1
KIND_CONTROL = 1
KIND_BLOCKS = 2
TARGET_FRAME_BYTES = 2 * 1024 * 1024

_HEADER = struct.Struct("<4sBBH16sIIII16s8x")
_BLOCK_ENTRY = struct.Struct("<16sII")
HEADER_BYTES = _HEADER.size
assert HEADER_BYTES == 64


class FrameError(HandoffError):
    """A frame that is not what its transfer asked for."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """What both ends of one hand-off attempt agree on; every frame carries it."""

    transfer_id: TransferId
    generation: int
    layout: KvLayout

    @property
    def layout_digest(self) -> bytes:
        return bytes.fromhex(self.layout.fingerprint)[:16]

    @property
    def blocks_per_frame(self) -> int:
        return max(1, TARGET_FRAME_BYTES // (self.layout.block_bytes + _BLOCK_ENTRY.size))


class BlockPayload(NamedTuple):
    block_hash: BlockHash
    payload: memoryview


@dataclass(frozen=True, slots=True)
class ControlFrame:
    event: prefill_pb2.PrefillEvent


@dataclass(frozen=True, slots=True)
class BlocksFrame:
    """Blocks `[first, first + len(blocks))` of the sequence. Payloads live as long as the received buffer."""

    first: int
    blocks: tuple[BlockPayload, ...]


@dataclass(frozen=True, slots=True)
class LateFrame:
    """Belongs to an earlier attempt of the same transfer; the reader drops it."""

    generation: int


Frame = ControlFrame | BlocksFrame | LateFrame


class _Header(NamedTuple):
    """In the order of the bytes."""

    magic: bytes
    version: int
    kind: int
    reserved: int
    transfer_id: bytes
    generation: int
    first_block: int
    block_count: int
    payload_length: int
    layout_digest: bytes


def encode_control(transfer: Transfer, event: prefill_pb2.PrefillEvent) -> bytes:
    payload = event.SerializeToString()
    return _pack_header(transfer, KIND_CONTROL, 0, 0, len(payload)) + payload


def encode_blocks(transfer: Transfer, first: int, blocks: Sequence[BlockPayload]) -> bytes:
    """One frame, and the only copy of the payloads on this side."""
    block_bytes = transfer.layout.block_bytes
    assert blocks
    assert all(block.payload.nbytes == block_bytes for block in blocks)
    table = b"".join(_BLOCK_ENTRY.pack(block.block_hash, zlib.crc32(block.payload), 0) for block in blocks)
    length = len(table) + len(blocks) * block_bytes
    header = _pack_header(transfer, KIND_BLOCKS, first, len(blocks), length)
    return b"".join((header, table, *(block.payload for block in blocks)))


def decode_frame(buffer: bytes, transfer: Transfer) -> Frame:
    """Check every field against `transfer` and every block against its checksum. Raises FrameError."""
    if len(buffer) < HEADER_BYTES:
        raise FrameError(f"frame of {len(buffer)} bytes is shorter than its header")
    header = _Header._make(_HEADER.unpack_from(buffer))
    _check_header(header, transfer, len(buffer))
    if header.generation < transfer.generation:
        return LateFrame(header.generation)
    if header.kind == KIND_CONTROL:
        return _decode_control(buffer)
    return _decode_blocks(header, memoryview(buffer)[HEADER_BYTES:], transfer.layout.block_bytes)


def _pack_header(transfer: Transfer, kind: int, first: int, count: int, payload_length: int) -> bytes:
    return _HEADER.pack(
        MAGIC,
        VERSION,
        kind,
        0,
        transfer.transfer_id,
        transfer.generation,
        first,
        count,
        payload_length,
        transfer.layout_digest,
    )


def _check_header(header: _Header, transfer: Transfer, frame_bytes: int) -> None:
    if header.magic != MAGIC:
        raise FrameError("frame does not start with the magic bytes")
    if header.version != VERSION:
        raise FrameError(f"frame version {header.version} is not {VERSION}")
    if header.kind not in (KIND_CONTROL, KIND_BLOCKS):
        raise FrameError(f"unknown frame kind {header.kind}")
    if header.payload_length != frame_bytes - HEADER_BYTES:
        raise FrameError(f"payload of {frame_bytes - HEADER_BYTES} bytes, header says {header.payload_length}")
    if header.transfer_id != transfer.transfer_id:
        raise FrameError(f"transfer {header.transfer_id.hex()} is not {transfer.transfer_id.hex()}")
    if header.layout_digest != transfer.layout_digest:
        raise FrameError(f"layout {header.layout_digest.hex()} is not {transfer.layout_digest.hex()}")
    if header.generation > transfer.generation:
        raise FrameError(f"generation {header.generation} was never asked for, the newest is {transfer.generation}")


def _decode_control(buffer: bytes) -> ControlFrame:
    try:
        return ControlFrame(prefill_pb2.PrefillEvent.FromString(buffer[HEADER_BYTES:]))
    except DecodeError as error:
        raise FrameError("control frame does not hold a PrefillEvent") from error


def _decode_blocks(header: _Header, payload: memoryview, block_bytes: int) -> BlocksFrame:
    count = header.block_count
    table_bytes = count * _BLOCK_ENTRY.size
    if count < 1 or len(payload) != table_bytes + count * block_bytes:
        raise FrameError(f"{len(payload)} bytes cannot hold {count} blocks of {block_bytes} bytes")
    blocks = []
    for number, (digest, checksum, _) in enumerate(_BLOCK_ENTRY.iter_unpack(payload[:table_bytes])):
        start = table_bytes + number * block_bytes
        block = payload[start : start + block_bytes]
        if zlib.crc32(block) != checksum:
            raise FrameError(f"block {header.first_block + number} does not match its checksum")
        blocks.append(BlockPayload(BlockHash(digest), block))
    return BlocksFrame(header.first_block, tuple(blocks))
