"""Simulated pods of `bench scaling`: service rates, queues and KV capacity. Driven by the fleet's events; no clock."""

import enum
import heapq
from dataclasses import dataclass, field

from kvarn_bench.scaling_trace import Arrival


@dataclass(frozen=True, slots=True)
class Hardware:
    """About an 8B model on an H100-class GPU: 16 GB of weights, 131 KB of KV per token, 3.35 TB/s."""

    prefill_tokens_per_s: float = 12_000.0
    kv_tokens: int = 300_000
    step_s: float = 0.008
    step_per_sequence_s: float = 0.00006
    step_per_kv_token_s: float = 0.00000004
    start_delay_s: float = 90.0
    """From the decision to the first request served: image, weights, warm-up."""

    def itl_s(self, sequences: float, kv_tokens: float) -> float:
        return self.step_s + self.step_per_sequence_s * sequences + self.step_per_kv_token_s * kv_tokens


class Stage(enum.Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"


@dataclass(slots=True, eq=False)
class Request:
    arrival: Arrival
    decode: "DecodePod | None" = None
    prefill: "PrefillPod | None" = None
    first_token_at: float | None = None
    done_at: float | None = None

    @property
    def kv_tokens(self) -> int:
        return self.arrival.prompt + self.arrival.output


@dataclass(slots=True, eq=False)
class PrefillPod:
    """One prompt at a time, first in first out."""

    number: int
    ready_at: float
    stage: Stage = Stage.STARTING
    free_at: float = 0.0
    """When all that is queued is computed."""

    queued: int = 0
    busy_s: float = 0.0

    def take(self, request: Request, now: float, rate: float) -> float:
        """Returns when the prompt is computed."""
        cost = request.arrival.prompt / rate
        self.free_at = max(self.free_at, now) + cost
        self.busy_s += cost
        self.queued += 1
        return self.free_at


@dataclass(slots=True, eq=False)
class DecodePod:
    """All sequences advance together, one token per step; `position` counts steps, so an end is a fixed position."""

    number: int
    ready_at: float
    stage: Stage = Stage.STARTING
    reserved: int = 0
    """KV tokens of admitted requests, their output included: admission by predicted growth."""

    admitted: int = 0
    position: float = 0.0
    updated_at: float = 0.0
    version: int = 0
    """Grows with every change of the batch; an event of an older version is void."""

    ends: list[tuple[float, int, Request]] = field(default_factory=list)

    def advance(self, now: float, hardware: Hardware) -> None:
        if self.ends:
            self.position += (now - self.updated_at) / hardware.itl_s(len(self.ends), self.reserved)
        self.updated_at = now

    def join(self, request: Request, order: int) -> None:
        heapq.heappush(self.ends, (self.position + request.arrival.output, order, request))
        self.version += 1

    def next_end(self, hardware: Hardware) -> float | None:
        if not self.ends:
            return None
        left = max(self.ends[0][0] - self.position, 0.0)
        return self.updated_at + left * hardware.itl_s(len(self.ends), self.reserved)

    def pop_ended(self) -> list[Request]:
        ended = []
        while self.ends and self.ends[0][0] <= self.position + 1e-6:
            ended.append(heapq.heappop(self.ends)[2])
        self.version += bool(ended)
        return ended
