"""`kubectl kvarn explain`: why the pools are as large as they are, and why requests went where they went."""

import json
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from kvarn_cli.k8s.cluster import Cluster, ClusterError
from kvarn_cli.k8s.resources import ROUTER, Pod, Pool, Service, pod_of, pool_of
from kvarn_cli.k8s.topology import ROUTER_PORT, services


def show_explanation(cluster: Cluster, name: str, limit: int, console: Console) -> int:
    """Raises ClusterError."""
    for service in services(cluster, name):
        console.print(Text(service.name, style="bold"))
        for pool in sorted((pool_of(pool) for pool in cluster.pools(service.name)), key=lambda pool: pool.name):
            for line in scaling_lines(pool, limit):
                console.print(Text(line), soft_wrap=True)
        for line in routing_lines(cluster, service, limit):
            console.print(Text(line), soft_wrap=True)
    return 0


def scaling_lines(pool: Pool, limit: int) -> Iterator[str]:
    if pool.override:
        yield f"  {pool.name}: the planner is overridden: {pool.override}"
    if not pool.decisions:
        yield f"  {pool.name}: no scaling decision yet (mode {pool.mode}, {pool.desired} desired)"
    for decision in pool.decisions[:limit]:
        change = f"{decision.before} -> {decision.after}"
        yield f"  {pool.name}: {decision.at} {change} {decision.reason}: {decision.message}"


def routing_lines(cluster: Cluster, service: Service, limit: int) -> Iterator[str]:
    pods = (pod_of(resource) for resource in cluster.pods(service.name))
    routers = [pod for pod in pods if pod.component == ROUTER]
    if not routers:
        yield "  no router pod: no routing decisions"
    for router in routers:
        yield from _of_router(cluster, router, limit)


def _of_router(cluster: Cluster, router: Pod, limit: int) -> Iterator[str]:
    try:
        decisions = json.loads(cluster.page(router.name, ROUTER_PORT, "/debug/decisions"))["decisions"]
    except ClusterError as error:
        yield f"  {router.name}: cannot be asked: {error}"
        return
    except (ValueError, KeyError, TypeError):
        yield f"  {router.name}: its answer is not that of a Kvarn router"
        return
    if not decisions:
        yield f"  {router.name}: no request has been routed yet"
    for decision in decisions[:limit]:
        yield f"  {router.name}: {decision.get('request_id', '')} {decision.get('explain', '')}"
