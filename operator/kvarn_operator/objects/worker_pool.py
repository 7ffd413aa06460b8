"""A WorkerPool as the operator applies it. Called by the reconcile for each role of a ModelService.

It says nothing of `replicas`: that number belongs to kubectl, an HPA or the planner.
"""

from kvarn_operator.objects.metadata import owner, pool_labels
from kvarn_operator.objects.pool_fields import scaling_fields, template_fields
from kvarn_operator.reconcile.actions import Body
from kvarn_operator.resources.labels import API_VERSION
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.resources.names import pool_name
from kvarn_operator.rollout.revision import pool_spec
from kvarn_operator.scaling.spec import Role


def build_pool(service: ModelService, role: Role) -> Body:
    pool = pool_spec(service.spec, role)
    name = pool_name(service.name, role)
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkerPool",
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": pool_labels(service.name, name, role),
            "ownerReferences": [owner("ModelService", service.name, service.uid)],
        },
        "spec": {
            "role": role.value,
            "modelService": service.name,
            "scaling": scaling_fields(pool.scaling),
            "drain": {"timeoutSeconds": round(pool.drain.timeout_s)},
            "template": template_fields(pool.template),
        },
    }
