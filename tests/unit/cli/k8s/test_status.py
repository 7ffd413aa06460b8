"""`kubectl kvarn status`: what a person reads when all is well, when not, and when nothing is there."""

import io
from datetime import UTC, datetime

import pytest
from kvarn_cli.k8s.cluster import NotThere
from kvarn_cli.k8s.readings import Histogram, router_reading, worker_reading
from kvarn_cli.k8s.status import show_status
from rich.console import Console

from tests.unit.cli.k8s.fake_cluster import ROUTER_PAGE, WORKER_PAGE, FakeCluster, pool, router, service, worker

NOW = datetime(2026, 12, 1, 12, 0, 30, tzinfo=UTC)


def shown(cluster: FakeCluster, name: str = "") -> tuple[int, str]:
    out = io.StringIO()
    code = show_status(cluster, name, NOW, Console(file=out, width=200))
    return code, out.getvalue()


def healthy() -> FakeCluster:
    return FakeCluster(
        service_list=[service()],
        pool_list=[pool("prefill"), pool("decode")],
        pod_list=[worker("d-0"), worker("p-0", "prefill"), router()],
        pages={("d-0", 7001, "/metrics"): WORKER_PAGE, ("smollm2-router-1", 8080, "/metrics"): ROUTER_PAGE},
    )


def test_a_healthy_model_on_one_screen() -> None:
    code, text = shown(healthy())
    assert code == 0
    assert "smollm2  ready  ReadyReason  model hub org/m" in text
    assert "TTFT <= 1 s (objective 0.5 s), ITL - (objective 0.05 s); lately: unknown" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["d-0", "decode", "ready", "abc", "7", "5", "2", "25%", "node1"] in rows
    assert ["p-0", "prefill", "ready", "abc", "-", "-", "-", "-", "node1"] in rows
    assert ["smollm2-decode", "decode", "SLO", "2", "1", "1", "0", "-"] in rows
    assert ["smollm2-router-1", "ready", "9", "3"] in rows


def test_what_is_wrong_is_told_with_its_reason() -> None:
    cluster = healthy()
    cluster.service_list = [service(ready="False", CapacityAvailable="False", Progressing="True", SLOMet="Unknown")]
    code, text = shown(cluster)
    assert code == 1
    assert "not ready" in text
    assert "CapacityAvailable=False CapacityAvailableReason: about CapacityAvailable" in text
    assert "Progressing=True" in text
    assert "lately: SLOMetReason" in text
    assert "about SLOMet" not in text  # unknown: nothing to act on


def test_a_rollout_that_cannot_go_on_is_told() -> None:
    cluster = healthy()
    blocked = {"type": "Progressing", "status": "False", "reason": "RolloutBlocked", "message": "no node for p-1"}
    pools = [pool("prefill"), pool("decode")]
    cluster.pool_list = [{**item, "status": {**item["status"], "conditions": [blocked]}} for item in pools]
    assert "smollm2-decode: Progressing=False RolloutBlocked: no node for p-1" in shown(cluster)[1]


def test_a_draining_pod_says_for_how_long_and_why() -> None:
    cluster = healthy()
    cluster.annotate("d-0", {"kvarn.dev/draining": "2026-12-01T12:00:00Z", "kvarn.dev/drain-reason": "ScaleDown"})
    assert "draining 30 s (ScaleDown)" in shown(cluster)[1]


def test_pods_that_wait_say_for_what() -> None:
    cluster = healthy()
    cluster.pod_list[0]["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    }
    cluster.pod_list[1]["status"] = {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}],
    }
    text = shown(cluster)[1]
    assert "Unschedulable" in text
    assert "ErrImageNeverPull" in text


@pytest.mark.parametrize(
    ("cluster", "name", "hint"),
    [
        (FakeCluster(installed=False), "", "install Kvarn first"),
        (FakeCluster(), "", "no ModelService in namespace ml"),
        (FakeCluster(service_list=[service("other")]), "mine", "no ModelService mine in namespace ml; there: other"),
    ],
)
def test_when_nothing_is_there_it_says_what_to_do(cluster: FakeCluster, name: str, hint: str) -> None:
    with pytest.raises(NotThere, match=hint):
        shown(cluster, name)


def test_before_the_operator_has_looked() -> None:
    cluster = FakeCluster(service_list=[{"metadata": {"name": "new"}, "spec": {}}])
    code, text = shown(cluster)
    assert code == 1
    assert "no operator has looked at it" in text
    assert "no pools yet" in text
    assert "no router" in text


def test_readings() -> None:
    reading = worker_reading(WORKER_PAGE)
    assert (reading.in_flight, reading.running, reading.waiting, reading.kv_usage) == (7, 5, 2, 0.25)
    router_seen = router_reading(ROUTER_PAGE)
    assert (router_seen.in_flight, router_seen.held) == (9, 3)
    assert router_seen.ttft.percentile(50) == 0.1
    assert router_seen.ttft.percentile(89) == 0.5
    assert (router_seen.ttft + router_seen.ttft).percentile(90) == 1.0
    assert router_seen.itl.percentile(90) is None
    assert Histogram(((1.0, 0.0),)).percentile(50) is None
