"""Each formula at a point computed by hand."""

from dataclasses import replace

from kvarn_bench.scaling_kvarn import KvarnController
from kvarn_bench.scaling_peers import (
    AibrixController,
    DynamoThroughputController,
    FixedController,
    HpaController,
    LlmdController,
)
from kvarn_bench.scaling_pods import Hardware, Stage
from kvarn_bench.scaling_view import FleetView, Limits, PodView, Replicas

HARDWARE = Hardware(prefill_tokens_per_s=1000.0, kv_tokens=100_000)
LIMITS = Limits(1, 12, 24, ttft_s=2.0, itl_s=0.025)


def pods(count: int, share: float) -> tuple[PodView, ...]:
    return tuple(PodView(number, Stage.READY, share, 1, share) for number in range(count))


VIEW = FleetView(
    replicas=Replicas(4, 4), prefill=pods(4, 0.7), decode=pods(4, 0.7), inflight=10, held=0, uncached_tokens=2000.0,
    requests_per_s=2.0, mean_prompt=1000.0, mean_output=100.0, ttft_s=1.0, itl_s=0.01,
)  # fmt: skip


def test_hpa() -> None:
    assert HpaController(LIMITS).decide(replace(VIEW, prefill=pods(4, 0.76)), 15.0).prefill == 4  # within tolerance
    assert HpaController(LIMITS).decide(replace(VIEW, prefill=pods(4, 0.9)), 15.0).prefill == 6
    starting = (*pods(2, 0.9), *(PodView(9 + n, Stage.STARTING) for n in range(2)))
    assert HpaController(LIMITS).decide(replace(VIEW, prefill=starting), 15.0).prefill == 4


def test_hpa_goes_down_after_its_window() -> None:
    controller, idle = HpaController(LIMITS), replace(VIEW, decode=pods(4, 0.1))
    controller.decide(VIEW, 0.0)
    assert controller.decide(idle, 299.0).decode == 4
    assert controller.decide(idle, 301.0).decode == 1


def test_dynamo_asks_for_demand_over_the_engines_best_rate() -> None:
    controller = DynamoThroughputController(LIMITS, HARDWARE)
    assert controller.decide(replace(VIEW, requests_per_s=3.5), 15.0) == (4, 1)
    assert controller.decide(replace(VIEW, requests_per_s=9.0), 30.0) == VIEW.replicas  # every 180 s only
    assert controller.decide(replace(VIEW, requests_per_s=9.0), 195.0).prefill == 9


def test_llmd_divides_tokens_by_rate_and_slack() -> None:
    """theta = 0.65 x (2 s - 1 s)."""
    fast = LlmdController(LIMITS, HARDWARE, fast=True)
    assert fast.decide(replace(VIEW, uncached_tokens=5000.0, decode=pods(4, 0.9)), 15.0) == (8, 5)
    paced = LlmdController(LIMITS, HARDWARE)
    crowded = replace(VIEW, uncached_tokens=5000.0)
    assert [paced.decide(crowded, now).prefill for now in (15.0, 30.0)] == [5, 4]


def test_aibrix_at_most_doubles_and_at_most_halves() -> None:
    assert AibrixController(LIMITS).decide(replace(VIEW, prefill=pods(2, 1.0), replicas=Replicas(2, 4)), 0.0) == (3, 4)
    assert AibrixController(replace(LIMITS, maximum=2)).decide(replace(VIEW, decode=pods(4, 1.0)), 0.0).decode == 2
    assert AibrixController(LIMITS).decide(replace(VIEW, decode=pods(4, 0.01)), 0.0).decode == 2


def test_kvarn_runs_the_operators_planner() -> None:
    controller = KvarnController(LIMITS, HARDWARE)
    assert controller.decide(replace(VIEW, uncached_tokens=7500.0, decode=pods(4, 1.0)), 15.0) == (8, 5)


def test_fixed_stays() -> None:
    assert FixedController(LIMITS).decide(VIEW, 0.0) == (12, 12)
