"""What holds for the planner whatever the load: limits, budget, no decrease in the dark, more load never fewer pods."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from kvarn_operator.scaling.memory import ServiceMemory
from kvarn_operator.scaling.observation import (
    Demand,
    PodMetrics,
    PodObservation,
    PodPhase,
    PoolObservation,
    ServiceObservation,
)
from kvarn_operator.scaling.planner import plan
from kvarn_operator.scaling.spec import (
    Behaviour,
    Budget,
    BudgetPolicy,
    Law,
    PodName,
    PoolName,
    PoolScaling,
    Role,
    ScalingMode,
    ServiceScaling,
)

LAW = Law(ttft_s=2.0, itl_s=0.05)
POOLS = ((PoolName("prefill"), Role.PREFILL), (PoolName("decode"), Role.DECODE))

loads = st.builds(
    Demand, at=st.just(0.0), inflight_requests=st.integers(0, 100), held_requests=st.integers(0, 20),
    uncached_inflight_tokens=st.floats(0, 1e6), uncached_tokens_per_s=st.floats(0, 1e5),
    ttft_s=st.none() | st.floats(0, 10), itl_s=st.none() | st.floats(0, 0.2),
)  # fmt: skip
metrics = st.builds(
    PodMetrics, at=st.sampled_from([0.0, -1000.0]), prefill_rate=st.none() | st.floats(1.0, 1e5),
    kv_usage=st.floats(0, 1), running=st.integers(0, 50), waiting=st.integers(0, 50),
)  # fmt: skip
pods = st.lists(
    st.builds(
        PodObservation, name=st.just(PodName("pod")), phase=st.sampled_from(PodPhase), metrics=st.none() | metrics
    ),
    max_size=6,
).map(tuple)
behaviours = st.builds(Behaviour, up_window_s=st.sampled_from([0.0, 30.0]), down_window_s=st.sampled_from([0.0, 300.0]))


@st.composite
def services(draw: st.DrawFn, budget: bool) -> ServiceScaling:
    pools = []
    for name, role in POOLS:
        minimum = draw(st.integers(0, 3))
        maximum = draw(st.integers(max(minimum, 1), 12))
        pools.append(
            PoolScaling(name, role, minimum, maximum, ScalingMode.SLO, draw(behaviours), draw(st.integers(1, 4)))
        )
    least = sum(pool.minimum * pool.gpus_per_pod for pool in pools)
    shared = Budget(draw(st.integers(least, least + 30)), draw(st.sampled_from(BudgetPolicy))) if budget else None
    return ServiceScaling(tuple(pools), LAW, shared)


@st.composite
def observed(draw: st.DrawFn, spec: ServiceScaling) -> tuple[PoolObservation, ...]:
    return tuple(PoolObservation(pool.pool, draw(st.integers(0, pool.maximum)), draw(pods)) for pool in spec.pools)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_never_outside_minimum_and_maximum(data: st.DataObject) -> None:
    spec = data.draw(services(budget=False))
    memory = ServiceMemory()
    for number in range(3):
        now = number * 20.0
        seen = ServiceObservation(data.draw(observed(spec)), data.draw(st.none() | loads))
        found = plan(spec, seen, memory, now)
        memory = found.memory
        for pool, decision in zip(spec.pools, found.decisions, strict=True):
            assert pool.minimum <= decision.target <= pool.maximum


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_budget_is_never_exceeded_not_even_between_two_writes(data: st.DataObject) -> None:
    """While a pool shrinks its pods still hold GPUs: what is there and what is asked fit together."""
    spec = data.draw(services(budget=True))
    assert spec.budget is not None
    seen = data.draw(observed(spec))
    found = plan(spec, ServiceObservation(seen, data.draw(st.none() | loads)), ServiceMemory(), 0.0)
    held = sum(pool.footprint() * asked.gpus_per_pod for pool, asked in zip(seen, spec.pools, strict=True))
    growth = [
        max(decision.target - pool.replicas, 0) * asked.gpus_per_pod
        for decision, pool, asked in zip(found.decisions, seen, spec.pools, strict=True)
    ]
    if any(growth):
        assert held + sum(growth) <= spec.budget.gpus
    asked_gpus = sum(d.target * pool.gpus_per_pod for d, pool in zip(found.decisions, spec.pools, strict=True))
    assert asked_gpus <= spec.budget.gpus


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_decrease_without_metrics(data: st.DataObject) -> None:
    spec = data.draw(services(budget=False))
    seen = data.draw(observed(spec))
    found = plan(spec, ServiceObservation(seen, None), ServiceMemory(), 0.0)
    assert all(decision.target >= decision.current for decision in found.decisions)


@settings(max_examples=150, deadline=None)
@given(st.data(), loads, st.floats(1.0, 4.0))
def test_more_load_never_means_fewer_pods(data: st.DataObject, load: Demand, factor: float) -> None:
    spec = data.draw(services(budget=False))
    seen = data.draw(observed(spec))
    more = replace(
        load, inflight_requests=int(load.inflight_requests * factor), held_requests=int(load.held_requests * factor),
        uncached_inflight_tokens=load.uncached_inflight_tokens * factor,
        uncached_tokens_per_s=load.uncached_tokens_per_s * factor,
    )  # fmt: skip
    small = plan(spec, ServiceObservation(seen, load), ServiceMemory(), 0.0)
    large = plan(spec, ServiceObservation(seen, more), ServiceMemory(), 0.0)
    for one, other in zip(small.decisions, large.decisions, strict=True):
        assert other.target >= one.target
