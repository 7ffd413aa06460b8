"""What cannot be is said, and nothing that serves is touched; what belongs to nobody is said too."""

import copy
from dataclasses import replace

import pytest
from kvarn_operator.reconcile.actions import Apply, EmitEvent, Plan, WriteStatus
from kvarn_operator.reconcile.service import reconcile

from tests.support.fake_cluster import DECODE, FakeCluster
from tests.unit.operator.reconcile.reconcile_stories import deeds, serving, settle, slo, spec, step


def orphan(cluster: FakeCluster) -> None:
    """As `kubectl delete --cascade=orphan` leaves it."""
    cluster.service = None
    for pool in cluster.pools.values():
        pool["metadata"]["ownerReferences"] = []


GPU = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}


def test_a_spec_that_contradicts_itself_changes_nothing_but_the_status() -> None:
    cluster = serving(decode=2)
    cluster.scale(DECODE, 3)
    step(cluster)
    assert cluster.condition("Reconciling") == ("True", "Scaling")
    cluster.put_service(spec(decode=5, decode__scaling={"min": 3, "max": 2}))
    plan = step(cluster)
    assert deeds(plan) == []
    assert [type(action) for action in plan.actions] == [EmitEvent, WriteStatus]
    assert cluster.condition("Accepted") == ("False", "InvalidSpec")
    assert cluster.condition("Stalled") == ("True", "InvalidSpec")
    assert "spec.decode.scaling.min" in cluster.told("Accepted")["message"]
    assert "Reconciling" not in [item["type"] for item in cluster.service["status"]["conditions"]]
    assert cluster.condition("Ready") == ("False", "PodsNotReady"), "as it was"
    assert cluster.serves_a_pair()
    assert cluster.service["status"]["observedGeneration"] == 2
    assert step(cluster) == Plan(())
    cluster.put_service(spec(prefill__scaling={"min": 3, "max": 2}))
    (told,) = [action for action in step(cluster).actions if isinstance(action, EmitEvent)]
    assert "spec.prefill.scaling.min" in told.message
    cluster.put_service(spec(decode=4))
    settle(cluster)
    assert cluster.condition("Accepted") == ("True", "Valid")
    assert "Stalled" not in [item["type"] for item in cluster.service["status"]["conditions"]]
    assert len(cluster.serving(DECODE)) == 4


def test_a_budget_below_the_minimum_is_refused() -> None:
    cluster = serving()
    cluster.put_service(spec(budget={"gpus": 6}, decode__template=GPU, prefill__template=GPU, decode__scaling=slo()))
    step(cluster)
    assert cluster.condition("Accepted") == ("False", "InvalidSpec")
    assert "6" in cluster.told("Accepted")["message"]


def test_a_pool_that_the_api_server_refuses_is_told_on_the_model() -> None:
    cluster = serving()
    why = "apply workerpools: 422 only one owner may be the controller"
    plan = reconcile(replace(cluster.observe(), refused_object=why), cluster.now)
    assert deeds(plan) == []
    cluster.carry_out(plan)
    assert cluster.condition("Accepted") == ("False", "ObjectRefused")
    assert cluster.told("Accepted")["message"] == why
    assert cluster.event_reasons() == ["ObjectRefused"]
    step(cluster)
    assert cluster.condition("Accepted") == ("True", "Valid")


def test_a_pool_without_its_model_says_so_once_and_keeps_its_pods() -> None:
    cluster = serving(decode=2)
    orphan(cluster)
    plan = step(cluster)
    assert deeds(plan) == []
    assert cluster.condition("Accepted", DECODE) == ("False", "NoModelService")
    assert cluster.condition("Stalled", DECODE) == ("True", "NoModelService")
    assert step(cluster) == Plan(())
    assert len(cluster.serving(DECODE)) == 2


def test_a_pool_that_a_model_did_not_make_is_told_to_be_of_no_use() -> None:
    cluster = serving()
    copied = copy.deepcopy(cluster.pools[DECODE])
    copied["metadata"] |= {"name": "mine", "uid": "uid-mine"}
    cluster.pools["mine"] = copied
    step(cluster)
    assert cluster.condition("Accepted", "mine") == ("False", "NoModelService")
    assert "delete it" in cluster.told("Accepted", "mine")["message"]
    settle(cluster)
    assert cluster.condition("Ready") == ("True", "Serving")


def test_pools_of_a_model_that_was_just_deleted_are_not_complained_about() -> None:
    cluster = serving()
    cluster.service = None
    assert step(cluster) == Plan(())


@pytest.mark.parametrize("cascade", ["background", "orphan"])
def test_a_model_that_is_made_again_takes_over_what_still_serves(cascade: str) -> None:
    cluster = serving(decode=2)
    cluster.scale(DECODE, 3)
    settle(cluster)
    pods = set(cluster.pods)
    if cascade == "orphan":
        orphan(cluster)
    cluster.service = None
    step(cluster)
    cluster.put_service(spec(decode=2))
    cluster.service["metadata"]["uid"] = "uid-again"
    assert [type(action) for action in deeds(step(cluster))] == [Apply, Apply]
    settle(cluster)
    assert set(cluster.pods) == pods
    owners = [owner["uid"] for pool in cluster.pools.values() for owner in pool["metadata"]["ownerReferences"]]
    assert owners == ["uid-again"] * 2
    assert cluster.condition("Accepted", DECODE) == ("True", "Valid")
    assert cluster.condition("Ready") == ("True", "Serving")


def test_what_goes_with_its_model_is_left_to_the_garbage_collector() -> None:
    cluster = serving()
    seen = cluster.observe()
    going = tuple(replace(pool, deleting=True) for pool in seen.pools)
    assert reconcile(replace(seen, service=None, pools=going), cluster.now) == Plan(())


def test_a_deleted_pool_is_made_again_once_it_is_gone() -> None:
    cluster = serving(decode=2)
    cluster.pools[DECODE]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    cluster.put_service(spec(decode=2, decode__scaling={"max": 7}))
    cluster.scale(DECODE, 4)
    assert deeds(step(cluster)) == [], "what goes is left alone"
    del cluster.pools[DECODE]
    for name in list(cluster.active(DECODE)):
        cluster.delete(name)
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 2
