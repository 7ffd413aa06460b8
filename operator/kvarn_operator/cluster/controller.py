"""One reconcile of one model: gather -> decide -> carry out. Called by the queue; owned by the composition root."""

import time
from collections.abc import Callable
from typing import Protocol

from kvarn_operator.cluster.executor import Executor
from kvarn_operator.cluster.gathering import ServiceObjects, gather
from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL, budget_kind
from kvarn_operator.cluster.mirror import Mirror, ServiceKey
from kvarn_operator.cluster.schedule import Ending, Outcome
from kvarn_operator.reconcile.actions import Plan
from kvarn_operator.reconcile.observed import Observed, OperatorDefaults, Readings

Reconcile = Callable[[Observed, float], Plan]


class ReadingsSource(Protocol):
    def readings(self, key: ServiceKey) -> Readings: ...


class Controller:
    def __init__(
        self,
        mirror: Mirror,
        readings: ReadingsSource,
        executor: Executor,
        reconcile: Reconcile,
        defaults: OperatorDefaults,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._mirror = mirror
        self._readings = readings
        self._executor = executor
        self._reconcile = reconcile
        self._defaults = defaults
        self._clock = clock

    async def work(self, key: ServiceKey) -> Outcome:
        """Raises ClusterError."""
        observed = self._observe(key)
        plan = self._reconcile(observed, self._clock())
        wrote = await self._executor.carry_out(key, plan)
        return Outcome(Ending.ACTED if wrote else Ending.SETTLED, plan.requeue_s)

    def _observe(self, key: ServiceKey) -> Observed:
        objects = ServiceObjects(
            namespace=key.namespace,
            name=key.name,
            services=self._mirror.of(key, MODEL_SERVICE),
            pools=self._mirror.of(key, WORKER_POOL),
            pods=self._mirror.of(key, POD),
            budgets=self._mirror.of(key, budget_kind(self._defaults.budget_api)),
            refused=self._executor.refused(key),
            refused_object=self._executor.refused_object(key),
        )
        return gather(objects, self._readings.readings(key), self._defaults)
