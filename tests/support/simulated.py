"""Specs and prompts for stacks of the simulated engine: slow enough to be caught in the act, too small to be idle long.

The tokenizer is the tiny model's; its weights are never loaded.
"""

import random
from pathlib import Path

from tests.support.stack import StackSpec
from tests.support.tiny import VOCABULARY, write_tiny_model

MODEL = "test-model"
CHUNK = 64
LONG_PROMPT_TOKENS = 1600


def simulated_spec(folder: Path, prefill: int = 1, decode: int = 1) -> StackSpec:
    """Frozen peers are given up within seconds; load reports come often so that the router follows quickly."""
    return StackSpec(
        str(write_tiny_model(folder)),
        prefill=prefill,
        decode=decode,
        worker_flags=(
            *("--engine", "simulated", "--dtype", "float32", "--num-blocks", "1200"),
            *("--max-batch-tokens", str(CHUNK), "--load-report-interval-s", "0.1"),
            *("--simulated-step-s", "0.002", "--simulated-prefill-token-s", "0.0005"),
            *("--simulated-decode-sequence-s", "0.0005", "--simulated-vocab-size", str(VOCABULARY)),
        ),
        decode_flags=("--handoff-idle-timeout-s", "1.5", "--local-prefill-max-tokens", "0"),
        router_flags=("--watch-silence-s", "2", "--stream-idle-timeout-s", "10"),
    )


def long_prompt(name: str) -> list[int]:
    """The same tokens for the same name, and no shared prefix between two names."""
    return _tokens(name, LONG_PROMPT_TOKENS)


def short_prompt(number: int) -> list[int]:
    return _tokens(f"short-{number}", 40)


def _tokens(name: str, count: int) -> list[int]:
    dice = random.Random(name)
    return [dice.randrange(40, 300) for _ in range(count)]
