"""Finds stop strings in text that arrives in pieces, and never lets a part of one through.

Called by `api.choices`. The result depends only on the whole text, not on how it was cut into pieces: the match that
ends first wins, and of those that end together the longest.
"""

from collections.abc import Sequence


class StopMatcher:
    def __init__(self, stops: Sequence[str], include_in_output: bool) -> None:
        self._stops = tuple(stops)
        self._include = include_in_output
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The part of the output that is safe to send now. After a match nothing more comes out."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        buffer = self._held + text
        start = self._find(buffer)
        if self.matched is not None:
            self._held = ""
            return buffer[: start + len(self.matched)] if self._include else buffer[:start]
        held = self._longest_open_tail(buffer)
        self._held = buffer[len(buffer) - held :]
        return buffer[: len(buffer) - held]

    def flush(self) -> str:
        """The output ended: what was held back is not a stop string after all."""
        held, self._held = self._held, ""
        return held

    def _find(self, buffer: str) -> int:
        best = (len(buffer) + 1, 0)
        for stop in self._stops:
            start = buffer.find(stop)
            if start >= 0 and (start + len(stop), start) < best:
                best = (start + len(stop), start)
                self.matched = stop
        return best[1]

    def _longest_open_tail(self, buffer: str) -> int:
        """Length of the longest end of the buffer that could grow into a stop string."""
        longest = min(len(buffer), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            tail = buffer[len(buffer) - length :]
            if any(stop.startswith(tail) for stop in self._stops if len(stop) > length):
                return length
        return 0
