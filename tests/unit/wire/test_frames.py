"""Frames carry blocks unchanged, and nothing that is not what the transfer asked for gets through."""

import dataclasses
import struct
import zlib

import pytest
from kvarn_engine.core.errors import HandoffError
from kvarn_engine.core.ids import BlockHash, TransferId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.wire.frames import (
    HEADER_BYTES,
    BlockPayload,
    BlocksFrame,
    ControlFrame,
    FrameError,
    LateFrame,
    Transfer,
    decode_frame,
    encode_blocks,
    encode_control,
)
from kvarn_proto.v1 import prefill_pb2

LAYOUT = KvLayout("revision", "float32", 2, 1, 4, 4)
TRANSFER = Transfer(TransferId(bytes(range(16))), 3, LAYOUT)


def make_blocks(count: int) -> list[BlockPayload]:
    size = LAYOUT.block_bytes
    return [BlockPayload(BlockHash(bytes([n]) * 16), memoryview(bytes([n + 1]) * size)) for n in range(count)]


def patched(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def test_blocks_survive() -> None:
    blocks = make_blocks(3)
    frame = decode_frame(encode_blocks(TRANSFER, 7, blocks), TRANSFER)
    assert isinstance(frame, BlocksFrame)
    assert frame.first == 7
    assert [(b.block_hash, bytes(b.payload)) for b in frame.blocks] == [
        (b.block_hash, bytes(b.payload)) for b in blocks
    ]


def test_decoded_payloads_are_views_of_the_buffer() -> None:
    buffer = encode_blocks(TRANSFER, 0, make_blocks(1))
    frame = decode_frame(buffer, TRANSFER)
    assert isinstance(frame, BlocksFrame)
    assert frame.blocks[0].payload.obj is buffer


def test_control_survives() -> None:
    event = prefill_pb2.PrefillEvent(done=prefill_pb2.PrefillDone(num_blocks=4, compute_s=0.5))
    assert decode_frame(encode_control(TRANSFER, event), TRANSFER) == ControlFrame(event)


def test_header_bytes_are_as_documented() -> None:
    blocks = make_blocks(2)
    frame = encode_blocks(TRANSFER, 9, blocks)
    length = 2 * (24 + LAYOUT.block_bytes)
    assert frame[:8] == b"KVRN\x01\x02\x00\x00"
    assert frame[8:24] == TRANSFER.transfer_id
    assert struct.unpack_from("<IIII", frame, 24) == (3, 9, 2, length)
    assert frame[40:56] == bytes.fromhex(LAYOUT.fingerprint)
    assert frame[56:64] == bytes(8)
    assert frame[64:88] == blocks[0].block_hash + struct.pack("<II", zlib.crc32(blocks[0].payload), 0)
    assert len(frame) == HEADER_BYTES + length


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (0, b"XVRN", "magic"),
        (4, b"\x02", "version 2"),
        (5, b"\x09", "kind 9"),
        (8, b"\xff", "transfer"),
        (24, struct.pack("<I", 4), "never asked for"),
        (32, struct.pack("<I", 0), "cannot hold 0 blocks"),
        (32, struct.pack("<I", 3), "cannot hold 3 blocks"),
        (32, struct.pack("<I", 0xFFFFFFFF), "cannot hold"),
        (36, struct.pack("<I", 1), "header says 1"),
        (40, b"\xff\xff", "layout"),
        (80, b"\x00\x00\x00\x00", "block 5 does not match"),
        (64 + 48, b"\x00", "block 5 does not match"),
        (64 + 48 + LAYOUT.block_bytes, b"\x00", "block 6 does not match"),
    ],
)
def test_damage_is_named(offset: int, value: bytes, words: str) -> None:
    frame = patched(encode_blocks(TRANSFER, 5, make_blocks(2)), offset, value)
    with pytest.raises(FrameError, match=words):
        decode_frame(frame, TRANSFER)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 100])
def test_truncation_is_an_error(length: int) -> None:
    with pytest.raises(FrameError):
        decode_frame(encode_blocks(TRANSFER, 0, make_blocks(1))[:length], TRANSFER)


def test_control_frame_must_hold_an_event() -> None:
    event = prefill_pb2.PrefillEvent(accepted=prefill_pb2.PrefillAccepted(cached_tokens=300))
    frame = encode_control(TRANSFER, event)
    with pytest.raises(FrameError, match="PrefillEvent"):
        decode_frame(patched(frame, 64, b"\xff"), TRANSFER)


def test_earlier_attempt_is_late() -> None:
    earlier = dataclasses.replace(TRANSFER, generation=2)
    frame = encode_blocks(earlier, 0, make_blocks(1))
    assert decode_frame(frame, TRANSFER) == LateFrame(2)


def test_frame_error_is_a_handoff_error() -> None:
    assert issubclass(FrameError, HandoffError)


def test_frames_stay_near_two_mebibytes() -> None:
    small = Transfer(TRANSFER.transfer_id, 1, LAYOUT)
    huge = Transfer(TRANSFER.transfer_id, 1, dataclasses.replace(LAYOUT, num_layers=100_000))
    assert small.blocks_per_frame * (LAYOUT.block_bytes + 24) <= 2 * 1024 * 1024
    assert huge.blocks_per_frame == 1
