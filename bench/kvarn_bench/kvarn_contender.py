"""Kvarn's runner under measurement: plans built by hand, no scheduler and no workers between."""

import time
from collections.abc import Sequence

from kvarn_engine.core.ids import BlockIndex
from kvarn_engine.core.plan import Draw, PlanEntry, StepPlan
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.runtime.runner import TorchRunner

from kvarn_bench.percentiles import median

_GREEDY = SamplingParams(max_tokens=1_000_000, temperature=0.0, ignore_eos=True)


class KvarnContender:
    name = "kvarn"

    def __init__(self, runner: TorchRunner) -> None:
        self._runner = runner

    def prefill(self, tokens: Sequence[int]) -> float:
        began = time.perf_counter()
        self._execute([list(tokens)], [0])
        return time.perf_counter() - began

    def decode_step(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        histories = [list(prompt) for prompt in prompts]
        for sequence, history in enumerate(histories):
            history += self._execute([history], [0], first_sequence=sequence, num_sequences=len(histories))
        times = []
        for _ in range(steps):
            starts = [len(history) - 1 for history in histories]
            began = time.perf_counter()
            drawn = self._execute([history[-1:] for history in histories], starts)
            times.append(time.perf_counter() - began)
            for history, token in zip(histories, drawn, strict=True):
                history.append(token)
        return median(times)

    def _execute(
        self, queries: Sequence[list[int]], starts: Sequence[int], first_sequence: int = 0, num_sequences: int = 0
    ) -> list[int]:
        """One step. Every sequence owns an equal share of the store, so tables need no bookkeeping."""
        share = self._runner.num_blocks // max(num_sequences, len(queries))
        entries = tuple(
            self._entry(tokens, start, share, first_sequence + number)
            for number, (tokens, start) in enumerate(zip(queries, starts, strict=True))
        )
        return [drawn[0].token_id for drawn in self._runner.execute(StepPlan(entries))]

    def _entry(self, tokens: list[int], start: int, share: int, sequence: int) -> PlanEntry:
        end = start + len(tokens)
        needed = -(-end // self._runner.layout.block_size)
        assert needed <= share
        table = [BlockIndex(sequence * share + number) for number in range(needed)]
        return PlanEntry(tokens, start, table, (Draw(0, _GREEDY, end, tokens, ()),))
