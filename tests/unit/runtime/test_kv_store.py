"""Blocks as bytes: what is read equals what was written, in the layout that the fingerprint promises."""

import pytest
import torch
from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.runtime.kv_store import KvStore, blocks_for_memory


@pytest.fixture(params=["float32", "bfloat16"])
def store(request: pytest.FixtureRequest) -> KvStore:
    return KvStore(KvLayout("r", request.param, 3, 2, 4, block_size=8), 5, torch.device("cpu"))


def test_a_block_is_one_run_of_layout_bytes(store: KvStore) -> None:
    payload = bytes(index % 251 for index in range(store.layout.block_bytes))
    store.write(BlockIndex(2), memoryview(payload))
    assert bytes(store.read(BlockIndex(2))) == payload
    assert not any(store.read(BlockIndex(1)))
    assert not any(store.read(BlockIndex(3)))


def test_bytes_are_ordered_layer_kind_slot_head_dim(store: KvStore) -> None:
    store.values(1)[4, 5, 1, 2] = 1.0
    words = torch.frombuffer(bytearray(store.read(BlockIndex(4))), dtype=store.tensor.dtype)
    assert words.nonzero().tolist() == [[(((1 * 2 + 1) * 8 + 5) * 2 + 1) * 4 + 2]]


def test_copy_leaves_the_source_alone(store: KvStore) -> None:
    store.tensor[0] = 3.0
    store.copy_block(BlockIndex(0), BlockIndex(4))
    store.tensor[4] += 1.0
    assert store.tensor[0].eq(3.0).all()
    assert store.tensor[4].eq(4.0).all()


def test_reading_is_read_only_and_without_a_copy(store: KvStore) -> None:
    view = store.read(BlockIndex(0))
    assert view.readonly
    store.tensor[0] = 1.0
    assert any(view)


def test_a_wrong_length_is_refused(store: KvStore) -> None:
    with pytest.raises(ValueError, match="bytes"):
        store.write(BlockIndex(0), memoryview(b"short"))


def test_store_is_sized_by_memory() -> None:
    layout = KvLayout("r", "bfloat16", 30, 3, 64, block_size=16)
    assert blocks_for_memory(layout, 1.0) == (1 << 30) // layout.block_bytes
