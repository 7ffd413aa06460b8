"""Synthetic prompts that share a leading part, as system prompts and documents do. Pure and seeded.

Lengths are in words of a small common vocabulary: about one token each for most tokenizers.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

_TEXT = (
    "the river runs past a mill where two stones turn grain into flour and people come from far away to buy bread "
    "every morning before light children carry water up from town while old men talk about weather work money music "
    "history science books ships trains cities islands forests winter summer rain snow fire stone iron glass paper"
)
_WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class PromptMix:
    lengths: tuple[int, ...]
    """Words; each prompt's length is drawn evenly from these."""

    shared_fraction: float = 0.0
    """Leading part of a prompt that all prompts of its group have in common, 0 to 1."""

    groups: int = 1
    """Number of different shared parts."""

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"prompt lengths are {self.lengths}, each must be at least 1 word")
        if not 0.0 <= self.shared_fraction <= 1.0:
            raise ValueError(f"shared prefix fraction is {self.shared_fraction}, not between 0 and 1")
        if self.groups < 1:
            raise ValueError(f"{self.groups} prefix groups, at least 1 is needed")


def make_prompts(mix: PromptMix, count: int, seed: int) -> tuple[str, ...]:
    shared = [_words(random.Random(f"{seed}/{group}"), max(mix.lengths)) for group in range(mix.groups)]
    source = random.Random(seed)
    return tuple(_prompt(mix, shared, source) for _ in range(count))


def _prompt(mix: PromptMix, shared: Sequence[Sequence[str]], source: random.Random) -> str:
    length = source.choice(mix.lengths)
    common = round(length * mix.shared_fraction)
    head = source.choice(shared)[:common]
    return " ".join([*head, *_words(source, length - common)])


def _words(source: random.Random, count: int) -> list[str]:
    return source.choices(_WORDS, k=count)
