"""The operator's process half against an API server that misbehaves: every fault heals, none makes a hot loop."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from kvarn_operator.app import App
from kvarn_operator.settings import ScopeSettings

from tests.support.kubernetes_api import EVENT, LEASE, POD, POOL, SERVICE, Cluster, Fault, served_cluster
from tests.support.kubernetes_store import Answer, Served
from tests.support.operator_cluster import add_service, cluster_with_kubelet, plain_reconcile, pods, pools
from tests.support.operator_run import NAMESPACE, SETTINGS, eventually, operator, with_resync

Json = object


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Cluster, str]]:
    served = cluster_with_kubelet()
    async with served_cluster(served) as url:
        yield served, url


def metric(app: App, name: str, **labels: str) -> float:
    return app.registry.get_sample_value(name, labels) or 0.0


async def test_a_model_gets_its_pool_and_pods_and_is_followed(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    async with operator(url, reconcile=plain_reconcile) as running:
        await eventually(lambda: not running.app.health.waits_for, "ready")
        add_service(served)
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")
        served.store.scale(POOL, NAMESPACE, "chat-decode", 3)
        await eventually(lambda: len(pods(served)) == 3, "three pods")
        served.store.delete(POD, NAMESPACE, "chat-decode-1")
        await eventually(lambda: len(pods(served)) == 3, "the deleted pod again")
        served.store.scale(POOL, NAMESPACE, "chat-decode", 1)
        await eventually(lambda: pods(served) == ["chat-decode-0"], "one pod")
        served.store.delete(SERVICE, NAMESPACE, "chat")
        await eventually(lambda: not pods(served) and not pools(served), "nothing left")


@pytest.mark.parametrize(
    "fault",
    [
        Fault("create", "pods", 500, 2),
        Fault("create", "pods", 409, 1, reason="Conflict"),
        Fault("create", "pods", 429, 1, retry_after=0.01),
        Fault("create", "pods", 0, 1),
        Fault("apply", "workerpools", 503, 2),
        Fault("list", "pods", 500, 1),
        Fault("list", "workerpools", 410, 1, reason="Expired"),
        Fault("watch", "pods", 410, 1, reason="Expired"),
        Fault("get", "pods", 500, 1),
    ],
    ids=lambda fault: f"{fault.verb}-{fault.plural}-{fault.status}",
)
async def test_a_fault_is_overcome(cluster: tuple[Cluster, str], fault: Fault) -> None:
    served, url = cluster
    add_service(served)
    served.faults.append(fault)
    async with operator(url, reconcile=plain_reconcile) as running:
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod", 30.0)
        assert not running.app.failed.is_set()


async def test_an_expired_watch_and_deletes_that_nobody_told(cluster: tuple[Cluster, str]) -> None:
    """kopf lists anew after 410 and never learns what is gone; the operator's own list does."""
    served, url = cluster
    add_service(served)
    async with operator(url, with_resync(0.3), reconcile=plain_reconcile):
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")
        first = served.store.get(POD, NAMESPACE, "chat-decode-0")["metadata"]["uid"]
        served.forget_silently(POD, NAMESPACE, "chat-decode-0")
        served.expire_watches()
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod again")
        assert served.store.get(POD, NAMESPACE, "chat-decode-0")["metadata"]["uid"] != first


async def test_a_deaf_watch_is_made_up_for_by_lists_and_fails_liveness(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    async with operator(url, with_resync(0.2), reconcile=plain_reconcile) as running:
        await eventually(lambda: not running.app.health.waits_for and len(served.watchers) == 4, "watches")
        served.deaf = True
        add_service(served)
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod in spite of it")
        ages = running.app.progress.ages_s
        await eventually(lambda: ages()["watch modelservices"] > 1.0, "the silence counts")
        assert ages()["watch poddisruptionbudgets"] < 1.0
        served.deaf = False
        served.drop_watches()
        served.expire_watches()
        await eventually(lambda: ages()["watch modelservices"] < 0.5, "the silence ends")


async def test_an_outage_of_the_api_server_stops_nothing(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    async with operator(url, with_resync(0.2), reconcile=plain_reconcile) as running:
        await eventually(lambda: len(served.watchers) == 4, "watches")
        served.down = True
        served.drop_watches()
        add_service(served)
        calls = served.calls.total()
        await eventually(lambda: not served.watchers, "the outage")
        assert running.app.health.live() == ""
        served.down = False
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod after the outage", 30.0)
        assert served.calls.total() > calls
        assert not running.app.failed.is_set()


async def test_a_refused_pod_is_told_and_tried_again_with_growing_pauses(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster

    def over_quota(kind: Served, body: Json) -> None:
        if kind is POD:
            raise Answer(403, "Forbidden", "exceeded quota: gpus")

    served.store.on_create = over_quota
    add_service(served)
    async with operator(url) as running:
        await eventually(lambda: served.calls["create", "pods"] >= 6, "three tries for each pool")
        told = [each for each in served.store.list(EVENT, NAMESPACE) if each["reason"] == "PodsRefused"]
        assert sorted(each["regarding"]["name"] for each in told) == ["chat", "chat-decode", "chat-prefill"]
        assert all(each["type"] == "Warning" and "exceeded quota: gpus" in each["note"] for each in told)
        assert metric(running.app, "kvarn_operator_reconciles_total", outcome="refused") >= 2
        served.store.on_create = None
        await eventually(lambda: len(pods(served)) == 2, "the pods once there is room")


async def test_a_name_taken_by_a_foreign_pod_is_waited_for(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    served.store.create(POD, NAMESPACE, {"metadata": {"name": "chat-decode-0"}, "spec": {}})
    add_service(served)
    async with operator(url, reconcile=plain_reconcile):
        await eventually(lambda: served.calls["create", "pods"] >= 2, "two tries")
        assert "labels" not in served.store.get(POD, NAMESPACE, "chat-decode-0")["metadata"]
        served.store.delete(POD, NAMESPACE, "chat-decode-0")
        await eventually(
            lambda: [pod for pod in served.store.list(POD, NAMESPACE) if "labels" in pod["metadata"]], "the pool's own"
        )


async def test_a_namespace_without_rights_holds_no_other_back(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    served.forbidden.add("gone")
    add_service(served)
    settings = replace(SETTINGS, scope=ScopeSettings(namespaces=(NAMESPACE, "gone")))
    async with operator(url, settings, reconcile=plain_reconcile) as running:
        await eventually(lambda: not running.app.health.waits_for and len(served.watchers) == 4, "watches")
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")
        served.store.delete(POD, NAMESPACE, "chat-decode-0")
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the deleted pod again", 60.0)
        assert running.app.health.live() == ""


async def test_crds_may_come_after_the_operator(cluster: tuple[Cluster, str], monkeypatch: pytest.MonkeyPatch) -> None:
    served, url = cluster
    monkeypatch.setattr("kvarn_operator.cluster.discovery.RETRY_S", 0.05)
    served.unserved |= {"modelservices", "workerpools"}
    async with operator(url, reconcile=plain_reconcile) as running:
        await eventually(lambda: "not installed" in running.app.health.waits_for, "the complaint")
        assert "not installed" in running.app.health.ready()
        assert running.app.health.live() == ""
        served.unserved.clear()
        add_service(served)
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")


async def test_a_server_without_budgets_is_followed_without_them(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    served.unserved.add("poddisruptionbudgets")
    add_service(served)
    async with operator(url, reconcile=plain_reconcile):
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")
    assert served.calls["list", "poddisruptionbudgets"] == 0


async def test_nothing_of_kopf_is_left_in_the_objects_and_only_allowed_kinds_are_touched(
    cluster: tuple[Cluster, str],
) -> None:
    served, url = cluster
    add_service(served)
    async with operator(url, reconcile=plain_reconcile):
        await eventually(lambda: len(served.watchers) == 4 and pods(served) == ["chat-decode-0"], "the pod")
    for resource in served.store.objects.values():
        assert "finalizers" not in resource["metadata"]
        assert "annotations" not in resource["metadata"]
    touched = {plural for verb, plural in served.calls}
    assert touched == {"modelservices", "workerpools", "pods", "poddisruptionbudgets"}


async def test_without_an_election_no_lease_is_touched(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    add_service(served)
    async with operator(url, SETTINGS, reconcile=plain_reconcile):
        await eventually(lambda: pods(served) == ["chat-decode-0"], "the pod")
    assert served.store.list(LEASE, NAMESPACE) == []
    await asyncio.sleep(0)


async def test_a_watch_that_stays_deaf_is_replaced(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    loops = replace(SETTINGS.loops, resync_s=0.1, stall_s=2.0)
    async with operator(url, replace(SETTINGS, loops=loops), reconcile=plain_reconcile) as running:
        await eventually(lambda: not running.app.health.waits_for and len(served.watchers) == 4, "watches")
        served.deaf = True
        add_service(served)
        restarts = "kvarn_operator_watch_restarts_total"
        await eventually(lambda: metric(running.app, restarts) >= 1, "a new watch")
        await eventually(lambda: running.app.progress.ages_s()["watch modelservices"] < 0.5, "which lists everything")
        assert not running.app.failed.is_set()


async def test_the_watch_survives_credentials_that_are_refused_once(cluster: tuple[Cluster, str]) -> None:
    """kopf does not: it may hang for ever while it ends, and is then left behind."""
    served, url = cluster
    add_service(served)
    refusal = Fault("watch", "pods", 401, times=1, reason="Unauthorized")
    served.faults.append(refusal)
    loops = replace(SETTINGS.loops, resync_s=0.1, stall_s=2.0)
    async with operator(url, replace(SETTINGS, loops=loops), reconcile=plain_reconcile) as running:
        await eventually(lambda: pods(served) == ["chat-decode-0"] and refusal.times == 0, "the pod all the same")
        served.store.scale(POOL, NAMESPACE, "chat-decode", 2)
        await eventually(lambda: metric(running.app, "kvarn_operator_watch_restarts_total") >= 1, "a new watch")
        await eventually(lambda: running.app.progress.ages_s()["watch pods"] < 0.5, "which hears")
