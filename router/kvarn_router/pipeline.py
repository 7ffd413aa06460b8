"""The `Pipeline` of `context`: opens one stream per request and keeps count of them. The API's only door to routing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kvarn_engine.core.ids import RequestId

from kvarn_router.context import GenerationRequest, ModelCard
from kvarn_router.stream import RoutedStream, StreamParts
from kvarn_router.workers import Role, WorkerTable


@dataclass(frozen=True, slots=True)
class ReadyRules:
    without_prefill: bool = False
    """Decode workers alone are enough from the start."""

    without_workers: bool = False
    """Nothing is needed: requests are held until the pools have been scaled up from zero."""


class RouterPipeline:
    def __init__(
        self, table: WorkerTable, parts: StreamParts, served_names: tuple[str, ...], ready_rules: ReadyRules
    ) -> None:
        self._table = table
        self._parts = parts
        self._ready_rules = ready_rules
        self._could_serve = False
        self._ending = False
        self._running: set[RequestId] = set()
        self._served_names = served_names

    @asynccontextmanager
    async def open(self, request: GenerationRequest) -> AsyncIterator[RoutedStream]:
        request = replace(request, request_id=self._unique_id(request.request_id))
        self._running.add(request.request_id)
        self._parts.metrics.opened()
        stream = RoutedStream(request, self._parts)
        try:
            yield stream
        finally:
            self._running.discard(request.request_id)
            self._parts.metrics.closed()
            await stream.close()

    def card(self) -> ModelCard:
        return ModelCard(self._served_names, self._table.max_model_len())

    def is_ready(self) -> bool:
        """The first time it takes a prefill and a decode worker of one layout. From then on no loss of workers takes
        the routers away from their clients: a decode worker prefills by itself, and without any the requests are held
        here, which is what wakes a pool at zero. Where nothing is held, clients do better elsewhere."""
        if self._ending:
            return False
        has_decode = bool(self._table.candidates(Role.DECODE))
        is_complete = self._table.has_pair() or (has_decode and self._ready_rules.without_prefill)
        self._could_serve = self._could_serve or is_complete
        stays = has_decode or self._parts.holding.limits.hold_s > 0
        return (self._could_serve and stays) or self._ready_rules.without_workers

    @property
    def is_ending(self) -> bool:
        return self._ending

    def end(self) -> None:
        """This process is about to go: not ready any more, though requests are still taken."""
        self._ending = True

    def _unique_id(self, wanted: RequestId) -> RequestId:
        """Clients may reuse an `X-Request-Id` while it runs; on a worker, a stop must find one request only."""
        name, number = wanted, 1
        while name in self._running:
            number += 1
            name = RequestId(f"{wanted}~{number}")
        return name
