"""Published formulas of other autoscalers, written anew from their documentation, each behind `Controller`.

None is the peer's whole product: names and docstrings say which formula it is and what is left out. Where a formula
asks for a profile, it gets the simulated hardware's true figures, which is better than any measured profile.
"""

import math
from abc import ABC, abstractmethod
from collections import deque

from kvarn_bench.scaling_pods import Hardware
from kvarn_bench.scaling_view import FleetView, Limits, PodView, Replicas


def _mean_utilisation(pods: tuple[PodView, ...]) -> float:
    return sum(pod.utilisation for pod in pods) / len(pods) if pods else 0.0


class _Highest:
    """The highest recommendation of a window: HPA's downscale stabilisation."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, value: int, now: float) -> int:
        self._seen.append((now, value))
        while self._seen[0][0] <= now - self._window_s:
            self._seen.popleft()
        return max(each for _, each in self._seen)


class _EachPoolAlone(ABC):
    """One formula for both pools, each on its own metric; a decrease waits for 300 s of wanting it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._windows = (_Highest(300.0), _Highest(300.0))

    def decide(self, view: FleetView, now: float) -> Replicas:
        return Replicas(
            self._pool(view.replicas.prefill, view.ready(view.prefill), self._windows[0], now),
            self._pool(view.replicas.decode, view.ready(view.decode), self._windows[1], now),
        )

    @abstractmethod
    def _pool(self, current: int, ready: tuple[PodView, ...], window: _Highest, now: float) -> int: ...


class HpaController(_EachPoolAlone):
    """Kubernetes HPA, autoscaling/v2: ceil(current x metric / target), tolerance 0.1, down window 300 s, at most
    the larger of 4 pods and 100 % up per 15 s. Metric: busy share of prefill, KV usage of decode; target 0.7.
    """

    name = "HPA"

    def _pool(self, current: int, ready: tuple[PodView, ...], window: _Highest, now: float) -> int:
        """Pods not ready count as idle when it would grow, so the ready ones' sum is set against the target."""
        ratio = _mean_utilisation(ready) / 0.7
        if ratio > 1.0:
            ratio = max(1.0, ratio * len(ready) / max(current, 1))
        wanted = current if abs(ratio - 1.0) <= 0.1 else math.ceil(current * ratio)
        wanted = min(self._limits.clamp(wanted), max(2 * current, current + 4))
        highest = window.of(wanted, now)
        return min(highest, current) if wanted < current else wanted


class DynamoThroughputController:
    """NVIDIA Dynamo planner, throughput scaling: every 180 s, demand / best engine rate that meets the objective at
    mean lengths; the last interval predicts the next (its ARIMA and Kalman predictors and the load part are left out).
    """

    name = "Dynamo throughput"

    def __init__(self, limits: Limits, hardware: Hardware) -> None:
        self._limits, self._hardware = limits, hardware
        self._next_at = 0.0

    def decide(self, view: FleetView, now: float) -> Replicas:
        if now < self._next_at or not view.mean_output:
            return view.replicas
        self._next_at = now + 180.0
        ttft = view.mean_prompt / self._hardware.prefill_tokens_per_s
        prefill = math.ceil(view.requests_per_s * ttft)
        if ttft > self._limits.ttft_s:
            prefill = max(prefill, math.ceil(ttft / self._limits.ttft_s))
        context = view.mean_prompt + view.mean_output / 2
        decode = math.ceil(view.requests_per_s / self._decode_rate(context, view.mean_output))
        return self._fit(self._limits.clamp(prefill), self._limits.clamp(decode))

    def _decode_rate(self, context: float, output: float) -> float:
        """The largest batch within ITL and KV, in requests per second."""
        hardware, best = self._hardware, 1
        while hardware.itl_s(best + 1, (best + 1) * context) <= self._limits.itl_s:
            if (best + 1) * context > hardware.kv_tokens:
                break
            best += 1
        return best / (hardware.itl_s(best, best * context) * output)

    def _fit(self, prefill: int, decode: int) -> Replicas:
        total = prefill + decode
        if total <= self._limits.gpus:
            return Replicas(prefill, decode)
        prefill = max(1, min(self._limits.gpus - 1, prefill * self._limits.gpus // total))
        return Replicas(prefill, self._limits.gpus - prefill)


class LlmdController:
    """llm-d token-aware P/D with KEDA: n_p = ceil(sum(uncached tokens in flight) / V_P / theta), theta = 65 % of (TTFT
    objective - prompt / V_P); n_d = ceil(sum(KV usage) / 0.8); +1 pod per 180 s, -1 per 300 s, down window 300 s.
    `fast`: the same formulas with HPA's default pace up and -1 per 60 s, to tell the formula from its pace.
    """

    def __init__(self, limits: Limits, hardware: Hardware, fast: bool = False) -> None:
        self.name = "llm-d, faster pace" if fast else "llm-d token-aware"
        self._limits, self._hardware = limits, hardware
        self._step, self._up_s, self._down_s = (limits.maximum, 15.0, 60.0) if fast else (1, 180.0, 300.0)
        self._windows = (_Highest(300.0), _Highest(300.0))
        self._moved_at = [-math.inf, -math.inf]

    def decide(self, view: FleetView, now: float) -> Replicas:
        rate = self._hardware.prefill_tokens_per_s
        theta = max((self._limits.ttft_s - view.mean_prompt / rate) * 0.65, 0.1)
        prefill = math.ceil(view.uncached_tokens / rate / theta)
        decode = math.ceil(sum(pod.kv_usage for pod in view.decode) / 0.8)
        return Replicas(
            self._paced(0, view.replicas.prefill, prefill, now), self._paced(1, view.replicas.decode, decode, now)
        )

    def _paced(self, index: int, current: int, wanted: int, now: float) -> int:
        wanted = self._limits.clamp(wanted)
        highest = self._windows[index].of(wanted, now)
        target = current
        if wanted > current and now - self._moved_at[index] >= self._up_s:
            target = min(wanted, current + self._step)
        elif highest < current and now - self._moved_at[index] >= self._down_s:
            target = current - 1
        if target != current:
            self._moved_at[index] = now
        return target


class AibrixController(_EachPoolAlone):
    """AIBrix APA: r = metric / target; above 1.1 min(ceil(n r), 2 n), below 0.9 max(ceil(n r), n / 2); cooldown 0 s up,
    300 s down. Metric as for HPA, target 0.7 (its published example scales on KV usage 70).
    """

    name = "AIBrix APA"

    def _pool(self, current: int, ready: tuple[PodView, ...], window: _Highest, now: float) -> int:
        ratio = _mean_utilisation(ready) / 0.7
        wanted = current
        if ratio > 1.1:
            wanted = min(math.ceil(current * ratio), 2 * current)
        elif ratio < 0.9:
            wanted = max(math.ceil(current * ratio), current // 2)
        wanted = self._limits.clamp(wanted)
        highest = window.of(wanted, now)
        return min(highest, current) if wanted < current else wanted


class FixedController:
    """The fleet at its largest, all the time: what attainment costs without any autoscaler."""

    name = "fixed at maximum"

    def __init__(self, limits: Limits) -> None:
        self._replicas = Replicas(limits.maximum, limits.maximum)

    def decide(self, view: FleetView, now: float) -> Replicas:
        return self._replicas
