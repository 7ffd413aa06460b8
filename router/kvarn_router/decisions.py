"""The last routing decisions, for `/debug/decisions`. Written by the dispatcher; bounded."""

from collections import deque

from kvarn_router.routing.policy import Decision


class DecisionLog:
    def __init__(self, capacity: int) -> None:
        self._decisions: deque[Decision] = deque(maxlen=capacity)

    def add(self, decision: Decision) -> None:
        self._decisions.append(decision)

    def find(self, request_id: str) -> Decision | None:
        """The newest one of a request; of several prompts in one request, the first one's."""
        names = (request_id, f"{request_id}-0")
        return next((decision for decision in reversed(self._decisions) if decision.request_id in names), None)

    def newest_first(self) -> tuple[Decision, ...]:
        return tuple(reversed(self._decisions))
