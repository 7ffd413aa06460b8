"""Drives a runner without a scheduler: packed chunked prefill, then batched decode, over shuffled block tables."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvarn_engine.core.ids import BlockIndex, TokenId
from kvarn_engine.core.plan import Draw, ModelRunner, PlanEntry, StepPlan
from kvarn_engine.core.sampling import SamplingParams


@dataclass
class Running:
    prompt: list[TokenId]
    blocks: list[BlockIndex]
    params: SamplingParams
    output: list[TokenId] = field(default_factory=list)
    done: int = 0

    def entry(self, count: int) -> PlanEntry:
        history = self.prompt + self.output
        count = min(count, len(history) - self.done)
        last = self.done + count == len(history)
        draws = (Draw(0, self.params, len(history), self.prompt, list(self.output)),) if last else ()
        return PlanEntry(history[self.done : self.done + count], self.done, self.blocks, draws)


def start(
    runner: ModelRunner, prompts: Sequence[Sequence[TokenId]], params: SamplingParams, seed: int = 0
) -> list[Running]:
    """Give every sequence blocks for its whole life, in random order over the store."""
    free = [BlockIndex(index) for index in range(runner.num_blocks)]
    random.Random(seed).shuffle(free)
    running = []
    for prompt in prompts:
        needed = -(-(len(prompt) + params.max_tokens) // runner.layout.block_size)
        running.append(Running(list(prompt), [free.pop() for _ in range(needed)], params))
    return running


def advance(runner: ModelRunner, running: Sequence[Running], tokens: int, chunk: int) -> None:
    """Step until each sequence has `tokens` output tokens. Prefills and decodes share steps."""
    while active := [sequence for sequence in running if len(sequence.output) < tokens]:
        entries = [sequence.entry(chunk) for sequence in active]
        for sequence, entry, drawn in zip(active, entries, runner.execute(StepPlan(tuple(entries))), strict=True):
            sequence.done += len(entry.tokens)
            sequence.output.extend(token.token_id for token in drawn)
