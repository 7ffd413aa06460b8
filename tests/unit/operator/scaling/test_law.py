import pytest
from kvarn_operator.scaling.law import want
from kvarn_operator.scaling.observation import PodPhase
from kvarn_operator.scaling.spec import Role

from tests.unit.operator.scaling.scaling_builders import DECODE, LAW, PREFILL, demand, pods, pool


@pytest.mark.parametrize(("tokens", "replicas"), [(0, 0), (1, 1), (1000, 1), (1001, 2), (4500, 5)])
def test_prefill_is_tokens_over_rate_over_slack(tokens: float, replicas: int) -> None:
    """Rate 1,000 tokens/s, slack half of 2 s."""
    found = want(LAW, Role.PREFILL, pool(PREFILL, 1), demand(uncached_inflight_tokens=tokens), None, 0.0)
    assert (found.replicas, found.complete) == (replicas, True)
    assert {"uncached_inflight_tokens", "rate", "slack_s", "ready"} <= {term.name for term in found.terms}


def test_prefill_keeps_up_with_arrivals_at_its_utilisation() -> None:
    found = want(LAW, Role.PREFILL, pool(PREFILL, 1), demand(uncached_tokens_per_s=1700.0), None, 0.0)
    assert found.replicas == 3


def test_prefill_without_pods_uses_the_last_known_rate() -> None:
    load = demand(uncached_inflight_tokens=4000.0)
    assert want(LAW, Role.PREFILL, pool(PREFILL, 0), load, 2000.0, 0.0).replicas == 2
    unknown = want(LAW, Role.PREFILL, pool(PREFILL, 0), load, None, 0.0)
    assert (unknown.replicas, unknown.complete) == (1, False)


@pytest.mark.parametrize(("kv", "replicas"), [(0.8, 2), (0.81, 3), (0.3, 1), (0.0, 0)])
def test_decode_is_kv_over_its_target(kv: float, replicas: int) -> None:
    seen = pool(DECODE, 2, pods(2, kv=kv))
    assert want(LAW, Role.DECODE, seen, demand(), None, 0.0).replicas == replicas


def test_decode_counts_what_waits_and_what_drains() -> None:
    seen = pool(DECODE, 1, pods(1, kv=0.8, running=8, waiting=4), pods(1, PodPhase.DRAINING, kv=0.8, running=8))
    found = want(LAW, Role.DECODE, seen, demand(held_requests=4), None, 0.0)
    assert found.replicas == 3  # 1.6 held and 8 of 16 as much waiting


def test_decode_adds_one_while_itl_misses_and_a_batch_can_be_shared() -> None:
    slow = demand(itl_s=0.06, inflight_requests=1)
    assert want(LAW, Role.DECODE, pool(DECODE, 2, pods(2, kv=0.1, running=4)), slow, None, 0.0).replicas == 3
    assert want(LAW, Role.DECODE, pool(DECODE, 1, pods(1, kv=0.1, running=1)), slow, None, 0.0).replicas == 1


def test_only_a_ready_pods_silence_is_a_missing_metric() -> None:
    away = (pods(2, PodPhase.PENDING), pods(2, PodPhase.UNSCHEDULABLE))
    assert want(LAW, Role.DECODE, pool(DECODE, 5, pods(1), *away), demand(), None, 0.0).complete
    assert not want(LAW, Role.DECODE, pool(DECODE, 1, pods(1, at=-60.0)), demand(), None, 0.0).complete
    assert not want(LAW, Role.DECODE, pool(DECODE, 1), demand(at=-60.0), None, 0.0).complete
    assert not want(LAW, Role.DECODE, pool(DECODE, 1), None, None, 0.0).complete
