"""Every backend equals the reference on mixed batches: chunks and decodes, windows, shuffled blocks, each KV type."""

import numpy as np
import pytest
import torch
from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.plan import PlanEntry, StepPlan
from kvarn_engine.runtime.attention import AttentionBackend, AttentionCall
from kvarn_engine.runtime.backends.cpu import CpuAttention
from kvarn_engine.runtime.backends.cuda import CudaAttention
from kvarn_engine.runtime.backends.reference import ReferenceAttention
from kvarn_engine.runtime.batch import pack
from kvarn_engine.runtime.kv_store import TORCH_DTYPES, KvStore

HEADS, DIM, BLOCK = 6, 8, 4
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "float16": 2e-3}


def filled_store(dtype: str, device: str = "cpu") -> KvStore:
    layout = KvLayout("r", dtype, num_layers=2, num_kv_heads=2, head_dim=DIM, block_size=BLOCK)
    store = KvStore(layout, 40, torch.device(device))
    store.tensor.copy_(torch.randn(store.tensor.shape, generator=torch.Generator().manual_seed(1)))
    return store


def mixed_plan() -> StepPlan:
    order = [BlockIndex(int(index)) for index in np.random.default_rng(3).permutation(40)]
    tables = [order[0:5], order[5:6], order[6:12], order[12:20], order[20:26]]
    entries = [(0, 17), (3, 1), (9, 13), (30, 1), (16, 1)]
    return StepPlan(
        tuple(PlanEntry([0] * length, start, table) for (start, length), table in zip(entries, tables, strict=True))
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("window", [0, 6])
@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("name", ["cpu", "cuda-on-cpu"])
def test_backend_equals_reference(name: str, dtype: str, window: int, softcap: float) -> None:
    store = filled_store(dtype)
    check(CpuAttention(store) if name == "cpu" else CudaAttention(), store, window, softcap)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("window", [0, 6])
def test_cuda_backend_on_its_device(window: int) -> None:
    check(CudaAttention(), filled_store("bfloat16", "cuda"), window, 0.0)


def check(backend: AttentionBackend, store: KvStore, window: int, softcap: float) -> None:
    batch = pack(mixed_plan(), BLOCK, store.tensor.device)
    query = torch.randn(33, HEADS, DIM, generator=torch.Generator().manual_seed(2))
    query = query.to(store.tensor.device, TORCH_DTYPES[store.layout.dtype])
    call = AttentionCall(layer=1, query=query, scale=0.4, window=window, softcap=softcap)
    expected = ReferenceAttention().attend(call, batch, store)
    tolerance = TOLERANCE[store.layout.dtype]
    torch.testing.assert_close(backend.attend(call, batch, store), expected, atol=tolerance, rtol=tolerance)
