"""The seam of `bench scaling`: what every controller sees of the fleet, and what it answers."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvarn_bench.scaling_pods import Stage


class Replicas(NamedTuple):
    prefill: int
    decode: int


@dataclass(frozen=True, slots=True)
class PodView:
    number: int
    stage: Stage
    kv_usage: float = 0.0
    running: int = 0
    utilisation: float = 0.0
    """Share of the last interval spent computing (prefill), or KV usage (decode)."""


@dataclass(frozen=True, slots=True)
class FleetView:
    replicas: Replicas
    prefill: tuple[PodView, ...]
    decode: tuple[PodView, ...]
    inflight: int
    held: int
    uncached_tokens: float
    """Of prompts held, queued or being computed."""

    requests_per_s: float
    mean_prompt: float
    mean_output: float
    """Over the last minute."""

    ttft_s: float | None
    itl_s: float | None
    """90th percentile over the last minute."""

    def ready(self, pods: tuple[PodView, ...]) -> tuple[PodView, ...]:
        return tuple(pod for pod in pods if pod.stage is Stage.READY)


@dataclass(frozen=True, slots=True)
class Limits:
    minimum: int
    maximum: int
    gpus: int
    ttft_s: float
    itl_s: float

    def clamp(self, count: int) -> int:
        return min(max(count, self.minimum), self.maximum)


class Controller(Protocol):
    @property
    def name(self) -> str: ...

    def decide(self, view: FleetView, now: float) -> Replicas: ...
