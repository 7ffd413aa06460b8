"""The last routing decisions, for `/debug/decisions`. Written by the dispatcher; bounded."""

from collections import deque

from kvarn_router.routing.policy import Decision


class DecisionLog:
    def __init__(self, capacity: int) -> None:
        self._decisions: deque[Decision] = deque(maxlen=capacity)

    def add(self, decision: Decision) -> None:
        self._decisions.append(decision)

    def newest_first(self) -> tuple[Decision, ...]:
        return tuple(reversed(self._decisions))
