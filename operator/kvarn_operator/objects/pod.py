"""A worker pod. Called by the reconcile for each pod to create.

It runs under the restricted pod security level with any user id, on API servers from 1.20 on.
"""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.objects.arguments import grace_period_s
from kvarn_operator.objects.container import worker_container
from kvarn_operator.objects.metadata import owner, pool_selector, worker_labels
from kvarn_operator.objects.overlay import overlaid
from kvarn_operator.objects.volumes import MountedVolume, worker_volumes
from kvarn_operator.reconcile.actions import Body
from kvarn_operator.reconcile.observed import OperatorDefaults
from kvarn_operator.resources.labels import PAIRING_ANNOTATION
from kvarn_operator.resources.model_service import Model, ModelService
from kvarn_operator.resources.names import pod_name
from kvarn_operator.resources.pool_template import PodTemplate, Pool
from kvarn_operator.resources.worker_pool import WorkerPool
from kvarn_operator.rollout.revision import pairing, pod_revision, pool_spec
from kvarn_operator.scaling.spec import PoolName

_CACHE_GROUP = 65532
"""The images' own; a claim's files must be writable for a user that is not root."""

_SPREAD_OVER = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")


def build_pod(service: ModelService, pool: WorkerPool, index: int, defaults: OperatorDefaults) -> Body:
    """Made from the ModelService, like its revision; the WorkerPool only gives its name and owns the pod."""
    spec = service.spec
    mine = pool_spec(spec, pool.role)
    revision = pod_revision(spec, pool.role, defaults)
    labels = worker_labels(service.name, pool.name, pool.role, revision)
    volumes = worker_volumes(spec.model, defaults.tls_secret)
    container = worker_container(spec, pool.role, mine, volumes, defaults)
    built = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(pool.name, revision, index),
            "namespace": service.namespace,
            "labels": {**dict(mine.template.labels), **labels},
            "annotations": {**dict(mine.template.annotations), PAIRING_ANNOTATION: pairing(spec, defaults)},
            "ownerReferences": [owner("WorkerPool", pool.name, pool.uid)],
        },
        "spec": {
            "containers": [container],
            "volumes": _volumes(volumes, mine.template),
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": grace_period_s(mine),
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "securityContext": _security(spec.model),
            **_identity(mine.template, defaults),
            **_placement(mine, pool.name, defaults),
        },
    }
    return overlaid(built, mine.template.pod_template)


def _volumes(ours: tuple[MountedVolume, ...], template: PodTemplate) -> list[Mapping[str, Any]]:
    """The user's volume of one of our names takes its place."""
    by_name = {each["name"]: each for each in (*(volume.volume for volume in ours), *template.volumes)}
    return list(by_name.values())


def _security(model: Model) -> Mapping[str, Any]:
    """No fixed user: some clusters insist on choosing one. The same for the group, save where a claim needs it."""
    group = {"fsGroup": _CACHE_GROUP, "fsGroupChangePolicy": "OnRootMismatch"} if model.cache.claim_name else {}
    return {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **group}


def _identity(template: PodTemplate, defaults: OperatorDefaults) -> Mapping[str, Any]:
    secrets = dict.fromkeys((*template.image_pull_secrets, *defaults.image_pull_secrets))
    return _present(
        serviceAccountName=template.service_account_name or defaults.worker_service_account,
        imagePullSecrets=[{"name": name} for name in secrets],
    )


def _placement(pool: Pool, name: PoolName, defaults: OperatorDefaults) -> Mapping[str, Any]:
    placement = pool.template.placement
    return _present(
        nodeSelector=dict(placement.node_selector),
        tolerations=list(placement.tolerations),
        affinity=placement.affinity,
        topologySpreadConstraints=_spread(placement.topology_spread_constraints, name),
        priorityClassName=placement.priority_class_name or defaults.priority_class_name,
        runtimeClassName=placement.runtime_class_name,
        schedulerName=placement.scheduler_name,
    )


def _spread(given: tuple[Mapping[str, Any], ...], pool: PoolName) -> list[Mapping[str, Any]]:
    """By default over nodes and zones, as far as there is room. Without a selector a constraint would mean nothing,
    so the pool's own pods are meant."""
    selector = {"labelSelector": {"matchLabels": pool_selector(pool)}}
    soft = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    constraints = given or tuple({"topologyKey": key, **soft} for key in _SPREAD_OVER)
    return [{**selector, **constraint} for constraint in constraints]


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}
