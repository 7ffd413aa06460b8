"""Whatever happens, whatever fails and wherever the operator dies: it ends where it should, and nobody loses service.

The first test takes one eventful story and ends the operator after each single action. The second one invents stories;
it does not shrink them, since they are slow and say enough.
"""

import copy
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kvarn_operator.reconcile.actions import CreatePod, EmitEvent, Plan, WriteStatus
from kvarn_operator.reconcile.service import reconcile
from kvarn_operator.resources.labels import POOL_LABEL
from kvarn_operator.scaling.observation import Demand

from tests.support.fake_cluster import DECODE, PREFILL, FakeCluster, Pace

Change = Callable[[FakeCluster], None]
POOLS = (PREFILL, DECODE)
ROUNDS = 150


def asked(image: str, block_size: int, unavailable: int = 0) -> Mapping[str, Any]:
    pool = {"replicas": 2, "template": {"image": image}, "drain": {"timeoutSeconds": 60}}
    rollout = {"maxSurge": 1, "maxUnavailable": unavailable}
    return {"prefill": pool, "decode": pool, "engine": {"blockSize": block_size}, "rollout": rollout}


@dataclass
class Run:
    """One operator and one cluster, watched at each action."""

    cluster: FakeCluster
    surge: int = 1
    before_acting: Callable[[FakeCluster, Plan], None] = lambda cluster, plan: None
    fails: Callable[[], bool] = lambda: False
    seconds: Callable[[], float] = lambda: 3.0
    done: int = 0
    served: bool = False
    problems: list[str] = field(default_factory=list)

    def round(self) -> bool:
        """Whether anything was asked for."""
        plan = reconcile(self.cluster.observe(), self.cluster.now)
        self.before_acting(self.cluster, plan)
        self.cluster.begin()
        for action in plan.actions:
            if self.fails() and not isinstance(action, WriteStatus | EmitEvent):
                break
            self.cluster.act(action)
            self.done += 1
            self.watch(action.body["metadata"]["labels"][POOL_LABEL] if isinstance(action, CreatePod) else None)
        self.cluster.advance(self.seconds())
        self.watch()
        return bool(plan.actions)

    def watch(self, grown: str | None = None) -> None:
        serves = self.cluster.serves_a_pair()
        if self.served and not serves:
            self.problems.append(f"action {self.done}: no pair serves")
        self.served = serves
        if grown and (count := len(self.cluster.active(grown))) > self.cluster.replicas(grown) + self.surge:
            self.problems.append(f"action {self.done}: {count} pods in {grown}")

    def settle(self) -> None:
        for _ in range(ROUNDS):
            still = self.cluster.is_still()
            if not self.round() and still:
                break
        else:
            raise AssertionError(f"still at work: {reconcile(self.cluster.observe(), self.cluster.now).actions}")
        self.cluster.advance(600.0)
        plan = reconcile(self.cluster.observe(), self.cluster.now)
        assert (plan.actions, plan.requeue_s) == ((), None), "not at rest"


def state(cluster: FakeCluster) -> object:
    """All that matters of what is there, without times."""
    conditions = [
        (name, item["type"], item["status"], item["reason"])
        for name, each in [("", cluster.service), *sorted(cluster.pools.items())]
        for item in each.get("status", {}).get("conditions", ())
    ]
    pods = [(name, cluster.is_cordoned(name), cluster.is_terminating(name)) for name in sorted(cluster.pods)]
    pools = [(name, pool["spec"], pool["metadata"].get("annotations")) for name, pool in sorted(cluster.pools.items())]
    return conditions, pods, pools, sorted(cluster.budgets)


def done_now(cluster: FakeCluster) -> object:
    """The state once there is nothing more to do before time passes."""
    for _ in range(6):
        plan = reconcile(cluster.observe(), cluster.now)
        if not plan.actions:
            return state(cluster)
        cluster.carry_out(plan)
    raise AssertionError(f"still at work: {plan.actions}")


STORY: tuple[tuple[int, Change], ...] = (
    (6, lambda cluster: cluster.put_service(asked("worker:1", 16))),
    (2, lambda cluster: cluster.scale(DECODE, 4)),
    (5, lambda cluster: cluster.put_service(asked("worker:2", 16))),
    (1, lambda cluster: cluster.scale(DECODE, 2)),
    (5, lambda cluster: cluster.put_service(asked("worker:2", 32))),
    (2, lambda cluster: cluster.drain(cluster.active(PREFILL)[0])),
    (0, lambda cluster: cluster.put_service(asked("worker:1", 32))),
)


SLOWLY = {"stabilizationWindowSeconds": 0, "pods": 1, "percent": 0, "periodSeconds": 30}


def planned(minimum: int) -> Mapping[str, Any]:
    scaling = {"mode": "SLO", "min": minimum, "max": 4, "behaviour": {"scaleUp": SLOWLY, "scaleDown": SLOWLY}}
    wanted = asked("worker:1", 16)
    return {**wanted, "decode": {**wanted["decode"], "scaling": {**scaling, "overrideSeconds": 60}}}


def loaded(kv_usage: float) -> Change:
    """Of each decode worker, whatever their number; from now on, at whatever time it is looked at."""

    def change(cluster: FakeCluster) -> None:
        cluster.kv_usage, cluster.demand = kv_usage, Demand(math.inf, 2, 0, 100.0)

    return change


PLANNED_STORY: tuple[tuple[int, Change], ...] = (
    (6, lambda cluster: cluster.put_service(planned(1))),
    (25, loaded(0.9)),
    (25, loaded(0.1)),
    (3, lambda cluster: cluster.scale(DECODE, 3)),
    (30, loaded(0.9)),
    (0, lambda cluster: cluster.put_service(planned(2))),
    (25, loaded(0.1)),
    (0, lambda cluster: cluster.put_service(asked("worker:1", 16))),
)


def story(run: Run, changes: Sequence[tuple[int, Change]]) -> Run:
    for rounds, change in changes:
        change(run.cluster)
        run.served = run.served and run.cluster.serves_a_pair()
        for _ in range(rounds):
            run.round()
    run.settle()
    return run


@pytest.mark.parametrize(("changes", "enough"), [(STORY, 80), (PLANNED_STORY, 30)], ids=["changes", "load"])
def test_it_goes_on_wherever_the_operator_dies(changes: Sequence[tuple[int, Change]], enough: int) -> None:
    """Of each plan of the story only the first actions are carried out, and another operator looks at what is there.
    What it then decides must not depend on what the dead one had no time to write down."""
    deaths = 0

    def die(cluster: FakeCluster, plan: Plan) -> None:
        nonlocal deaths
        wanted = done_now(copy.deepcopy(cluster))
        for stop_after in range(1, len(plan.actions)):
            survivor = copy.deepcopy(cluster)
            survivor.carry_out(plan, stop_after)
            assert done_now(survivor) == wanted, plan.actions[:stop_after]
            deaths += 1

    run = story(Run(FakeCluster(), before_acting=die), changes)
    assert run.problems == []
    assert deaths > enough
    assert [len(run.cluster.serving(pool)) for pool in POOLS] == [2, 2]


@st.composite
def changes(draw: st.DrawFn) -> Change:
    kind = draw(st.sampled_from(["scale", "roll", "relayout", "drain", "delete", "end"]))
    pool, number, unavailable = draw(st.sampled_from(POOLS)), draw(st.integers(1, 4)), draw(st.integers(0, 1))

    def change(cluster: FakeCluster) -> None:
        pods = cluster.serving(pool) if pool in cluster.pools else []
        if kind == "scale" and pool in cluster.pools:
            cluster.scale(pool, number)
        elif kind == "roll":
            cluster.put_service(asked(f"worker:{number}", 16, unavailable))
        elif kind == "relayout":
            cluster.put_service(asked("worker:1", 16 * number, unavailable))
        elif len(pods) > 1:
            {"drain": cluster.drain, "delete": cluster.delete, "end": cluster.kill}[kind](pods[number % len(pods)])

    change.__name__ = f"{kind} {pool} {number}"
    return change


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    st.lists(st.tuples(changes(), st.integers(0, 4)), max_size=6),
    st.integers(0, 2**32),
    st.integers(11, 30),
    st.booleans(),
)
def test_it_converges_whatever_happens(happens: list[tuple[Change, int]], seed: int, room: int, quota: bool) -> None:
    """Between two changes the operator gets some rounds, in which calls fail and time passes unevenly."""
    chance = random.Random(seed)
    pace = Pace(lambda: chance.uniform(0, 20), lambda: chance.uniform(0, 90), lambda: chance.uniform(0, 20))
    run = Run(
        FakeCluster(room, pace, quota=room if quota else None),
        fails=lambda: chance.random() < 0.1,
        seconds=lambda: chance.choice([0.1, 2.0, 15.0]),
    )
    run.cluster.put_service(asked("worker:1", 16))
    for change, rounds in [(lambda cluster: None, 10), *happens]:
        change(run.cluster)
        run.served = run.served and run.cluster.serves_a_pair()
        for _ in range(rounds):
            run.round()
    run.settle()
    assert run.problems == []
    for pool in POOLS:
        assert len(run.cluster.serving(pool)) == run.cluster.replicas(pool)
        assert len(run.cluster.revisions(pool)) == 1
    assert len(run.cluster.pods) == sum(map(run.cluster.replicas, POOLS))
    assert run.cluster.condition("Ready") == ("True", "Serving")
