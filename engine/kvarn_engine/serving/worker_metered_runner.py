"""A ModelRunner that measures another one's steps. The scheduler and the runner know nothing of it."""

import time

from kvarn_engine.core.ids import BlockIndex, TokenId
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.plan import ModelRunner, StepPlan
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.serving.worker_metrics import WorkerMetrics


class MeteredRunner:
    def __init__(self, runner: ModelRunner, metrics: WorkerMetrics) -> None:
        self._runner = runner
        self._metrics = metrics

    @property
    def layout(self) -> KvLayout:
        return self._runner.layout

    @property
    def num_blocks(self) -> int:
        return self._runner.num_blocks

    @property
    def max_model_len(self) -> int:
        return self._runner.max_model_len

    @property
    def vocab_size(self) -> int:
        return self._runner.vocab_size

    @property
    def eos_token_ids(self) -> frozenset[TokenId]:
        return self._runner.eos_token_ids

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        began = time.perf_counter()
        drawn = self._runner.execute(plan)
        self._metrics.step_s.observe(time.perf_counter() - began)
        self._metrics.batch_sequences.observe(len(plan.entries))
        self._metrics.batch_tokens.observe(plan.num_tokens)
        self._metrics.kv_waste_ratio.set(waste_ratio(plan, self._runner.layout.block_size))
        return drawn

    def read_block(self, index: BlockIndex) -> memoryview:
        return self._runner.read_block(index)

    def write_block(self, index: BlockIndex, payload: memoryview) -> None:
        self._runner.write_block(index, payload)


def waste_ratio(plan: StepPlan, block_size: int) -> float:
    """Slots of the batch's blocks that hold no token, over all of them."""
    slots = sum(len(entry.block_table) for entry in plan.entries) * block_size
    used = sum(entry.start + len(entry.tokens) for entry in plan.entries)
    return 1.0 - used / slots if slots else 0.0
