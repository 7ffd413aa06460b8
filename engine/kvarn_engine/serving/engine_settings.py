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

    def __post_init__(self) -> None:
        for name in ("max_sequences", "max_waiting", "aging_steps", "feed_bound"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, below 1")
        if self.max_batch_tokens < self.max_sequences:
            raise ValueError(f"max_batch_tokens is {self.max_batch_tokens}, below max_sequences {self.max_sequences}")
