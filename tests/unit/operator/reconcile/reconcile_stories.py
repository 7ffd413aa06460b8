"""Short ways to tell a story of one model: what is asked, how long it goes on, until nothing is left to do."""

from collections.abc import Mapping
from typing import Any

from kvarn_operator.reconcile.actions import Action, EmitEvent, Plan, WriteStatus
from kvarn_operator.reconcile.service import reconcile

from tests.support.fake_cluster import FakeCluster

ROUND_S = 2.0


def spec(prefill: int = 1, decode: int = 1, **more: Any) -> dict[str, Any]:
    """`prefill__scaling={...}` sets one part of a pool."""
    found: dict[str, Any] = {"prefill": {"replicas": prefill}, "decode": {"replicas": decode}}
    for key, value in more.items():
        pool, _, part = key.partition("__")
        if part:
            found[pool][part] = value
        else:
            found[key] = value
    return found


def slo(minimum: int = 1, maximum: int = 5, **more: Any) -> Mapping[str, Any]:
    down = {"stabilizationWindowSeconds": 0, "pods": 100, "periodSeconds": 1}
    return {"mode": "SLO", "min": minimum, "max": maximum, "behaviour": {"scaleDown": down}, **more}


def image(reference: str) -> Mapping[str, Any]:
    return {"image": reference}


def step(cluster: FakeCluster, seconds: float = ROUND_S) -> Plan:
    """One reconcile, carried out; then time passes."""
    plan = reconcile(cluster.observe(), cluster.now)
    cluster.carry_out(plan)
    cluster.advance(seconds)
    return plan


def settle(cluster: FakeCluster, rounds: int = 200) -> FakeCluster:
    """Until nothing is wanted, nothing happens by itself, and a minute later it is still so."""
    quiet = False
    for _ in range(rounds):
        still = cluster.is_still()
        if not step(cluster, 60.0 if quiet else ROUND_S).actions and still:
            if quiet:
                return cluster
            quiet = True
        else:
            quiet = False
    raise AssertionError(f"still at work: {reconcile(cluster.observe(), cluster.now).actions}")


def serving(**asked: Any) -> FakeCluster:
    """A model as it is once it serves."""
    cluster = FakeCluster()
    cluster.put_service(spec(**asked))
    settle(cluster)
    cluster.events.clear()
    return cluster


def deeds(plan: Plan) -> list[Action]:
    """Without what only tells."""
    return [action for action in plan.actions if not isinstance(action, WriteStatus | EmitEvent)]
