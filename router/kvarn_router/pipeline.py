"""The `Pipeline` of `context`: opens one stream per request and keeps count of them. The API's only door to routing."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from kvarn_engine.core.ids import RequestId

from kvarn_router.context import GenerationRequest, ModelCard
from kvarn_router.stream import RoutedStream, StreamParts
from kvarn_router.workers import Role, WorkerTable


class RouterPipeline:
    def __init__(
        self, table: WorkerTable, parts: StreamParts, served_names: tuple[str, ...], ready_without_prefill: bool
    ) -> None:
        self._table = table
        self._parts = parts
        self._ready_without_prefill = ready_without_prefill
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
        has_prefill = self._ready_without_prefill or bool(self._table.candidates(Role.PREFILL))
        return has_prefill and bool(self._table.candidates(Role.DECODE))

    def _unique_id(self, wanted: RequestId) -> RequestId:
        """Clients may reuse an `X-Request-Id` while it runs; on a worker, a stop must find one request only."""
        name, number = wanted, 1
        while name in self._running:
            number += 1
            name = RequestId(f"{wanted}~{number}")
        return name
