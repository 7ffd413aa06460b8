"""Prometheus metrics of routing. Built once by the composition root; the names are an interface, so they stay."""

from collections.abc import Sequence
from functools import partial

from kvarn_engine.core.ids import TokenId
from prometheus_client import CollectorRegistry, Counter, Gauge

from kvarn_router.retry import Failure
from kvarn_router.routing.policy import Decision
from kvarn_router.workers import Role, WorkerTable


class RoutingMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            "kvarn_router_attempts_failed", "Generate calls that broke, by failure", ["failure"], registry=registry
        )
        self._prompt = Counter("kvarn_router_prompt_tokens", "Prompt tokens of finished requests", registry=registry)
        self._predicted = Counter(
            "kvarn_router_predicted_cached_blocks", "Blocks that routing expected to be cached", registry=registry
        )
        self._cached = Counter(
            "kvarn_router_cached_tokens", "Prompt tokens that no worker had to compute", registry=registry
        )
        self._in_flight = Gauge("kvarn_router_requests_in_flight", "Requests between open and end", registry=registry)
        self._workers = Gauge("kvarn_router_workers", "Workers that can take a request", ["role"], registry=registry)
        self._gaps = Counter("kvarn_router_watch_gaps", "Gaps in the cache events of a worker", registry=registry)
        self._refused = Counter("kvarn_router_workers_refused", "Registrations refused", registry=registry)

    def watch_table(self, table: WorkerTable) -> None:
        """Counted when scraped."""
        for role in Role:
            self._workers.labels(role.value).set_function(partial(_count, table, role))

    def attempt_failed(self, failure: Failure) -> None:
        self._attempts.labels(failure.name.lower()).inc()

    def observe_prefix(self, decision: Decision, cached_tokens: int, prompt_tokens: Sequence[TokenId]) -> None:
        self._prompt.inc(len(prompt_tokens))
        self._predicted.inc(decision.predicted_blocks)
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
