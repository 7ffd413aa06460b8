"""Stories of pods: made, drained, taken back, replaced. Each ends where nothing is left to do."""

import copy

import pytest
from kvarn_operator.reconcile.actions import Apply, Cordon, CreatePod, DeletePod, SetReplicas, Uncordon
from kvarn_operator.reconcile.service import reconcile
from kvarn_operator.resources.labels import COMPONENT_LABEL, POOL_LABEL

from tests.support.fake_cluster import DECODE, PREFILL, FakeCluster, Pace
from tests.unit.operator.reconcile.reconcile_stories import deeds, serving, settle, spec, step


def test_a_new_model_gets_pools_then_seeds_then_pods_then_budgets() -> None:
    cluster = FakeCluster()
    cluster.put_service(spec(prefill=1, decode=3))
    assert [type(action) for action in deeds(step(cluster))] == [Apply, Apply]
    second = deeds(step(cluster))
    assert [type(action) for action in second] == [SetReplicas] * 2 + [CreatePod] * 4 + [Apply] * 2
    settle(cluster)
    assert (len(cluster.serving(PREFILL)), len(cluster.serving(DECODE))) == (1, 3)
    assert cluster.condition("Ready") == ("True", "Serving")
    assert cluster.condition("Paired") == ("True", "ServingPair")
    assert cluster.condition("ModelCached") == ("True", "Loaded")


def test_at_rest_nothing_is_written_and_nobody_comes_back() -> None:
    cluster = serving()
    cluster.advance(3600)
    plan = reconcile(cluster.observe(), cluster.now)
    assert (plan.actions, plan.requeue_s) == ((), None)


def test_kubectl_scale_up_adds_pods_and_touches_no_other() -> None:
    cluster = serving(decode=1)
    before = cluster.serving(DECODE)
    cluster.scale(DECODE, 3)
    assert [type(action) for action in deeds(step(cluster))] == [CreatePod, CreatePod]
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 3
    assert before[0] in cluster.serving(DECODE)
    assert cluster.replicas(DECODE) == 3
    assert "ScaledUp" in cluster.event_reasons()


def test_a_victim_drains_until_it_is_idle() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(drain_s=lambda: 60.0)
    cluster.scale(DECODE, 1)
    (cordon,) = deeds(step(cluster))
    assert isinstance(cordon, Cordon)
    assert cordon.reason == "ScaleDown"
    assert deeds(step(cluster)) == []
    assert cluster.condition("Draining", DECODE) == ("True", "PodsDraining")
    assert "VictimChosen" in cluster.event_reasons()
    cluster.advance(60)
    assert [action.pod for action in deeds(step(cluster)) if isinstance(action, DeletePod)] == [cordon.pod]
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 1
    assert "DrainTimedOut" not in cluster.event_reasons()


def test_a_reading_from_before_the_cordon_says_nothing() -> None:
    cluster = serving(decode=2)
    cluster.busy = 0
    cluster.advance(1)
    cluster.scale(DECODE, 1)
    step(cluster, seconds=1)
    assert deeds(step(cluster, seconds=1)) == [], "routers may not have heard of the cordon"
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod]


def test_a_drain_ends_at_its_timeout_and_says_so() -> None:
    cluster = serving(decode=2, decode__drain={"timeoutSeconds": 30})
    cluster.pace = Pace(drain_s=lambda: 1e6)
    cluster.scale(DECODE, 1)
    step(cluster, seconds=29)
    assert deeds(step(cluster, seconds=2)) == []
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod]
    (told,) = [event for event in cluster.events if event.reason == "DrainTimedOut"]
    assert told.warning
    assert "2 requests" in told.message


def test_a_pod_that_tells_nothing_drains_until_the_timeout() -> None:
    cluster = serving(decode=2, decode__drain={"timeoutSeconds": 30})
    cluster.mute = set(cluster.pods)
    cluster.scale(DECODE, 1)
    step(cluster, seconds=29)
    assert deeds(step(cluster, seconds=2)) == []
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod]


def test_a_drain_from_a_clock_that_is_ahead_still_ends() -> None:
    cluster = serving(decode=2)
    drained = cluster.serving(DECODE)[0]
    cluster.now += 3600
    cluster.drain(drained)
    cluster.now -= 3600
    cluster.lives[drained].idle_at = cluster.now
    cluster.pace = Pace(start_s=lambda: 1.0)
    settle(cluster)
    assert drained not in cluster.pods


def test_the_least_busy_pod_is_the_victim() -> None:
    cluster = serving(decode=3)
    idle = cluster.serving(DECODE)[1]
    cluster.lives[idle].in_flight = 0
    cluster.scale(DECODE, 2)
    assert [action.pod for action in deeds(step(cluster)) if isinstance(action, Cordon)] == [idle]


def test_a_pod_that_never_served_goes_at_once() -> None:
    cluster = serving(decode=1)
    cluster.pace = Pace(start_s=lambda: 1000.0)
    cluster.scale(DECODE, 2)
    step(cluster)
    (starting,) = set(cluster.active(DECODE)) - set(cluster.serving(DECODE))
    cluster.scale(DECODE, 1)
    (deed,) = deeds(step(cluster))
    assert isinstance(deed, DeletePod)
    assert deed.pod == starting


def test_scaling_up_again_takes_the_victim_back() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(drain_s=lambda: 100.0)
    names = cluster.serving(DECODE)
    cluster.scale(DECODE, 1)
    step(cluster)
    cluster.scale(DECODE, 3)
    assert [type(action) for action in deeds(step(cluster))] == [Uncordon, CreatePod]
    settle(cluster)
    assert set(names) <= set(cluster.serving(DECODE))


def test_of_two_victims_the_one_that_serves_comes_back() -> None:
    cluster = serving(decode=3)
    cluster.pace = Pace(drain_s=lambda: 100.0)
    cluster.scale(DECODE, 1)
    step(cluster)
    lapsed, able = [name for name in sorted(cluster.pods) if cluster.is_cordoned(name)]
    cluster.lapse(lapsed)
    cluster.scale(DECODE, 2)
    assert [action.pod for action in deeds(step(cluster)) if isinstance(action, Uncordon)] == [able]


@pytest.mark.parametrize(("requests", "told", "deed"), [(3, True, Cordon), (0, True, DeletePod), (3, False, Cordon)])
def test_a_pod_that_is_not_ready_for_a_moment_drains_what_it_has(requests: int, told: bool, deed: type) -> None:
    cluster = serving(decode=2)
    lapsed = cluster.serving(DECODE)[0]
    cluster.lapse(lapsed)
    cluster.lives[lapsed].in_flight = requests
    cluster.mute = set() if told else {lapsed}
    cluster.scale(DECODE, 1)
    (found,) = deeds(step(cluster))
    assert isinstance(found, deed)
    assert found.pod == lapsed  # type: ignore[attr-defined]


def test_an_idle_victim_that_is_needed_again_is_not_deleted() -> None:
    cluster = serving(decode=2)
    cluster.scale(DECODE, 1)
    step(cluster, seconds=30)
    cluster.scale(DECODE, 2)
    assert [type(action) for action in deeds(step(cluster))] == [Uncordon]


def test_a_victim_comes_back_when_nothing_else_of_its_pool_serves() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(drain_s=lambda: 1000.0, start_s=lambda: 1000.0)
    cluster.scale(DECODE, 1)
    step(cluster)
    (survivor,) = cluster.serving(DECODE)
    cluster.kill(survivor)
    assert Uncordon in [type(action) for action in deeds(step(cluster))]
    assert cluster.serves_a_pair()


def test_a_pod_that_ended_is_replaced() -> None:
    cluster = serving(decode=2)
    gone = cluster.serving(DECODE)[0]
    cluster.kill(gone)
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod, CreatePod]
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 2
    assert cluster.event_reasons().count("VictimChosen") == 0
    (told,) = [event for event in cluster.events if event.reason == "PodEnded"]
    assert told.message == f"{gone} ended on node-1: Evicted"


def test_pods_that_end_as_soon_as_they_start_are_not_replaced_in_a_storm() -> None:
    cluster = FakeCluster()
    cluster.put_service(spec())
    settle(cluster)
    for _ in range(30):
        for pod in list(cluster.pods):
            cluster.kill(pod)
        step(cluster, seconds=1)
    assert cluster.created <= 2 + 2 * 30 / 10 + 2


def test_a_pod_that_ended_in_the_future_is_replaced_all_the_same() -> None:
    cluster = serving(decode=1)
    (gone,) = cluster.serving(DECODE)
    cluster.kill(gone)
    cluster.now -= 3600
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod, CreatePod]


def test_what_a_user_drains_is_replaced_before_it_goes() -> None:
    cluster = serving(decode=1)
    cluster.pace = Pace(start_s=lambda: 20.0)
    (drained,) = cluster.serving(DECODE)
    cluster.drain(drained)
    assert [type(action) for action in deeds(step(cluster))] == [CreatePod]
    cluster.advance(10)
    assert deeds(step(cluster)) == [], "idle, but its replacement does not serve yet"
    cluster.advance(10)
    assert [action.pod for action in deeds(step(cluster)) if isinstance(action, DeletePod)] == [drained]
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 1


def test_what_a_user_drains_makes_room_for_a_replacement_that_finds_no_node() -> None:
    cluster = FakeCluster(room=2)
    cluster.put_service(spec())
    settle(cluster)
    (drained,) = cluster.serving(DECODE)
    cluster.drain(drained)
    for _ in range(5):
        step(cluster)
    assert cluster.is_terminating(drained), "long before the timeout"
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 1


def test_what_a_user_drains_makes_room_in_a_quota_that_is_used_up() -> None:
    cluster = serving(decode=2)
    drained = cluster.serving(DECODE)[0]
    cluster.drain(drained)
    cluster.advance(10)
    cluster.refused = {DECODE: "exceeded quota: gpus"}
    plan = reconcile(cluster.observe(), cluster.now)
    assert [action.pod for action in plan.actions if isinstance(action, DeletePod)] == [drained]


def test_what_a_user_drains_is_never_taken_back() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(drain_s=lambda: 1000.0)
    drained = cluster.serving(DECODE)[0]
    cluster.drain(drained)
    cluster.scale(DECODE, 4)
    assert not any(isinstance(action, Uncordon) for action in deeds(step(cluster)))
    assert cluster.is_cordoned(drained)


def test_terminating_pods_serve_nobody() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(end_s=lambda: 500.0)
    cluster.delete(cluster.serving(DECODE)[0])
    assert [type(action) for action in deeds(step(cluster))] == [CreatePod]
    assert deeds(step(cluster)) == []
    assert cluster.pools[DECODE]["status"]["replicas"] == 2
    assert cluster.pools[DECODE]["status"]["drainingReplicas"] == 1


def test_a_pod_that_never_goes_is_told_and_waited_for_no_more() -> None:
    cluster = serving(decode=2)
    cluster.pace = Pace(end_s=lambda: 1e6)
    lost = cluster.serving(DECODE)[0]
    cluster.delete(lost)
    for _ in range(20):
        step(cluster)
    assert cluster.condition("Draining", DECODE) == ("True", "PodsDraining")
    assert cluster.condition("Reconciling") == ("True", "PodsDraining")
    cluster.advance(60)
    step(cluster)
    assert cluster.condition("Draining", DECODE) == ("True", "PodsStuck")
    assert f"{lost}; look at node-1" in cluster.told("Draining")["message"]
    assert cluster.pools[DECODE]["status"]["drainingReplicas"] == 1
    assert "Reconciling" not in [item["type"] for item in cluster.service["status"]["conditions"]]
    assert cluster.event_reasons().count("PodsStuck") == 1 + 1, "once for the pool, once for the model"
    plan = step(cluster)
    assert (plan.actions, plan.requeue_s) == ((), None)
    assert len(cluster.serving(DECODE)) == 2


def test_pods_without_a_node_go_first_and_at_once() -> None:
    cluster = FakeCluster(room=3)
    cluster.put_service(spec(decode=2))
    settle(cluster)
    cluster.scale(DECODE, 4)
    settle(cluster)
    assert cluster.condition("CapacityAvailable", DECODE) == ("False", "Unschedulable")
    assert "Insufficient nvidia.com/gpu" in cluster.told("CapacityAvailable", DECODE)["message"]
    assert cluster.condition("Ready") == ("False", "Unschedulable")
    served = cluster.serving(DECODE)
    cluster.scale(DECODE, 2)
    assert [type(action) for action in deeds(step(cluster))] == [DeletePod, DeletePod]
    settle(cluster)
    assert cluster.serving(DECODE) == served
    assert cluster.event_reasons().count("Unschedulable") == 1 + 1, "once for the pool, once for the model"


def test_a_refused_pod_is_told_and_tried_again() -> None:
    cluster = serving(decode=1)
    cluster.refused = {DECODE: "exceeded quota: gpus"}
    cluster.scale(DECODE, 2)
    plan = reconcile(cluster.observe(), cluster.now)
    assert any(isinstance(action, CreatePod) for action in plan.actions)
    cluster.carry_out(plan, next(n for n, action in enumerate(plan.actions) if isinstance(action, CreatePod)))
    assert cluster.condition("CapacityAvailable", DECODE) == ("False", "PodsRefused")
    assert "exceeded quota" in cluster.told("Ready", DECODE)["message"]


@pytest.mark.parametrize("label", [POOL_LABEL, COMPONENT_LABEL])
def test_a_pod_that_is_taken_out_of_its_pool_by_a_label_is_replaced_and_left_alone(label: str) -> None:
    cluster = serving(decode=2)
    taken_out = cluster.serving(DECODE)[0]
    cluster.pods[taken_out]["metadata"]["labels"][label] = "debug"
    (deed,) = deeds(step(cluster))
    assert isinstance(deed, CreatePod)
    assert deed.body["metadata"]["name"] != taken_out
    settle(cluster)
    assert len({*cluster.serving(DECODE)} - {taken_out}) == 2
    assert cluster.is_ready(taken_out)


def test_a_stale_view_asks_for_the_same_names_again() -> None:
    cluster = serving(decode=1)
    cluster.scale(DECODE, 3)
    stale = copy.deepcopy(cluster.observe())
    first, second = reconcile(stale, cluster.now), reconcile(stale, cluster.now)
    assert first == second
    cluster.carry_out(first)
    cluster.carry_out(second)
    assert len(cluster.active(DECODE)) == 3


@pytest.mark.parametrize("replicas", [0, 1])
def test_down_to_nothing_and_back(replicas: int) -> None:
    cluster = serving(decode=3)
    cluster.scale(DECODE, replicas)
    settle(cluster)
    assert len(cluster.pods) == 1 + replicas
    assert cluster.condition("Ready") == ("True", "Serving" if replicas else "ScaledToZero")
    cluster.scale(DECODE, 2)
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 2
