"""`TorchRunner`: the `ModelRunner` of real models. Built once by `load_runner`, driven by the step-loop thread.

One step: copy blocks that are about to be written (copy on write), pack the plan, run the model, sample.
"""

import logging
import time

import torch

from kvarn_engine.core.errors import UnsupportedModel
from kvarn_engine.core.ids import BlockIndex, TokenId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.model_folder import eos_token_ids, model_revision, resolve_model
from kvarn_engine.runtime.attention import AttentionBackend, StepAttention
from kvarn_engine.runtime.backends.choice import choose_backend
from kvarn_engine.runtime.batch import pack
from kvarn_engine.runtime.kv_store import KvStore, blocks_for_memory
from kvarn_engine.runtime.model import LoadedModel, load_model
from kvarn_engine.runtime.sampler import Sampler
from kvarn_engine.runtime.settings import RuntimeSettings

_log = logging.getLogger("kvarn.runtime")


class TorchRunner:
    def __init__(
        self,
        model: LoadedModel,
        store: KvStore,
        backend: AttentionBackend,
        max_model_len: int,
        eos: frozenset[TokenId],
    ) -> None:
        self._model = model
        self._store = store
        self._backend = backend
        self._max_model_len = max_model_len
        self._eos = eos
        self._sampler = Sampler(eos)

    @property
    def layout(self) -> KvLayout:
        return self._store.layout

    @property
    def num_blocks(self) -> int:
        return self._store.num_blocks

    @property
    def max_model_len(self) -> int:
        return self._max_model_len

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        return self._eos

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        with torch.inference_mode():
            for copy in plan.copies:
                self._store.copy_block(copy.source, copy.target)
            if not plan.entries:
                return []
            logits = self._forward(plan)
            drawing = [entry.draws for entry in plan.entries if entry.draws]
            sampled = iter(self._sampler.sample(logits, drawing) if drawing else ())
        return [next(sampled) if entry.draws else [] for entry in plan.entries]

    def read_block(self, index: BlockIndex) -> memoryview:
        return self._store.read(index)

    def write_block(self, index: BlockIndex, payload: memoryview) -> None:
        self._store.write(index, payload)

    def _forward(self, plan: StepPlan) -> torch.Tensor:
        """Logits `[entries with draws][vocab]`."""
        batch = pack(plan, self._store.layout.block_size, self._model.device)
        output = self._model.module(
            input_ids=batch.tokens,
            position_ids=batch.positions,
            use_cache=False,
            logits_to_keep=batch.logit_rows,
            kvarn_step=StepAttention(batch, self._store, self._backend),
        )
        logits: torch.Tensor = output.logits[0]
        return logits


def load_runner(settings: RuntimeSettings) -> TorchRunner:
    """Load, check, allocate and warm up. Raises UnsupportedModel, ModelNotFound."""
    started = time.monotonic()
    torch.set_num_threads(settings.threads)
    folder = resolve_model(settings.model, settings.model_revision)
    model = load_model(folder, settings)
    layout = KvLayout(
        model_revision=model_revision(folder),
        dtype=model.dtype,
        num_layers=model.num_layers,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        block_size=settings.block_size,
    )
    num_blocks = settings.num_blocks or blocks_for_memory(layout, settings.kv_memory_gib)
    if num_blocks < 1:
        raise UnsupportedModel(f"one KV block takes {layout.block_bytes} bytes, more than kv_memory_gib allows")
    store = KvStore(layout, num_blocks, model.device)
    max_model_len = _max_model_len(settings, model, num_blocks)
    runner = TorchRunner(model, store, choose_backend(settings.attention, store), max_model_len, eos_token_ids(folder))
    _log.info(
        "loaded dtype=%s device=%s blocks=%d block_bytes=%d max_model_len=%d seconds=%.1f",
        model.dtype, model.device, num_blocks, layout.block_bytes, max_model_len, time.monotonic() - started,
    )  # fmt: skip
    return runner


def _max_model_len(settings: RuntimeSettings, model: LoadedModel, num_blocks: int) -> int:
    """A sequence longer than the whole store could never finish."""
    wanted = settings.max_model_len or model.max_positions
    if wanted > model.max_positions:
        raise UnsupportedModel(f"max_model_len {wanted} exceeds the model's {model.max_positions} positions")
    return min(wanted, num_blocks * settings.block_size)
