"""What the API server has. Asked once at the start, by the composition root."""

import asyncio
import logging

from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.errors import ClusterError
from kvarn_operator.cluster.health import Health
from kvarn_operator.cluster.kinds import MODEL_SERVICE, WORKER_POOL
from kvarn_operator.resources.labels import API_VERSION

logger = logging.getLogger("kvarn.operator.discovery")

BUDGET_APIS = ("policy/v1", "policy/v1beta1")
RETRY_S = 5.0


async def await_cluster(api: Api, health: Health) -> str:
    """Wait until our own kinds are served; which API has the disruption budgets, empty for none.

    The CRDs may be installed after the operator, so it waits and says so, in the log and on `/ready`.
    """
    while True:
        try:
            missing = {MODEL_SERVICE.plural, WORKER_POOL.plural} - await api.served(API_VERSION)
            if not missing:
                return await budget_api(api)
            reason = f"the CRDs of {', '.join(f'{name}.kvarn.dev' for name in sorted(missing))} are not installed"
        except ClusterError as error:
            reason = f"the API server does not answer: {error}"
        if reason != health.waits_for:
            logger.error("waiting", extra={"reason": reason})
        health.waits_for = reason
        await asyncio.sleep(RETRY_S)


async def budget_api(api: Api) -> str:
    """Raises ClusterError."""
    for version in BUDGET_APIS:
        if "poddisruptionbudgets" in await api.served(version):
            return version
    return ""
