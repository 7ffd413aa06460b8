from dataclasses import dataclass, field

import pytest
from kvarn_bench.scaling import summarize
from kvarn_bench.scaling_fleet import Fleet, token_interval_s
from kvarn_bench.scaling_pods import Hardware
from kvarn_bench.scaling_trace import Arrival, Trace, bursty, diurnal, shifting
from kvarn_bench.scaling_view import FleetView, Limits, Replicas

HARDWARE = Hardware(prefill_tokens_per_s=1000.0, kv_tokens=2000, start_delay_s=30.0)
LIMITS = Limits(1, 4, 8, ttft_s=2.0, itl_s=0.025)


@dataclass
class Scripted:
    script: dict[float, Replicas] = field(default_factory=dict)
    views: list[FleetView] = field(default_factory=list)
    name: str = "scripted"

    def decide(self, view: FleetView, now: float) -> Replicas:
        self.views.append(view)
        return self.script.get(now, view.replicas)


def trace(*arrivals: tuple[float, int, int], duration_s: float = 120.0) -> Trace:
    return Trace("test", duration_s, tuple(Arrival(*each) for each in arrivals))


def test_times_follow_from_the_rates() -> None:
    outcome = Fleet(trace((0.0, 1000, 100), (0.0, 500, 100)), Scripted(), HARDWARE, Replicas(1, 1)).run()
    first, second = outcome.requests
    assert (first.first_token_at, second.first_token_at) == pytest.approx((1.0, 1.5))
    assert HARDWARE.itl_s(1, 1700) <= token_interval_s(first) <= HARDWARE.itl_s(2, 1700)
    assert outcome.gpu_s == pytest.approx(2 * 120.0)


def test_a_request_without_kv_room_waits_for_it() -> None:
    outcome = Fleet(trace((0.0, 1000, 500), (0.0, 1000, 100)), Scripted(), HARDWARE, Replicas(1, 1)).run()
    first, second = outcome.requests
    assert first.done_at is not None
    assert second.first_token_at == pytest.approx(first.done_at + 1.0)


def test_a_new_pod_serves_after_its_start_delay_and_costs_from_the_decision() -> None:
    controller = Scripted({15.0: Replicas(1, 2)})
    outcome = Fleet(trace((20.0, 1000, 900), (20.0, 500, 600)), controller, HARDWARE, Replicas(1, 1)).run()
    assert outcome.requests[1].decode is not None
    assert outcome.requests[1].decode.ready_at in (0.0, 45.0)
    assert outcome.gpu_s == pytest.approx(2 * 120.0 + 105.0)
    assert (outcome.changes, outcome.reversals) == (1, 0)


def test_a_pod_on_its_way_out_finishes_what_it_has() -> None:
    controller = Scripted({15.0: Replicas(1, 1), 30.0: Replicas(1, 2)})
    load = trace((14.0, 100, 1500), (14.0, 100, 1500))
    outcome = Fleet(load, controller, HARDWARE, Replicas(1, 2)).run()
    assert all(request.done_at is not None for request in outcome.requests)
    assert outcome.reversals == 1


def test_unfinished_requests_missed_both() -> None:
    outcome = Fleet(trace((0.0, 1000, 10), (1.0, 1000, 10)), Scripted(), HARDWARE, Replicas(1, 1)).run()
    outcome.requests[1].first_token_at = outcome.requests[1].done_at = None
    figure = summarize("test", "scripted", outcome, LIMITS)
    assert (figure.ttft_attained, figure.itl_attained, figure.both_attained) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("make", [bursty, diurnal, shifting])
def test_a_seed_gives_one_trace(make) -> None:  # type: ignore[no-untyped-def]
    one, same, other = make(300.0, 1), make(300.0, 1), make(300.0, 2)
    assert one == same != other
    assert list(one.arrivals) == sorted(one.arrivals)
    assert len(one.arrivals) > 100
