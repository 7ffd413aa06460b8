"""Who is admitted next, and whether it is wise: the queue with aging, and the prediction of how far sequences grow.

Called by the scheduler. Counts steps, never time.
"""

from collections.abc import Iterator

from kvarn_engine.core.sequence import Sequence

_SMOOTHING = 0.1
_FIRST_GUESS = 0.5


class GrowthPredictor:
    """Learns which fraction of `max_tokens` sequences really use, as a moving average over those that ended."""

    def __init__(self) -> None:
        self.fraction = _FIRST_GUESS

    def learn(self, sequence: Sequence) -> None:
        used = len(sequence.output) / sequence.params.max_tokens
        self.fraction += _SMOOTHING * (min(used, 1.0) - self.fraction)

    def remaining_tokens(self, sequence: Sequence) -> int:
        """Predicted output still to come, for each of the choices that the sequence stands for."""
        if sequence.exports:
            return 0
        return max(int(self.fraction * sequence.params.max_tokens) - len(sequence.output), 1)


class WaitingQueue:
    """Sequences without blocks. One gains a priority level for every `aging_steps` steps that it has waited."""

    def __init__(self, aging_steps: int) -> None:
        self._aging_steps = aging_steps
        self._since: dict[Sequence, int] = {}
        """Step at which each sequence was queued."""

    def __len__(self) -> int:
        return len(self._since)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._since)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._since

    def push(self, sequence: Sequence, step: int) -> None:
        self._since[sequence] = step

    def remove(self, sequence: Sequence) -> None:
        del self._since[sequence]

    def head(self, step: int) -> Sequence | None:
        """The sequence whose turn it is at `step`."""

        def turn(sequence: Sequence) -> tuple[int, int]:
            waited = step - self._since[sequence]
            return (sequence.priority - waited // self._aging_steps, sequence.arrival)

        return min(self._since, key=turn, default=None)
