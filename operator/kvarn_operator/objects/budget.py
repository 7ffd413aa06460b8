"""A pool's PodDisruptionBudget. Called by the reconcile.

At most one pod of a pool is evicted at a time, so a node drain is never blocked, not even with one replica.
"""

from kvarn_operator.objects.metadata import owner, pool_labels, pool_selector
from kvarn_operator.reconcile.actions import Body
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.names import budget_name
from kvarn_operator.resources.worker_pool import WorkerPool

_UNHEALTHY_POLICY_SINCE = "policy/v1"


def build_budget(service: ModelService, pool: WorkerPool, defaults: OperatorDefaults) -> Body | None:
    """None where the cluster is to have no budgets. A pod that does not serve never holds a node."""
    if not defaults.budget_api:
        return None
    always = {"unhealthyPodEvictionPolicy": "AlwaysAllow"} if defaults.budget_api == _UNHEALTHY_POLICY_SINCE else {}
    return {
        "apiVersion": defaults.budget_api,
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": budget_name(pool.name),
            "namespace": pool.namespace,
            "labels": pool_labels(service.name, pool.name, pool.role),
            "ownerReferences": [owner("WorkerPool", pool.name, pool.uid)],
        },
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": pool_selector(pool.name)}, **always},
    }
