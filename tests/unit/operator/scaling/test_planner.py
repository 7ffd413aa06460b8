import pytest
from kvarn_operator.scaling.decision import Override, Reason
from kvarn_operator.scaling.memory import PoolMemory, ServiceMemory
from kvarn_operator.scaling.observation import PodPhase, ReplicasWrite
from kvarn_operator.scaling.spec import Behaviour, Budget, BudgetPolicy, InvalidScaling, RateLimit, Role, ScalingMode

from tests.unit.operator.scaling.scaling_builders import (
    DECODE,
    PREFILL,
    decide,
    demand,
    of,
    pods,
    pool,
    pool_scaling,
    service,
)

BUSY = {"inflight_requests": 9, "uncached_inflight_tokens": 4500.0}


def one(role: Role = Role.PREFILL, **changes: object):
    return service(pool_scaling(role, **changes))


def test_load_raises_the_pool_and_every_term_is_told() -> None:
    decision = of(decide(one(), (pool(PREFILL, 2),), demand(**BUSY)), PREFILL)
    assert (decision.current, decision.wanted, decision.target, decision.reason) == (2, 5, 5, Reason.LOAD)
    assert "prefill 2->5" in decision.message
    assert "uncached_inflight_tokens=4500" in decision.message


@pytest.mark.parametrize(("mode", "reason"), [(ScalingMode.MANUAL, "Manual"), (ScalingMode.EXTERNAL, "External")])
def test_other_modes_only_tell_what_the_law_says(mode: ScalingMode, reason: str) -> None:
    decision = of(decide(one(mode=mode), (pool(PREFILL, 2),), demand(**BUSY)), PREFILL)
    assert (decision.wanted, decision.target, decision.reason.value) == (5, 2, reason)


def test_missing_metrics_never_shrink_but_may_grow() -> None:
    silent = pool(PREFILL, 3, pods(2), pods(1, at=-100.0))
    held = of(decide(one(), (silent,), demand()), PREFILL)
    assert (held.target, held.reason) == (3, Reason.METRICS_MISSING)
    assert of(decide(one(), (silent,), demand(**BUSY)), PREFILL).target == 5


def test_pods_that_cannot_schedule_never_block_a_decrease() -> None:
    stuck = pool(DECODE, 6, pods(1, kv=0.1, running=1), pods(5, PodPhase.UNSCHEDULABLE))
    nothing_ready = pool(DECODE, 6, pods(6, PodPhase.UNSCHEDULABLE))
    spec = one(Role.DECODE, behaviour=Behaviour(down_window_s=0.0, down_limit=RateLimit(10, 1.0, 60.0)))
    for seen in (stuck, nothing_ready):
        assert of(decide(spec, (seen,), demand(inflight_requests=1)), DECODE).target == 1


def test_pending_pods_are_credited() -> None:
    waiting = pool(PREFILL, 5, pods(2), pods(3, PodPhase.PENDING))
    decision = of(decide(one(), (waiting,), demand(**BUSY)), PREFILL)
    assert (decision.target, decision.reason) == (5, Reason.AT_TARGET)


def test_a_decrease_waits_for_the_whole_window() -> None:
    spec = one(behaviour=Behaviour(down_window_s=300.0, down_limit=RateLimit(10, 1.0, 1.0)))
    memory = decide(spec, (pool(PREFILL, 5),), demand(**BUSY)).memory
    targets = []
    for now in (100.0, 299.0, 301.0):
        found = decide(spec, (pool(PREFILL, 5, pods(5, at=now)),), demand(at=now), memory, now)
        memory = found.memory
        targets.append(of(found, PREFILL).target)
    assert targets == [5, 5, 1]


def test_an_increase_waits_for_its_window_too() -> None:
    spec = one(behaviour=Behaviour(up_window_s=60.0))
    first = decide(spec, (pool(PREFILL, 1),), demand(**BUSY))
    assert (of(first, PREFILL).target, of(first, PREFILL).reason) == (1, Reason.STABILISING)
    later = decide(spec, (pool(PREFILL, 1, pods(1, at=61.0)),), demand(at=61.0, **BUSY), first.memory, 61.0)
    assert of(later, PREFILL).target == 5


def test_the_rate_counts_from_the_start_of_the_period() -> None:
    spec = one(behaviour=Behaviour(up_limit=RateLimit(pods=2, share=0.0, period_s=60.0)))
    replicas, memory, seen = 1, ServiceMemory(), []
    for now in (0.0, 15.0, 30.0, 61.0):
        found = decide(spec, (pool(PREFILL, replicas, pods(replicas, at=now)),), demand(at=now, **BUSY), memory, now)
        replicas, memory = of(found, PREFILL).target, found.memory
        seen.append(replicas)
    assert seen == [3, 3, 3, 5]


def test_scale_to_zero_after_idle_time_and_back_at_the_first_request() -> None:
    spec = one(minimum=0, zero_after_s=600.0)
    memory = decide(spec, (pool(PREFILL, 1),), demand()).memory
    warm = decide(spec, (pool(PREFILL, 1, pods(1, at=599.0)),), demand(at=599.0), memory, 599.0)
    assert (of(warm, PREFILL).target, of(warm, PREFILL).reason) == (1, Reason.KEPT_WARM)
    gone = decide(spec, (pool(PREFILL, 1, pods(1, at=600.0)),), demand(at=600.0), warm.memory, 600.0)
    assert of(gone, PREFILL).target == 0
    still = decide(spec, (pool(PREFILL, 0),), demand(at=700.0), gone.memory, 700.0)
    assert of(still, PREFILL).target == 0
    blind = decide(spec, (pool(PREFILL, 0),), None, gone.memory, 700.0)
    assert of(blind, PREFILL).target == 0
    load = demand(at=701.0, inflight_requests=1, held_requests=1)
    assert of(decide(spec, (pool(PREFILL, 0),), load, still.memory, 701.0), PREFILL).target == 1


def test_a_pod_that_still_loads_is_not_taken_away() -> None:
    spec = one(minimum=0, zero_after_s=600.0)
    load = demand(inflight_requests=1, held_requests=1)
    memory = decide(spec, (pool(PREFILL, 0),), load).memory
    loading = pool(PREFILL, 1, pods(1, PodPhase.PENDING))
    assert of(decide(spec, (loading,), demand(at=60.0), memory, 60.0), PREFILL).target == 1


def test_a_foreign_write_overrides_for_a_while_and_is_visible() -> None:
    spec = one(override_s=900.0)
    ours = ReplicasWrite("kvarn-scaling", 0.0, foreign=False)
    memory = decide(spec, (pool(PREFILL, 1, write=ours),), demand()).memory
    theirs = ReplicasWrite("kubectl", 5.0, foreign=True)

    def at(now: float, memory: ServiceMemory):
        return decide(spec, (pool(PREFILL, 7, pods(7, at=now), write=theirs),), demand(at=now), memory, now)

    first = at(5.0, memory)
    decision = of(first, PREFILL)
    assert (decision.target, decision.wanted) == (7, 0)
    assert decision.override is not None
    assert (decision.override.writer, decision.override.until) == ("kubectl", 905.0)
    assert "set by kubectl" in decision.message
    later = at(904.0, first.memory)
    assert of(later, PREFILL).target == 7
    ended = at(905.0, later.memory)
    assert of(ended, PREFILL).override is None
    assert of(ended, PREFILL).target < 7


def test_an_override_from_a_clock_that_was_ahead_lasts_no_longer_than_others() -> None:
    theirs = ReplicasWrite("kubectl", 86_405.0, foreign=True)
    held = PoolMemory(write=theirs, override=Override(7, "kubectl", 86_400.0 + 900.0))
    memory = ServiceMemory(((PREFILL, held),))
    found = decide(one(override_s=900.0), (pool(PREFILL, 7, write=theirs),), demand(), memory)
    override = of(found, PREFILL).override
    assert override is not None
    assert override.until == 900.0


def test_two_foreign_writes_within_a_second_are_told_apart_by_their_numbers() -> None:
    ours = ReplicasWrite("kvarn-scaling", 0.0, foreign=False)
    memory = decide(one(), (pool(PREFILL, 1, write=ours),), demand()).memory
    theirs = ReplicasWrite("kubectl", 5.0, foreign=True)
    for number in (7, 8):
        found = decide(one(), (pool(PREFILL, number, write=theirs),), demand(at=5.0), memory, 5.0)
        assert of(found, PREFILL).target == number
        memory = found.memory


def test_replicas_from_before_the_planner_are_no_override() -> None:
    theirs = ReplicasWrite("kubectl", 0.0, foreign=True)
    first = decide(one(), (pool(PREFILL, 4, write=theirs),), demand())
    again = decide(one(), (pool(PREFILL, 4, pods(4, at=1.0), write=theirs),), demand(at=1.0), first.memory, 1.0)
    assert of(again, PREFILL).override is None


def test_a_restart_is_no_reason_to_shrink() -> None:
    spec = one(behaviour=Behaviour(down_window_s=300.0))
    assert of(decide(spec, (pool(PREFILL, 8),), demand()), PREFILL).target == 8


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(BudgetPolicy.PREFILL_FIRST, (5, 1)), (BudgetPolicy.DECODE_FIRST, (1, 5)), (BudgetPolicy.PROPORTIONAL, (3, 3))],
)
def test_the_budget_is_shared_by_its_policy(policy: BudgetPolicy, expected: tuple[int, int]) -> None:
    seen = (pool(PREFILL, 1), pool(DECODE, 1, pods(1, kv=1.0, running=10, waiting=30)))
    found = decide(service(budget=Budget(6, policy)), seen, demand(**BUSY))
    assert (of(found, PREFILL).target, of(found, DECODE).target) == expected
    assert Reason.BUDGET in {decision.reason for decision in found.decisions}


def test_growth_waits_until_the_other_pools_gpus_are_free() -> None:
    """Two writes race with each other otherwise, and the budget is exceeded between them."""
    spec = service(budget=Budget(6, BudgetPolicy.PREFILL_FIRST))
    draining = pool(DECODE, 1, pods(1), pods(4, PodPhase.DRAINING))
    found = decide(spec, (pool(PREFILL, 1), draining), demand(**BUSY))
    assert (of(found, PREFILL).target, of(found, PREFILL).reason) == (1, Reason.BUDGET_WAIT)
    freed = decide(spec, (pool(PREFILL, 1), pool(DECODE, 1)), demand(**BUSY))
    assert of(freed, PREFILL).target == 5


def test_gpus_of_a_manual_pool_are_not_given_away() -> None:
    spec = service(pool_scaling(Role.PREFILL), pool_scaling(Role.DECODE, mode=ScalingMode.MANUAL), budget=Budget(6))
    found = decide(spec, (pool(PREFILL, 1), pool(DECODE, 4)), demand(**BUSY))
    assert (of(found, PREFILL).target, of(found, DECODE).target) == (2, 4)


def test_contradicting_settings_are_refused() -> None:
    with pytest.raises(InvalidScaling, match="min 3, max 2"):
        pool_scaling(Role.PREFILL, minimum=3, maximum=2)
    with pytest.raises(InvalidScaling, match="needs 2 GPUs, the budget has 1"):
        service(budget=Budget(1))
