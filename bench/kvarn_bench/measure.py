"""What `engine` measures of every implementation, and the figures that come out. Pure; knows no torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kvarn_bench.percentiles import median


@dataclass(frozen=True, slots=True)
class Grid:
    prefill_tokens: tuple[int, ...]
    batches: tuple[int, ...]
    context: int
    """Tokens that each sequence of a decode batch starts with."""

    steps: int
    """Decode steps of one round."""

    rounds: int
    """Counted ones; one more comes first, to warm up."""


class Contender(Protocol):
    """One implementation under measurement. Both methods return seconds and leave nothing behind."""

    name: str

    def prefill(self, tokens: Sequence[int]) -> float:
        """Compute one prompt of these tokens, and its next token."""
        ...

    def decode_step(self, prompts: Sequence[Sequence[int]], steps: int) -> float:
        """Median of one step over all sequences, after their prompts have been computed."""
        ...


@dataclass(frozen=True, slots=True)
class Figure:
    contender: str
    size: int
    """Prompt tokens of a prefill, sequences of a decode batch."""

    seconds: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class EngineFigures:
    prefill: tuple[Figure, ...]
    decode: tuple[Figure, ...]


Tokens = Callable[[int], list[int]]
"""Draws so many token ids."""


def compare(contenders: Sequence[Contender], grid: Grid, draw: Tokens) -> EngineFigures:
    """Contenders alternate within each round, so that other work on the machine hits them alike."""
    prefill: list[Figure] = []
    for length in grid.prefill_tokens:
        times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for _ in range(grid.rounds + 1):
            prompt = draw(length)
            for contender in contenders:
                times[contender.name].append(contender.prefill(prompt))
        prefill += [_figure(name, length, length, values) for name, values in times.items()]
    decode: list[Figure] = []
    for batch in grid.batches:
        times = {contender.name: [] for contender in contenders}
        for _ in range(grid.rounds + 1):
            prompts = [draw(grid.context) for _ in range(batch)]
            for contender in contenders:
                times[contender.name].append(contender.decode_step(prompts, grid.steps))
        decode += [_figure(name, batch, batch, values) for name, values in times.items()]
    return EngineFigures(tuple(prefill), tuple(decode))


def _figure(name: str, size: int, tokens: int, seconds: Sequence[float]) -> Figure:
    """The first round only warms up."""
    middle = median(seconds[1:])
    return Figure(name, size, middle, tokens / middle)
