"""Prometheus metrics of routing. Built once by the composition root; the names are an interface, so they stay."""

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from kvarn_router.holding import Holding, UncachedTokens
from kvarn_router.retry import Failure
from kvarn_router.routing.policy import Decision
from kvarn_router.workers import Role, WorkerTable


class RoutingMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "kvarn_router_attempts_failed", "Generate calls that broke, by failure", ["failure"], registry=registry
        )
        self._moved = Counter(
            "kvarn_router_streams_moved", "Answers that another worker went on with", registry=registry
        )
        self._prompt = Counter(
            "kvarn_router_prompt_tokens", "Prompt tokens of requests that ended where they began", registry=registry
        )
        self._predicted = Counter(
            "kvarn_router_predicted_cached_tokens", "Of those, expected to be cached when routed", registry=registry
        )
        self._predicted_blocks = Counter(
            "kvarn_router_predicted_cached_blocks", "The same expectation in blocks", registry=registry
        )
        self._cached = Counter(
            "kvarn_router_cached_tokens", "Of those, what no worker really had to compute", registry=registry
        )
        self._arrived = Counter(
            "kvarn_router_uncached_tokens", "Uncached prompt tokens of every request, at its arrival", registry=registry
        )
        self._in_flight = Gauge("kvarn_router_requests_in_flight", "Requests between open and end", registry=registry)
        self._held = Gauge(
            "kvarn_router_requests_held", "Requests that wait because no worker can take them", registry=registry
        )
        self._uncached = Gauge(
            "kvarn_router_uncached_tokens_in_flight",
            "Tokens to compute before the first token of requests that wait for it",
            registry=registry,
        )
        self._workers = Gauge("kvarn_router_workers", "Workers that can take a request", ["role"], registry=registry)
        self._gaps = Counter("kvarn_router_watch_gaps", "Gaps in the cache events of a worker", registry=registry)
        self._refused = Counter("kvarn_router_workers_refused", "Registrations refused", registry=registry)

    def watch(self, table: WorkerTable, holding: Holding, uncached: UncachedTokens) -> None:
        """Read when scraped."""
        for role in Role:
            self._workers.labels(role.value).set_function(partial(_count, table, role))
        self._held.set_function(lambda: float(holding.count))
        self._uncached.set_function(lambda: float(uncached.in_flight))

    def tokens_arrived(self, count: int) -> None:
        self._arrived.inc(count)

    def attempt_failed(self, failure: Failure) -> None:
        self._attempts.labels(failure.name.lower()).inc()

    def stream_moved(self) -> None:
        self._moved.inc()

    def observe_prefix(self, decision: Decision, cached_tokens: int, num_prompt_tokens: int) -> None:
        """Of a request that was not moved: what a second worker finds may be what the first one computed."""
        self._prompt.inc(num_prompt_tokens)
        self._predicted_blocks.inc(decision.predicted_blocks)
        self._predicted.inc(decision.predicted_tokens)
        self._cached.inc(cached_tokens)

    def opened(self) -> None:
        self._in_flight.inc()

    def closed(self) -> None:
        self._in_flight.dec()

    def watch_gap(self) -> None:
        self._gaps.inc()

    def refused(self) -> None:
        self._refused.inc()


def _count(table: WorkerTable, role: Role) -> float:
    return float(len(table.candidates(role)))
