"""Prometheus metrics of the API, taken by wrapping: requests at the edge, token timing around the pipeline."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kvarn_router.context import GenerationRequest, ModelCard, Pipeline, StreamEvent, TokensEvent, TokenStream

_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ready",
        "/metrics",
    }
)
_LATENCY_S = (
    *(0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1, 1.5, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 60, 120),
)
"""Dense where objectives lie: a percentile is known no better than the bucket it falls into."""

_GAP_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10, 30, 60),
)


@dataclass(slots=True)
class RequestRecord:
    status: int = 0
    duration_s: float = 0.0


class ApiMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter("kvarn_api_requests", "Answered HTTP requests.", ("path", "status"), registry=registry)
        self._seconds = Histogram(
            "kvarn_api_request_seconds", "From request to last byte.", ("path",), registry=registry, buckets=_LATENCY_S
        )
        self._open = Gauge("kvarn_api_requests_in_flight", "HTTP requests being answered.", registry=registry)
        self.ttft = Histogram(
            "kvarn_api_ttft_seconds", "To the first token, a hold included.", registry=registry, buckets=_LATENCY_S
        )
        self.itl = Histogram("kvarn_api_itl_seconds", "Between tokens of a choice.", registry=registry, buckets=_GAP_S)
        self.tokens = Counter("kvarn_api_output_tokens", "Tokens received from workers.", registry=registry)

    @contextmanager
    def request(self, path: str) -> Iterator[RequestRecord]:
        record, started = RequestRecord(), time.perf_counter()
        label = _label(path)
        self._open.inc()
        try:
            yield record
        finally:
            record.duration_s = time.perf_counter() - started
            self._open.dec()
            self._requests.labels(label, str(record.status or 500)).inc()
            self._seconds.labels(label).observe(record.duration_s)


def _label(path: str) -> str:
    """Bounded: a path that clients make up must not become a label."""
    if path in _PATHS:
        return path
    return "/v1/models/{id}" if path.startswith("/v1/models/") else "other"


class MeteredPipeline:
    """A `Pipeline` that times what comes out of another."""

    def __init__(self, inner: Pipeline, metrics: ApiMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    @asynccontextmanager
    async def open(self, request: GenerationRequest) -> AsyncIterator[TokenStream]:
        started = time.perf_counter()
        async with self._inner.open(request) as stream:
            yield _MeteredStream(stream, self._metrics, started)

    def card(self) -> ModelCard:
        return self._inner.card()

    def is_ready(self) -> bool:
        return self._inner.is_ready()


class _MeteredStream:
    def __init__(self, inner: TokenStream, metrics: ApiMetrics, started: float) -> None:
        self._inner = inner
        self._metrics = metrics
        self._started = started

    def stop_choice(self, choice: int) -> None:
        self._inner.stop_choice(choice)

    async def events(self) -> AsyncIterator[StreamEvent]:
        last: dict[int, float] = {}
        async for event in self._inner.events():
            if isinstance(event, TokensEvent) and event.tokens:
                now = time.perf_counter()
                if not last:
                    self._metrics.ttft.observe(now - self._started)
                elif event.choice in last:
                    gap = (now - last[event.choice]) / len(event.tokens)
                    for _ in event.tokens:
                        self._metrics.itl.observe(gap)
                last[event.choice] = now
                self._metrics.tokens.inc(len(event.tokens))
            yield event
