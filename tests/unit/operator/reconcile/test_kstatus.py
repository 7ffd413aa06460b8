"""What tools that wait for a resource see of a model and its pools through its life."""

from tests.support.fake_cluster import BAD_IMAGE, DECODE, PREFILL, FakeCluster
from tests.support.kstatus import kstatus
from tests.unit.operator.reconcile.reconcile_stories import image, serving, settle, spec, step


def seen(cluster: FakeCluster) -> tuple[str, str, str]:
    """The model, then its prefill and decode pool."""
    return kstatus(cluster.service), kstatus(cluster.pools[PREFILL]), kstatus(cluster.pools[DECODE])


def test_a_new_model_is_in_progress_until_it_serves() -> None:
    cluster = FakeCluster()
    cluster.put_service(spec())
    step(cluster)
    assert kstatus(cluster.service) == "InProgress"
    step(cluster)
    assert seen(cluster) == ("InProgress", "InProgress", "InProgress")
    settle(cluster)
    assert seen(cluster) == ("Current", "Current", "Current")


def test_a_change_is_in_progress_from_the_moment_it_is_written() -> None:
    cluster = serving()
    cluster.put_service(spec(decode__template=image("worker:2")))
    assert kstatus(cluster.service) == "InProgress"
    step(cluster)
    assert seen(cluster) == ("InProgress", "Current", "InProgress")
    settle(cluster)
    assert seen(cluster) == ("Current", "Current", "Current")


def test_a_rollout_that_cannot_go_on_is_never_current() -> None:
    cluster = serving()
    cluster.put_service(spec(decode__template=image(BAD_IMAGE)))
    settle(cluster)
    assert seen(cluster) == ("InProgress", "Current", "InProgress")


def test_scaling_down_is_in_progress_while_a_pod_drains() -> None:
    cluster = serving(decode=2)
    cluster.scale(DECODE, 1)
    step(cluster)
    assert seen(cluster)[2] == "InProgress"
    settle(cluster)
    assert seen(cluster) == ("Current", "Current", "Current")


def test_a_spec_that_cannot_be_carried_out_has_failed() -> None:
    cluster = serving()
    cluster.put_service({**spec(), "engine": {"numBlocks": 8, "kvMemoryGiB": 1}})
    settle(cluster)
    assert kstatus(cluster.service) == "Failed"
    cluster.put_service(spec())
    settle(cluster)
    assert seen(cluster) == ("Current", "Current", "Current")
