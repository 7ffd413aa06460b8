"""`kubectl kvarn drain`: take one worker pod out of service without losing a stream, or call that off."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console

from kvarn_cli.k8s.cluster import DRAIN_REASON_ANNOTATION, DRAINING_ANNOTATION, Cluster, ClusterError, NotThere
from kvarn_cli.k8s.resources import WORKER, Pod, pod_of
from kvarn_cli.k8s.topology import read_worker

USER_REASON = "User"
_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class DrainOptions:
    pod: str
    undo: bool = False
    wait: bool = True
    timeout_s: float = 600.0


def run_drain(
    cluster: Cluster,
    options: DrainOptions,
    now: datetime,
    console: Console,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """1 when the pod is still there at the end. Raises ClusterError."""
    resource = cluster.pod(options.pod)
    pod = pod_of(resource)
    if "kvarn.dev/pool" not in (resource["metadata"].get("labels") or {}) or pod.component != WORKER:
        raise ClusterError(f"{options.pod} is no worker pod of Kvarn")
    if options.undo:
        return _undo(cluster, pod, console)
    if pod.state not in ("draining", "terminating"):
        since = now.isoformat(timespec="seconds")
        cluster.annotate(pod.name, {DRAINING_ANNOTATION: since, DRAIN_REASON_ANNOTATION: USER_REASON})
    console.print(f"{pod.name} gets no new work; the operator replaces and deletes it once it is idle")
    return _wait(cluster, resource["metadata"]["uid"], options, console, sleep) if options.wait else 0


def _undo(cluster: Cluster, pod: Pod, console: Console) -> int:
    if pod.state == "terminating":
        raise ClusterError(f"{pod.name} is already being deleted")
    cluster.annotate(pod.name, {DRAINING_ANNOTATION: None, DRAIN_REASON_ANNOTATION: None})
    console.print(f"{pod.name} gets work again")
    return 0


def _wait(cluster: Cluster, uid: str, options: DrainOptions, console: Console, sleep: Callable[[float], None]) -> int:
    told = ""
    for _ in range(max(1, round(options.timeout_s / _POLL_S))):
        try:
            resource = cluster.pod(options.pod)
        except NotThere:
            resource = {"metadata": {"uid": ""}}
        if resource["metadata"]["uid"] != uid:
            console.print(f"{options.pod} is gone")
            return 0
        line = _progress(cluster, pod_of(resource))
        if line != told:
            console.print(line)
            told = line
        sleep(_POLL_S)
    console.print(f"{options.pod} is still there after {options.timeout_s:g} s; the drain goes on without this command")
    return 1


def _progress(cluster: Cluster, pod: Pod) -> str:
    reading = read_worker(cluster, pod)
    return f"  {pod.state}, in flight: {'unknown' if reading is None else reading.in_flight}"
