"""Picks the attention backend for a store. The only place that knows all of them."""

import logging

from kvarn_engine.core.errors import UnsupportedModel
from kvarn_engine.runtime.attention import AttentionBackend
from kvarn_engine.runtime.backends.cpu import CpuAttention
from kvarn_engine.runtime.backends.cuda import CudaAttention
from kvarn_engine.runtime.backends.reference import ReferenceAttention
from kvarn_engine.runtime.kv_store import KvStore

_log = logging.getLogger("kvarn.runtime")


def choose_backend(wanted: str, store: KvStore) -> AttentionBackend:
    device = store.tensor.device.type
    name = device if wanted == "auto" else wanted
    _log.info("attention=%s device=%s reason=%s", name, device, "device" if wanted == "auto" else "settings")
    if name == "reference":
        return ReferenceAttention()
    if name != device or name not in ("cpu", "cuda"):
        raise UnsupportedModel(f"attention backend {name} does not run on device {device}")
    return CpuAttention(store) if name == "cpu" else CudaAttention()
