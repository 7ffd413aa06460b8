"""A discrete-event fleet of prefill and decode pods under one controller. Same trace, same controller: same result.

A request is admitted to a decode pod with room (else the router holds it), prefilled on the pod that is free first, and
decoded. A pod holds its GPU from the decision until it is gone; a pod on its way out finishes what it has.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from kvarn_bench.percentiles import percentile
from kvarn_bench.scaling_pods import DecodePod, Hardware, PrefillPod, Request, Stage
from kvarn_bench.scaling_trace import Trace
from kvarn_bench.scaling_view import Controller, FleetView, PodView, Replicas

TICK_S = 15.0
WINDOW_S = 60.0


class _Kind(Enum):
    ARRIVAL = 0
    PREFILLED = 1
    DECODED = 2
    STARTED = 3
    TICK = 4


@dataclass(slots=True)
class Outcome:
    requests: list[Request] = field(default_factory=list)
    gpu_s: float = 0.0
    changes: int = 0
    """Decisions that changed a pool's replicas."""

    reversals: int = 0
    """Changes of direction of one pool: flapping."""


_Pod = TypeVar("_Pod", PrefillPod, DecodePod)
_Subject = Request | PrefillPod | DecodePod | None


class Fleet:
    def __init__(self, trace: Trace, controller: Controller, hardware: Hardware, start: Replicas) -> None:
        self._trace, self._controller, self._hardware = trace, controller, hardware
        self._events: list[tuple[float, int, _Kind, _Subject, int]] = []
        self._order = 0
        self._now = 0.0
        self._prefill = [PrefillPod(self._next(), 0.0, Stage.READY) for _ in range(start.prefill)]
        self._decode = [DecodePod(self._next(), 0.0, Stage.READY) for _ in range(start.decode)]
        self._replicas = start
        self._directions = [0, 0]
        self._held: deque[Request] = deque()
        self._uncached_tokens = 0
        self._recent: deque[Request] = deque()
        self._finished: deque[Request] = deque()
        self._busy_before: dict[int, float] = {}
        self._inflight = 0
        self._outcome = Outcome()

    def run(self) -> Outcome:
        for arrival in self._trace.arrivals:
            self._push(arrival.at, _Kind.ARRIVAL, Request(arrival))
        for number in range(1, int(self._trace.duration_s / TICK_S) + 1):
            self._push(number * TICK_S, _Kind.TICK, None)
        while self._events:
            at, _, kind, subject, version = heapq.heappop(self._events)
            if at <= self._trace.duration_s:
                self._outcome.gpu_s += (at - self._now) * (len(self._prefill) + len(self._decode))
            elif self._inflight == 0 or at > self._trace.duration_s * 2:
                break
            self._now = at
            self._handle(kind, subject, version)
        return self._outcome

    def _next(self) -> int:
        self._order += 1
        return self._order

    def _push(self, at: float, kind: _Kind, subject: _Subject, version: int = 0) -> None:
        heapq.heappush(self._events, (at, self._next(), kind, subject, version))

    def _handle(self, kind: _Kind, subject: _Subject, version: int) -> None:
        if kind is _Kind.ARRIVAL:
            assert isinstance(subject, Request)
            self._arrive(subject)
        elif kind is _Kind.PREFILLED:
            assert isinstance(subject, Request)
            self._prefilled(subject)
        elif kind is _Kind.DECODED:
            assert isinstance(subject, DecodePod)
            self._decoded(subject, version)
        elif kind is _Kind.STARTED:
            assert isinstance(subject, PrefillPod | DecodePod)
            subject.stage = Stage.READY if subject.stage is Stage.STARTING else subject.stage
            self._admit()
        else:
            self._tick()

    def _arrive(self, request: Request) -> None:
        self._inflight += 1
        self._uncached_tokens += request.arrival.prompt
        self._outcome.requests.append(request)
        self._recent.append(request)
        self._held.append(request)
        self._admit()

    def _admit(self) -> None:
        """In order of arrival; the pod with most room first."""
        prefill = [pod for pod in self._prefill if pod.stage is Stage.READY]
        decode = [pod for pod in self._decode if pod.stage is Stage.READY]
        while self._held and prefill and decode:
            target = min(decode, key=lambda pod: (pod.reserved, pod.number))
            request = self._held[0]
            if target.reserved and target.reserved + request.kv_tokens > self._hardware.kv_tokens:
                return
            self._held.popleft()
            target.advance(self._now, self._hardware)
            target.reserved += request.kv_tokens
            target.admitted += 1
            self._schedule(target)
            worker = min(prefill, key=lambda pod: (max(pod.free_at, self._now), pod.number))
            request.decode, request.prefill = target, worker
            done = worker.take(request, self._now, self._hardware.prefill_tokens_per_s)
            self._push(done, _Kind.PREFILLED, request)

    def _prefilled(self, request: Request) -> None:
        assert request.prefill is not None
        assert request.decode is not None
        request.first_token_at = self._now
        self._uncached_tokens -= request.arrival.prompt
        request.prefill.queued -= 1
        pod = request.decode
        pod.advance(self._now, self._hardware)
        pod.join(request, self._next())
        self._schedule(pod)
        self._remove_drained()

    def _decoded(self, pod: DecodePod, version: int) -> None:
        if version != pod.version:
            return
        pod.advance(self._now, self._hardware)
        for request in pod.pop_ended():
            request.done_at = self._now
            self._inflight -= 1
            self._finished.append(request)
            pod.reserved -= request.kv_tokens
            pod.admitted -= 1
        self._schedule(pod)
        self._remove_drained()
        self._admit()

    def _schedule(self, pod: DecodePod) -> None:
        pod.version += 1
        end = pod.next_end(self._hardware)
        if end is not None:
            self._push(end, _Kind.DECODED, pod, pod.version)

    def _remove_drained(self) -> None:
        self._prefill = [pod for pod in self._prefill if pod.stage is not Stage.DRAINING or pod.queued]
        self._decode = [pod for pod in self._decode if pod.stage is not Stage.DRAINING or pod.admitted]

    def _tick(self) -> None:
        wanted = self._controller.decide(self._view(), self._now)
        for index, (before, after) in enumerate(zip(self._replicas, wanted, strict=True)):
            direction = (after > before) - (after < before)
            if direction:
                self._outcome.changes += 1
                self._outcome.reversals += self._directions[index] == -direction
                self._directions[index] = direction
        self._replicas = wanted
        self._resize(self._prefill, wanted.prefill, PrefillPod)
        self._resize(self._decode, wanted.decode, DecodePod)
        self._remove_drained()

    def _resize(self, pods: list[_Pod], wanted: int, make: Callable[[int, float], _Pod]) -> None:
        """Victims: those not ready yet, then the least loaded."""
        live = [pod for pod in pods if pod.stage is not Stage.DRAINING]
        for _ in range(wanted - len(live)):
            pod = make(self._next(), self._now + self._hardware.start_delay_s)
            pods.append(pod)
            self._push(pod.ready_at, _Kind.STARTED, pod)
        live.sort(key=lambda pod: (pod.stage is Stage.READY, _load(pod), pod.number))
        for pod in live[: max(len(live) - wanted, 0)]:
            pod.stage = Stage.DRAINING

    def _view(self) -> FleetView:
        while self._recent and self._recent[0].arrival.at < self._now - WINDOW_S:
            self._recent.popleft()
        while self._finished and (self._finished[0].done_at or 0.0) < self._now - WINDOW_S:
            self._finished.popleft()
        first = [r.first_token_at - r.arrival.at for r in self._recent if r.first_token_at is not None]
        between = [token_interval_s(request) for request in self._finished]
        count = max(len(self._recent), 1)
        return FleetView(
            replicas=self._replicas,
            prefill=tuple(self._prefill_view(pod) for pod in self._prefill),
            decode=tuple(self._decode_view(pod) for pod in self._decode),
            inflight=self._inflight, held=len(self._held), uncached_tokens=float(self._uncached_tokens),
            requests_per_s=len(self._recent) / min(WINDOW_S, self._now),
            mean_prompt=sum(request.arrival.prompt for request in self._recent) / count,
            mean_output=sum(request.arrival.output for request in self._finished) / max(len(self._finished), 1),
            ttft_s=percentile(first, 0.9) if first else None, itl_s=percentile(between, 0.9) if between else None,
        )  # fmt: skip

    def _prefill_view(self, pod: PrefillPod) -> PodView:
        """Work counts when it is done: what is queued ahead of the clock is taken off."""
        done = pod.busy_s - max(pod.free_at - self._now, 0.0)
        share = (done - self._busy_before.get(pod.number, 0.0)) / TICK_S
        self._busy_before[pod.number] = done
        return PodView(pod.number, pod.stage, running=pod.queued, utilisation=min(max(share, 0.0), 1.0))

    def _decode_view(self, pod: DecodePod) -> PodView:
        usage = min(pod.reserved / self._hardware.kv_tokens, 1.0)
        return PodView(pod.number, pod.stage, kv_usage=usage, running=pod.admitted, utilisation=usage)


def _load(pod: PrefillPod | DecodePod) -> int:
    return pod.queued if isinstance(pod, PrefillPod) else pod.admitted


def token_interval_s(request: Request) -> float:
    assert request.done_at is not None
    assert request.first_token_at is not None
    return (request.done_at - request.first_token_at) / request.arrival.output
