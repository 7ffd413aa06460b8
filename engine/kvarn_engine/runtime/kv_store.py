"""Paged KV store: one tensor, one contiguous run of bytes for each block.

Owned by the runner. Reads and writes bytes for the hand-off, hands layer views to the attention backends. It does not
know which block belongs to whom.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.kv_layout import KvLayout

TORCH_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class KvStore:
    def __init__(self, layout: KvLayout, num_blocks: int, device: torch.device) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        shape = (num_blocks, layout.num_layers, 2, layout.block_size, layout.num_kv_heads, layout.head_dim)
        self.tensor = _zeros(shape, TORCH_DTYPES[layout.dtype], device)
        self._bytes = self.tensor.view(num_blocks, -1).view(torch.uint8)

    def keys(self, layer: int) -> torch.Tensor:
        """View `[block][slot][kv_head][dim]`."""
        return self.tensor[:, layer, 0]

    def values(self, layer: int) -> torch.Tensor:
        return self.tensor[:, layer, 1]

    def words(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The whole store, CPU only, as unsigned words: `[block][layer][K|V][slot][kv_head][dim]`."""
        word = torch.uint32 if self.tensor.element_size() == 4 else torch.uint16
        return self.tensor.view(word).numpy()

    def copy_block(self, source: BlockIndex, target: BlockIndex) -> None:
        self.tensor[target].copy_(self.tensor[source])

    def read(self, index: BlockIndex) -> memoryview:
        """On a CPU the view is of the store itself, without a copy."""
        return self._bytes[index].cpu().numpy().data.toreadonly()

    def write(self, index: BlockIndex, payload: memoryview) -> None:
        if payload.nbytes != self.layout.block_bytes:
            raise ValueError(f"a block has {self.layout.block_bytes} bytes, not {payload.nbytes}")
        source = np.frombuffer(payload, dtype=np.uint8)
        if self.tensor.device.type == "cpu":
            np.copyto(self._bytes[index].numpy(), source)
        else:
            self._bytes[index].copy_(torch.from_numpy(source.copy()))


def blocks_for_memory(layout: KvLayout, memory_gib: float) -> int:
    return int(memory_gib * (1 << 30)) // layout.block_bytes


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """On a CPU through numpy, whose zeroed pages are mapped on first touch: torch writes them all, which takes a second
    for each GiB."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros((*shape[:-1], shape[-1] * dtype.itemsize), dtype=np.uint8)).view(dtype)
