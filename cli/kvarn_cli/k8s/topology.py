"""One look at a model: its pools, pods and what each pod says of itself. Gathered for `status` and `explain`."""

from collections.abc import Iterator
from dataclasses import dataclass

from kvarn_cli.k8s.cluster import Cluster, ClusterError, NotThere
from kvarn_cli.k8s.readings import RouterReading, WorkerReading, router_reading, worker_reading
from kvarn_cli.k8s.resources import ROUTER, WORKER, Pod, Pool, Service, pod_of, pool_of, service_of

WORKER_METRICS_PORT = 7001
ROUTER_PORT = 8080


@dataclass(frozen=True, slots=True)
class Topology:
    service: Service
    pools: tuple[Pool, ...]
    workers: tuple[tuple[Pod, WorkerReading | None], ...]
    """Without a reading when the pod does not answer."""

    routers: tuple[tuple[Pod, RouterReading | None], ...]


def services(cluster: Cluster, name: str) -> list[Service]:
    """All, or the one of that name. Raises ClusterError, NotThere with a hint when there is none."""
    try:
        found = [service_of(resource) for resource in cluster.services()]
    except NotThere as error:
        raise NotThere("this cluster does not know ModelServices: install Kvarn first (helm install)") from error
    chosen = [service for service in found if name in ("", service.name)]
    if chosen:
        return chosen
    if name:
        known = ", ".join(service.name for service in found) or "none"
        raise NotThere(f"no ModelService {name} in namespace {cluster.namespace}; there: {known}")
    raise NotThere(f"no ModelService in namespace {cluster.namespace}; create one, or look elsewhere with --namespace")


def topology(cluster: Cluster, service: Service) -> Topology:
    """Raises ClusterError."""
    pods = sorted((pod_of(resource) for resource in cluster.pods(service.name)), key=lambda pod: pod.name)
    workers = [pod for pod in pods if pod.component == WORKER]
    return Topology(
        service=service,
        pools=tuple(sorted((pool_of(pool) for pool in cluster.pools(service.name)), key=lambda pool: pool.name)),
        workers=tuple((pod, read_worker(cluster, pod)) for pod in workers),
        routers=tuple(_routers(cluster, pods)),
    )


def read_worker(cluster: Cluster, pod: Pod) -> WorkerReading | None:
    try:
        return worker_reading(cluster.page(pod.name, WORKER_METRICS_PORT, "/metrics"))
    except (ClusterError, ValueError):
        return None


def _routers(cluster: Cluster, pods: list[Pod]) -> Iterator[tuple[Pod, RouterReading | None]]:
    for pod in pods:
        if pod.component == ROUTER:
            try:
                yield pod, router_reading(cluster.page(pod.name, ROUTER_PORT, "/metrics"))
            except (ClusterError, ValueError):
                yield pod, None
