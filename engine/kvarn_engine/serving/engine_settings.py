"""Limits of one engine, beside those that its model runner has."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    max_batch_tokens: int = 512
    """Tokens computed in one step: the longest prefill chunk."""

    max_sequences: int = 64
    """Choices that hold blocks at a time. At most `max_batch_tokens`."""

    max_waiting: int = 256
    """Sequences queued for admission; more are refused as Overloaded."""

    aging_steps: int = 64
    """A waiting sequence gains one priority level in this many steps."""

    feed_bound: int = 1024
    """Deltas that a subscriber of the cache feed may lag behind before its feed ends."""
