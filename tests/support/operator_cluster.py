"""Objects of operator tests and a kubelet that turns every pod ready at once."""

from typing import Any

from kvarn_operator.reconcile.actions import Action, Apply, CreatePod, DeletePod, Plan
from kvarn_operator.reconcile.observed import Observed
from kvarn_operator.resources.model_service import ModelService

from tests.support.kubernetes_api import POD, POOL, SERVICE, Cluster
from tests.support.kubernetes_store import Answer, Served
from tests.support.operator_run import NAMESPACE

Json = Any


def cluster_with_kubelet() -> Cluster:
    cluster = Cluster()
    cluster.store.on_create = _run_at_once
    return cluster


def _run_at_once(kind: Served, body: Json) -> None:
    if kind is POD:
        body["status"] = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [{"name": "worker", "ready": True, "state": {"running": {}}}],
        }


def model_service(name: str = "chat", **spec: Json) -> Json:
    return {
        "apiVersion": "kvarn.dev/v1alpha1",
        "kind": "ModelService",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": spec,
    }


def add_service(cluster: Cluster, name: str = "chat", **spec: Json) -> Json:
    return cluster.store.create(SERVICE, NAMESPACE, model_service(name, **spec))


def pods(cluster: Cluster) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in cluster.store.list(POD, NAMESPACE))


def pools(cluster: Cluster) -> list[str]:
    return sorted(pool["metadata"]["name"] for pool in cluster.store.list(POOL, NAMESPACE))


def status_of(cluster: Cluster, name: str = "chat") -> Json:
    try:
        return cluster.store.get(SERVICE, NAMESPACE, name).get("status") or {}
    except Answer:
        return {}


def is_ready(cluster: Cluster, name: str = "chat") -> bool:
    conditions = status_of(cluster, name).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def plain_reconcile(observed: Observed, now: float) -> Plan:
    """One decode pool and as many pods as it asks for, nothing else: what the process tests need of a reconcile."""
    if not isinstance(observed.service, ModelService):
        return Plan(())
    name = f"{observed.name}-decode"
    if not observed.pools:
        owner = {"apiVersion": "kvarn.dev/v1alpha1", "kind": "ModelService", "name": observed.name}
        return Plan((Apply(_pool(name, observed, {**owner, "uid": observed.service.uid, "controller": True})),))
    (pool,) = observed.pools
    here = {pod.name for pod in observed.pods}
    alive = sorted((pod for pod in observed.pods if not pod.terminating), key=lambda pod: pod.name)
    missing = [f"{name}-{index}" for index in range(pool.replicas) if f"{name}-{index}" not in here]
    actions: list[Action] = [CreatePod(_pod(pod, name, observed, pool.uid)) for pod in missing]
    actions += [DeletePod(pod.name, pod.uid) for pod in alive[pool.replicas :]]
    return Plan(tuple(actions))


def _pool(name: str, observed: Observed, owner: Json) -> Json:
    return {
        "apiVersion": "kvarn.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"namespace": observed.namespace, "name": name, "ownerReferences": [owner]},
        "spec": {"role": "decode", "modelService": observed.name},
    }


def _pod(name: str, pool: str, observed: Observed, uid: str) -> Json:
    labels = {
        "kvarn.dev/model-service": observed.name,
        "kvarn.dev/pool": pool,
        "kvarn.dev/role": "decode",
        "kvarn.dev/revision": "r1",
        "app.kubernetes.io/component": "worker",
    }
    owner = {"apiVersion": "kvarn.dev/v1alpha1", "kind": "WorkerPool", "name": pool, "uid": uid, "controller": True}
    metadata = {"namespace": observed.namespace, "name": name, "labels": labels, "ownerReferences": [owner]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "worker", "image": observed.defaults.worker_image}]},
    }
