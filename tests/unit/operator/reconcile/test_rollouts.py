"""Stories of changed pods: rolled, rolled back, blocked, scaled on the way. A pair serves at every moment."""

import pytest
from kvarn_operator.reconcile.actions import CreatePod

from tests.support.fake_cluster import BAD_IMAGE, DECODE, PREFILL, FakeCluster
from tests.unit.operator.reconcile.reconcile_stories import deeds, image, serving, settle, spec, step

NEW = "registry.test/worker:2"


def roll(cluster: FakeCluster, rounds: int = 200, **asked: object) -> FakeCluster:
    """Change the model and watch: until all is done, a pair serves."""
    cluster.put_service(spec(**asked))
    for _ in range(rounds):
        plan = step(cluster)
        assert cluster.serves_a_pair()
        if not plan.actions and cluster.is_still():
            return settle(cluster)
    raise AssertionError("the rollout does not end")


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 3)])
def test_a_new_image_in_both_pools(prefill: int, decode: int) -> None:
    cluster = serving(prefill=prefill, decode=decode)
    old = cluster.revisions(PREFILL) | cluster.revisions(DECODE)
    roll(cluster, prefill=prefill, decode=decode, prefill__template=image(NEW), decode__template=image(NEW))
    assert (len(cluster.serving(PREFILL)), len(cluster.serving(DECODE))) == (prefill, decode)
    assert not (cluster.revisions(PREFILL) | cluster.revisions(DECODE)) & old
    assert cluster.condition("Progressing") == ("False", "Settled")
    reasons = cluster.event_reasons()
    assert (reasons.count("RolloutBegun"), reasons.count("RolloutEnded")) == (2, 2)


def test_of_one_pool_the_other_keeps_its_pods() -> None:
    cluster = serving(decode=2)
    kept = cluster.serving(PREFILL)
    roll(cluster, decode=2, decode__template=image(NEW))
    assert cluster.serving(PREFILL) == kept
    assert cluster.pools[DECODE]["status"]["updatedReplicas"] == 2


def test_a_layout_that_pairs_only_with_itself() -> None:
    cluster = serving(prefill=2, decode=2)
    roll(cluster, prefill=2, decode=2, engine={"blockSize": 32})
    assert cluster.condition("Paired") == ("True", "ServingPair")
    assert len(cluster.pods) == 4


IN_PLACE = {"maxSurge": 0, "maxUnavailable": 1}
ONE_AWAY = {"maxSurge": 1, "maxUnavailable": 1}


@pytest.mark.parametrize(
    ("replicas", "rollout"), [(1, IN_PLACE), (1, ONE_AWAY), (2, IN_PLACE), (2, ONE_AWAY), (3, ONE_AWAY)]
)
@pytest.mark.parametrize("engine", [{}, {"blockSize": 32}], ids=["same layout", "another layout"])
def test_a_quota_without_room_for_one_more_is_rolled_in_place(
    replicas: int, rollout: dict[str, int], engine: dict[str, int]
) -> None:
    cluster = FakeCluster(quota=2 * replicas)
    asked = {"prefill": replicas, "decode": replicas, "rollout": rollout}
    cluster.put_service(spec(**asked))
    settle(cluster)
    old = cluster.revisions(PREFILL) | cluster.revisions(DECODE)
    new = {"prefill__template": image(NEW), "decode__template": image(NEW)}
    cluster.put_service(spec(**asked, **new, engine=engine))
    for _ in range(100):
        step(cluster)
        assert replicas == 1 or cluster.serves_a_pair()
    settle(cluster)
    assert (len(cluster.serving(PREFILL)), len(cluster.serving(DECODE))) == (replicas, replicas)
    assert not (cluster.revisions(PREFILL) | cluster.revisions(DECODE)) & old


def test_a_quota_without_room_and_no_pod_that_may_be_away_is_told() -> None:
    cluster = FakeCluster(quota=4)
    cluster.put_service(spec(prefill=2, decode=2))
    settle(cluster)
    old = set(cluster.pods)
    cluster.put_service(spec(prefill=2, decode=2, decode__template=image(NEW)))
    for _ in range(20):
        step(cluster)
    assert set(cluster.pods) == old
    assert cluster.condition("Progressing", DECODE) == ("False", "RolloutBlocked")
    assert "exceeded quota" in cluster.told("Progressing", DECODE)["message"]


def test_pods_that_are_refused_for_what_they_are_cost_no_old_one_its_place() -> None:
    cluster = serving(rollout=ONE_AWAY)
    old = set(cluster.pods)
    cluster.put_service(spec(rollout=ONE_AWAY, decode__template=image(NEW)))
    cluster.quota, cluster.refusal = len(old), "pods is forbidden: violates PodSecurity"
    for _ in range(20):
        step(cluster)
    assert cluster.condition("Progressing", DECODE) == ("False", "RolloutBlocked")
    assert set(cluster.pods) == old
    assert cluster.serves_a_pair()
    cluster.drain(cluster.serving(DECODE)[0])
    for _ in range(20):
        step(cluster)
    assert set(cluster.pods) == old, "a drained pod waits for its replacement"


def test_rolling_back_takes_cordoned_pods_back() -> None:
    cluster = serving(decode=2)
    old = cluster.serving(DECODE)
    cluster.pace.drain_s = lambda: 1000.0
    cluster.put_service(spec(decode=2, decode__template=image(NEW)))
    while not any(cluster.is_cordoned(name) for name in old):
        step(cluster)
    cluster.put_service(spec(decode=2))
    cluster.pace.drain_s = lambda: 1.0
    settle(cluster)
    assert cluster.serving(DECODE) == old


def test_an_image_that_does_not_exist_blocks_and_harms_nobody() -> None:
    cluster = serving(decode=2)
    old = cluster.serving(DECODE)
    roll(cluster, decode=2, decode__template=image(BAD_IMAGE))
    assert cluster.serving(DECODE) == old
    assert cluster.condition("Progressing", DECODE) == ("False", "RolloutBlocked")
    assert cluster.condition("Reconciling", DECODE) == ("True", "RolloutBlocked")
    assert cluster.condition("Ready") == ("True", "Serving")
    assert cluster.condition("ModelCached") == ("False", "ImageProblem")
    (told,) = [event for event in cluster.events if event.reason == "RolloutBlocked" and event.kind == "WorkerPool"]
    assert "ImagePullBackOff" in told.message
    roll(cluster, decode=2, decode__template=image(NEW))
    assert len(cluster.serving(DECODE)) == 2
    assert len(cluster.pods) == 3


def test_no_room_for_a_surge_is_told() -> None:
    cluster = FakeCluster(room=2)
    cluster.put_service(spec())
    settle(cluster)
    roll(cluster, decode__template=image(NEW))
    assert cluster.condition("Progressing", DECODE) == ("False", "RolloutBlocked")
    message = cluster.told("Progressing", DECODE)["message"]
    assert "Insufficient nvidia.com/gpu" in message
    assert "a larger maxUnavailable lets them go first" in message
    roll(cluster)
    assert len(cluster.pods) == 2


def test_no_room_for_a_surge_and_interruption_allowed() -> None:
    cluster = FakeCluster(room=2)
    cluster.put_service(spec())
    settle(cluster)
    old = cluster.serving(DECODE)
    cluster.put_service(spec(decode__template=image(NEW), rollout={"maxUnavailable": 1}))
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 1
    assert cluster.serving(DECODE) != old


def test_an_old_pod_comes_back_when_its_successor_dies() -> None:
    cluster = serving()
    cluster.pace.drain_s = lambda: 1000.0
    (old,) = cluster.serving(DECODE)
    cluster.put_service(spec(decode__template=image(NEW)))
    while not cluster.is_cordoned(old):
        step(cluster)
    (new,) = cluster.serving(DECODE)
    cluster.kill(new)
    step(cluster)
    assert cluster.serving(DECODE) == [old]
    cluster.pace.drain_s = lambda: 4.0
    settle(cluster)
    assert len(cluster.serving(DECODE)) == 1
    assert old not in cluster.pods


def test_scaling_down_on_the_way() -> None:
    cluster = serving(prefill=1, decode=4)
    cluster.put_service(spec(decode=4, decode__template=image(NEW)))
    for _ in range(6):
        step(cluster)
    assert len(cluster.revisions(DECODE)) == 2
    cluster.scale(DECODE, 2)
    roll(cluster, decode=4, decode__template=image(NEW))
    assert len(cluster.serving(DECODE)) == 2
    assert len(cluster.revisions(DECODE)) == 1


def test_never_more_than_the_surge() -> None:
    cluster = serving(prefill=2, decode=3)
    cluster.put_service(spec(2, 3, rollout={"maxSurge": 2}, engine={"blockSize": 32}))
    for _ in range(100):
        plan = step(cluster)
        created = any(isinstance(action, CreatePod) for action in deeds(plan))
        assert not created or (len(cluster.active(PREFILL)) <= 4 and len(cluster.active(DECODE)) <= 5)
        assert cluster.serves_a_pair()
    assert len(cluster.pods) == 5


def test_another_number_of_replicas_in_the_model_is_written_through_once() -> None:
    cluster = serving(decode=1)
    cluster.scale(DECODE, 3)
    settle(cluster)
    cluster.put_service(spec(decode=1, slo={"ttftMs": 900}))
    settle(cluster)
    assert cluster.replicas(DECODE) == 3, "the model's own number did not change"
    cluster.put_service(spec(decode=2))
    settle(cluster)
    assert cluster.replicas(DECODE) == len(cluster.serving(DECODE)) == 2
