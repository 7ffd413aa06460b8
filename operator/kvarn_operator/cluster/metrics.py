"""Prometheus metrics of the operator. Names start with `kvarn_operator_`; the registry belongs to the process."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kvarn_operator.cluster.progress import Progress
from kvarn_operator.cluster.schedule import Ending
from kvarn_operator.cluster.transport import Call

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class OperatorMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reconciles = Counter(
            "kvarn_operator_reconciles", "Reconciles by how they ended", ["outcome"], registry=registry
        )
        self._reconcile_s = Histogram(
            "kvarn_operator_reconcile_seconds", "One reconcile with its writes", buckets=_SECONDS, registry=registry
        )
        self._api_calls = Counter(
            "kvarn_operator_api_calls", "Calls of the API server, watches not among them; code 0: no answer",
            ["verb", "resource", "code"], registry=registry,
        )  # fmt: skip
        self._actions = Counter(
            "kvarn_operator_actions", "What reconciles had done", ["action", "outcome"], registry=registry
        )
        self._events = Counter("kvarn_operator_events", "Events asked for, by reason", ["reason"], registry=registry)
        self._events_lost = Counter("kvarn_operator_events_lost", "Events that were not written", registry=registry)
        self._watch_restarts = Counter(
            "kvarn_operator_watch_restarts", "Watches that broke beyond repair and were begun anew", registry=registry
        )
        self._leads = Gauge("kvarn_operator_is_leader", "1 while this process acts", registry=registry)

    def reconciled(self, ending: Ending, duration_s: float) -> None:
        self._reconciles.labels(ending.value).inc()
        self._reconcile_s.observe(duration_s)

    def called(self, call: Call, code: int) -> None:
        self._api_calls.labels(call.verb, call.resource, str(code)).inc()

    def acted(self, action: str, succeeded: bool) -> None:
        self._actions.labels(action, "done" if succeeded else "failed").inc()

    def event_asked(self, reason: str) -> None:
        self._events.labels(reason).inc()

    def event_lost(self) -> None:
        self._events_lost.inc()

    def watch_restarted(self) -> None:
        self._watch_restarts.inc()

    def set_leading(self, leads: bool) -> None:
        self._leads.set(float(leads))

    def watch_progress(self, progress: Progress) -> None:
        self._registry.register(_ProgressCollector(progress))

    def watch_depth(self, depth: Callable[[], float]) -> None:
        gauge = Gauge("kvarn_operator_queue_depth", "Models that are due or in work", registry=self._registry)
        gauge.set_function(depth)


class _ProgressCollector(Collector):
    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "kvarn_operator_progress_age_seconds", "Time since a part last got on", labels=["part"]
        )
        for part, age_s in self._progress.ages_s().items():
            family.add_metric([part], age_s)
        yield family
