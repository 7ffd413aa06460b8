"""`kubectl kvarn logs`: the logs of all pods of a model in one stream, each line with its pod's name."""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from kvarn_cli.k8s.cluster import Cluster, ClusterError
from kvarn_cli.k8s.resources import ROUTER, Pod, pod_of
from kvarn_cli.k8s.topology import services

_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red")


@dataclass(frozen=True, slots=True)
class LogOptions:
    service: str
    role: str = ""
    """prefill, decode or router; empty: all."""

    follow: bool = False
    tail: int = 50


def show_logs(cluster: Cluster, options: LogOptions, console: Console) -> int:
    """Until every log ends; with `follow`, until Ctrl-C. Raises ClusterError."""
    pods = [pod for service in services(cluster, options.service) for pod in _pods(cluster, service.name, options)]
    if not pods:
        console.print(f"no pods of role {options.role or 'any'} to show")
        return 1
    if options.follow:
        return _follow(cluster, pods, options, console)
    for number, pod in enumerate(pods):
        for line in cluster.log_lines(pod.name, False, options.tail):
            _print(console, pod, number, line)
    return 0


def _pods(cluster: Cluster, service: str, options: LogOptions) -> list[Pod]:
    pods = sorted((pod_of(resource) for resource in cluster.pods(service)), key=lambda pod: pod.name)
    return [pod for pod in pods if options.role in ("", pod.role, pod.component if pod.component == ROUTER else "")]


def _follow(cluster: Cluster, pods: Sequence[Pod], options: LogOptions, console: Console) -> int:
    """One thread for each pod reads; this one prints. Threads end with their logs, or with the process."""
    lines: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()

    def read(number: int, pod: Pod) -> None:
        try:
            for line in cluster.log_lines(pod.name, True, options.tail):
                lines.put((number, line))
        except ClusterError as error:
            lines.put((number, str(error)))
        finally:
            lines.put((number, None))

    for number, pod in enumerate(pods):
        threading.Thread(target=read, args=(number, pod), name=f"log-{pod.name}", daemon=True).start()
    open_logs = len(pods)
    while open_logs:
        number, line = lines.get()
        if line is None:
            open_logs -= 1
        else:
            _print(console, pods[number], number, line)
    return 0


def _print(console: Console, pod: Pod, number: int, line: str) -> None:
    console.print(Text(f"{pod.name} ", style=_COLOURS[number % len(_COLOURS)]) + Text(line), soft_wrap=True)
