"""Generations by request id, so that StopChoice finds the one it means. Owned by the Decode service."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvarn_engine.core.ids import RequestId
from kvarn_engine.serving.protocol import Generation


class RunningRequests:
    def __init__(self) -> None:
        self._generations: dict[RequestId, Generation] = {}

    @contextmanager
    def entry(self, request_id: RequestId, generation: Generation) -> Iterator[None]:
        """Findable while inside. A router that retries under the same id takes the entry over from its older call."""
        self._generations[request_id] = generation
        try:
            yield
        finally:
            if self._generations.get(request_id) is generation:
                del self._generations[request_id]

    def stop_choice(self, request_id: RequestId, choice: int) -> bool:
        """Whether the request runs here."""
        generation = self._generations.get(request_id)
        if generation is None:
            return False
        generation.stop_choice(choice)
        return True
