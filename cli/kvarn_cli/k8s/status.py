"""`kubectl kvarn status`: is it fine, and if not, where. Prints what `topology` gathered."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from kvarn_cli.k8s.cluster import Cluster
from kvarn_cli.k8s.readings import Histogram, total
from kvarn_cli.k8s.resources import Condition, Pod, Pool, Service, seconds_between
from kvarn_cli.k8s.topology import Topology, services, topology

_GOOD_WHEN_TRUE = ("Accepted", "ModelCached", "CapacityAvailable", "Paired", "Ready", "SLOMet", "ScalingActive")
_BAD_WHEN_TRUE = ("ReplicasConflict", "Stalled")


def show_status(cluster: Cluster, name: str, now: datetime, console: Console) -> int:
    """1 when a model is not ready. Raises ClusterError."""
    found = [topology(cluster, service) for service in services(cluster, name)]
    for seen in found:
        console.print(render(seen, now))
    return 0 if all(is_ready(seen.service) for seen in found) else 1


def is_ready(service: Service) -> bool:
    ready = service.condition("Ready")
    return ready is not None and ready.status == "True"


def render(seen: Topology, now: datetime) -> RenderableType:
    parts: list[RenderableType] = [_headline(seen.service), _objective(seen), *_trouble(seen)]
    parts.append(_pools(seen.pools) if seen.pools else Text("  no pools yet: is the operator running?", style="yellow"))
    if seen.workers:
        parts.append(_workers(seen, now))
    if seen.routers:
        parts.append(_routers(seen))
    else:
        parts.append(Text("  no router: nothing outside reaches this model (see models in the chart)", style="yellow"))
    return Group(*parts, Text(""))


def _headline(service: Service) -> Text:
    ready = service.condition("Ready")
    line = Text(f"{service.name}  ", style="bold")
    if ready is None:
        line.append("unknown: no operator has looked at it", style="yellow")
    else:
        line.append("ready" if ready.status == "True" else "not ready", style="green" if is_ready(service) else "red")
        line.append(f"  {ready.reason}", style="dim")
    return line.append(f"  model {service.model}", style="dim")


def _objective(seen: Topology) -> Text:
    service = seen.service
    readings = [reading for _, reading in seen.routers if reading is not None]
    ttft = total(reading.ttft for reading in readings)
    itl = total(reading.itl for reading in readings)
    lately = service.condition("SLOMet")
    return Text(
        f"  p{service.percentile:g} since the routers' start: "
        f"TTFT {_latency(ttft, service.percentile)} (objective {service.ttft_objective_s:g} s), "
        f"ITL {_latency(itl, service.percentile)} (objective {service.itl_objective_s:g} s); "
        f"lately: {lately.reason if lately else 'unknown'}"
    )


def _latency(histogram: Histogram, percentile: float) -> str:
    bound = histogram.percentile(percentile)
    return "-" if bound is None else f"<= {bound:g} s"


def _trouble(seen: Topology) -> Iterator[Text]:
    """Conditions that a person should read, of the service first; the rollout's gate among them."""
    named: list[tuple[str, Sequence[Condition]]] = [("", seen.service.conditions)]
    named += [(f"{pool.name}: ", pool.conditions) for pool in seen.pools]
    told = set()
    for owner, conditions in named:
        for condition in conditions:
            text = f"{condition.type}={condition.status} {condition.reason}: {condition.message}"
            if _worth_telling(condition) and text not in told:
                told.add(text)
                yield Text(f"  {owner}{text}", style="yellow")


def _worth_telling(condition: Condition) -> bool:
    if condition.type in _GOOD_WHEN_TRUE:
        return condition.status == "False"
    if condition.reason == "RolloutBlocked":
        return True
    if condition.type in ("Progressing", "Draining", *_BAD_WHEN_TRUE):
        return condition.status == "True"
    return False


def _pools(pools: Sequence[Pool]) -> Table:
    table = Table("pool", "role", "mode", "desired", "ready", "updated", "draining", "override", box=None)
    for pool in pools:
        numbers = (pool.desired, pool.ready, pool.updated, pool.draining)
        table.add_row(pool.name, pool.role, pool.mode, *map(str, numbers), pool.override or "-")
    return table


def _workers(seen: Topology, now: datetime) -> Table:
    table = Table("pod", "role", "state", "revision", "in flight", "running", "waiting", "KV", "node", box=None)
    for pod, reading in seen.workers:
        numbers = ("-", "-", "-", "-")
        if reading is not None:
            counts = (reading.in_flight, reading.running, reading.waiting)
            numbers = (*map(str, counts), f"{reading.kv_usage:.0%}")  # type: ignore[assignment]
        table.add_row(pod.name, pod.role, _state(pod, now), pod.revision, *numbers, pod.node or "-")
    return table


def _state(pod: Pod, now: datetime) -> str:
    since = seconds_between(pod.draining_since, now) if pod.state == "draining" else None
    return pod.state if since is None else f"draining {since:.0f} s ({pod.drain_reason or 'no reason given'})"


def _routers(seen: Topology) -> Table:
    table = Table("router", "state", "in flight", "held", box=None)
    for pod, reading in seen.routers:
        numbers = ("-", "-") if reading is None else (str(reading.in_flight), str(reading.held))
        table.add_row(pod.name, pod.state, *numbers)
    return table
