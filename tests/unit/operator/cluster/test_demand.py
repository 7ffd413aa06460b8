"""Prometheus text -> readings -> demand: sums over routers, counters that start anew, percentiles between scrapes."""

import pytest
from kvarn_operator.cluster.demand import DemandWindow
from kvarn_operator.cluster.exposition import BadExposition, RouterReading, percentile, read_router, read_worker

INF = float("inf")

WORKER = """
# TYPE kvarn_requests_in_flight gauge
kvarn_requests_in_flight 3
# TYPE kvarn_running_requests gauge
kvarn_running_requests 2
# TYPE kvarn_waiting_requests gauge
kvarn_waiting_requests 1
# TYPE kvarn_kv_blocks gauge
kvarn_kv_blocks{state="in_use"} 30
kvarn_kv_blocks{state="cached"} 50
kvarn_kv_blocks{state="total"} 120
# TYPE kvarn_prefill_tokens_per_second gauge
kvarn_prefill_tokens_per_second 2500.5
"""

ROUTER = """
# TYPE kvarn_router_requests_in_flight gauge
kvarn_router_requests_in_flight 7
# TYPE kvarn_router_requests_held gauge
kvarn_router_requests_held 2
# TYPE kvarn_router_uncached_tokens_in_flight gauge
kvarn_router_uncached_tokens_in_flight 1200
# TYPE kvarn_router_uncached_tokens counter
kvarn_router_uncached_tokens_total 34000
kvarn_router_uncached_tokens_created 1.7e9
# TYPE kvarn_api_ttft_seconds histogram
kvarn_api_ttft_seconds_bucket{model="a",le="0.5"} 4
kvarn_api_ttft_seconds_bucket{model="a",le="1.0"} 8
kvarn_api_ttft_seconds_bucket{model="a",le="+Inf"} 8
kvarn_api_ttft_seconds_bucket{model="b",le="0.5"} 1
kvarn_api_ttft_seconds_bucket{model="b",le="1.0"} 1
kvarn_api_ttft_seconds_bucket{model="b",le="+Inf"} 2
kvarn_api_ttft_seconds_count 10
kvarn_api_ttft_seconds_sum 5
"""


def router(at: float, total: float = 0.0, ttft: tuple[float, ...] = (), in_flight: int = 0) -> RouterReading:
    """`ttft` counts up to 1 s, 2 s and in all."""
    bounds = (1.0, 2.0, INF)
    buckets = tuple(zip(bounds, ttft, strict=True)) if ttft else ()
    return RouterReading(at, in_flight, 1, 100.0, total, buckets, ())


def test_a_worker_is_read() -> None:
    reading = read_worker(WORKER, 12.0)
    assert (reading.in_flight, reading.cached_blocks) == (3, 50)
    assert (reading.metrics.at, reading.metrics.running, reading.metrics.waiting) == (12.0, 2, 1)
    assert reading.metrics.kv_usage == 0.25
    assert reading.metrics.prefill_rate == 2500.5


def test_an_unknown_rate_and_a_worker_without_blocks() -> None:
    reading = read_worker("kvarn_requests_in_flight 0\nkvarn_prefill_tokens_per_second 0\n", 1.0)
    assert reading.metrics.prefill_rate is None
    assert reading.metrics.kv_usage == 0.0


@pytest.mark.parametrize("text", ["", "kvarn_requests_in_flight not-a-number\n", "<html>404</html>\n"])
def test_what_is_no_worker_is_no_reading(text: str) -> None:
    with pytest.raises(BadExposition):
        read_worker(text, 1.0)


def test_a_router_is_read_and_labels_are_summed() -> None:
    reading = read_router(ROUTER, 5.0)
    assert (reading.in_flight, reading.held, reading.uncached_in_flight) == (7, 2, 1200.0)
    assert reading.uncached_total == 34000.0
    assert reading.ttft == ((0.5, 5.0), (1.0, 9.0), (INF, 10.0))
    assert reading.itl == ()
    with pytest.raises(BadExposition):
        read_router(WORKER, 5.0)


@pytest.mark.parametrize(
    ("buckets", "share", "wanted"),
    [
        (((1.0, 10.0), (2.0, 20.0), (INF, 20.0)), 0.5, 1.0),
        (((1.0, 10.0), (2.0, 20.0), (INF, 20.0)), 0.75, 1.5),
        (((1.0, 10.0), (2.0, 20.0), (INF, 20.0)), 0.25, 0.5),
        (((1.0, 0.0), (2.0, 4.0), (INF, 4.0)), 0.5, 1.5),
        (((1.0, 5.0), (2.0, 5.0), (INF, 10.0)), 0.95, 2.0),
        (((1.0, 0.0), (INF, 0.0)), 0.95, None),
        ((), 0.95, None),
    ],
)
def test_percentiles(buckets: tuple[tuple[float, float], ...], share: float, wanted: float | None) -> None:
    found = percentile(buckets, share)
    assert found == (None if wanted is None else pytest.approx(wanted))


def test_one_scrape_tells_the_load_but_no_rates() -> None:
    window = DemandWindow()
    window.add("r1", router(10.0, total=5000.0, ttft=(9.0, 9.0, 9.0), in_flight=4))
    demand = window.demand(["r1"], 95.0)
    assert demand is not None
    assert (demand.at, demand.inflight_requests, demand.held_requests) == (10.0, 4, 1)
    assert (demand.uncached_tokens_per_s, demand.ttft_s) == (0.0, None)


def test_two_routers_are_summed_and_the_oldest_reading_dates_the_sum() -> None:
    window = DemandWindow()
    for at, total in ((0.0, 1000.0), (5.0, 1500.0), (10.0, 3000.0)):
        window.add("r1", router(at, total=total, in_flight=2))
    for at, total in ((1.0, 0.0), (11.0, 500.0)):
        window.add("r2", router(at, total=total, in_flight=3))
    demand = window.demand(["r1", "r2"], 95.0)
    assert demand is not None
    assert (demand.at, demand.inflight_requests, demand.held_requests) == (10.0, 5, 2)
    assert demand.uncached_inflight_tokens == 200.0
    assert demand.uncached_tokens_per_s == pytest.approx(200.0 + 50.0)


def test_a_router_that_started_anew_counts_from_zero() -> None:
    window = DemandWindow()
    window.add("r1", router(0.0, total=10_000.0, ttft=(50.0, 50.0, 50.0)))
    window.add("r1", router(10.0, total=400.0, ttft=(0.0, 2.0, 2.0)))
    demand = window.demand(["r1"], 50.0)
    assert demand is not None
    assert demand.uncached_tokens_per_s == pytest.approx(40.0)
    assert demand.ttft_s == pytest.approx(1.5)


def test_only_the_last_minute_counts() -> None:
    window = DemandWindow(window_s=60.0)
    window.add("r1", router(0.0, total=0.0, ttft=(0.0, 0.0, 0.0)))
    window.add("r1", router(10.0, total=90_000.0, ttft=(0.0, 100.0, 100.0)))
    for step in range(1, 8):
        window.add(
            "r1", router(10.0 + 10.0 * step, total=90_000.0 + 10.0 * step, ttft=(step, 100.0 + step, 100.0 + step))
        )
    demand = window.demand(["r1"], 50.0)
    assert demand is not None
    assert demand.uncached_tokens_per_s == pytest.approx(1.0)
    assert demand.ttft_s == pytest.approx(0.5)


def test_a_router_that_is_gone_is_forgotten_at_once() -> None:
    window = DemandWindow()
    window.add("r1", router(0.0))
    window.add("r1", router(10.0, total=100.0))
    window.keep({"r2"})
    assert window.demand([], 95.0) is None
    window.add("r1", router(20.0, total=500.0))
    demand = window.demand(["r1"], 95.0)
    assert demand is not None
    assert demand.uncached_tokens_per_s == 0.0


def test_the_same_moment_twice_changes_nothing() -> None:
    window = DemandWindow()
    window.add("r1", router(10.0, total=100.0))
    window.add("r1", router(10.0, total=900.0))
    demand = window.demand(["r1"], 95.0)
    assert demand is not None
    assert demand.uncached_tokens_per_s == 0.0
