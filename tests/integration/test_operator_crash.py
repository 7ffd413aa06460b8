"""An operator that dies after any of its writes: the next one brings the cluster to the same end."""

from dataclasses import replace
from typing import Any

from kvarn_operator.settings import OperatorSettings

from tests.support.kubernetes_api import BUDGET, POD, POOL, Cluster, served_cluster
from tests.support.operator_cluster import add_service, cluster_with_kubelet, is_ready, pods, pools
from tests.support.operator_run import NAMESPACE, SETTINGS, eventually, operator

MOST_WRITES = 60

QUICK_DRAIN = {"replicas": 2, "drain": {"timeoutSeconds": 0}}


def is_there(cluster: Cluster) -> bool:
    return is_ready(cluster) and len(pods(cluster)) == 4 and len(cluster.store.list(BUDGET, NAMESPACE)) == 2


async def start_and_converge(url: str, cluster: Cluster, settings: OperatorSettings = SETTINGS) -> None:
    async with operator(url, settings):
        await eventually(lambda: is_there(cluster), "two pods in each pool and the model ready", 30.0)


async def die_at_write(number: int) -> tuple[Cluster, bool]:
    """The end state after a death at that write; False when there were fewer writes."""
    cluster = cluster_with_kubelet()
    async with served_cluster(cluster) as url:
        add_service(cluster, prefill=QUICK_DRAIN, decode=QUICK_DRAIN)
        cluster.hold_at = number
        async with operator(url) as first:
            await eventually(lambda: cluster.held.is_set() or is_there(cluster), f"write {number} or the end", 30.0)
            died = cluster.held.is_set()
            first.task.cancel()
            cluster.let_go.set()
        cluster.hold_at = None
        await start_and_converge(url, cluster)
    return cluster, died


def outline(cluster: Cluster) -> dict[str, Any]:
    """What must be the same whoever brought it about, without times, versions and the words of conditions."""
    made = {kind.plural: cluster.store.list(kind, NAMESPACE) for kind in (POD, POOL, BUDGET)}
    names = {plural: sorted(each["metadata"]["name"] for each in items) for plural, items in made.items()}
    specs = {each["metadata"]["name"]: each["spec"] for items in made.values() for each in items}
    seeds = {each["metadata"]["name"]: each["metadata"].get("annotations") for each in made["workerpools"]}
    return {"names": names, "specs": specs, "seeds": seeds}


async def test_a_death_after_any_write_changes_nothing_in_the_end() -> None:
    undisturbed, died = await die_at_write(MOST_WRITES)
    assert not died, "more writes than the test allows for: a hot loop?"
    wanted = outline(undisturbed)
    assert wanted["names"]["workerpools"] == ["chat-decode", "chat-prefill"]
    last = undisturbed.writes
    for number in range(1, MOST_WRITES):
        cluster, died = await die_at_write(number)
        assert outline(cluster) == wanted, f"after a death at write {number}"
        # Every pod was created once: a second creation of the same name would have been refused.
        created = [change for change in cluster.store.changes if change.kind is POD and change.type == "ADDED"]
        assert len(created) == 4, f"after a death at write {number}"
        if not died:
            break
    assert 8 < number <= last + 1


async def shrink_and_die_at_write(number: int) -> tuple[Cluster, bool]:
    cluster = cluster_with_kubelet()
    async with served_cluster(cluster) as url:
        add_service(cluster, prefill=QUICK_DRAIN, decode=QUICK_DRAIN)
        async with operator(url) as first:
            await eventually(lambda: is_there(cluster), "the start", 30.0)
            cluster.store.scale(POOL, NAMESPACE, "chat-decode", 1)
            cluster.hold_at = cluster.writes + number
            await eventually(lambda: cluster.held.is_set() or len(pods(cluster)) == 3, "a death or the end", 30.0)
            died = cluster.held.is_set()
            first.task.cancel()
            cluster.let_go.set()
        cluster.hold_at = None
        async with operator(url):
            await eventually(lambda: len(pods(cluster)) == 3 and is_ready(cluster), "one decode pod less", 30.0)
    return cluster, died


async def test_a_death_while_scaling_down_takes_no_second_victim() -> None:
    for number in range(1, MOST_WRITES):
        cluster, died = await shrink_and_die_at_write(number)
        deleted = [change for change in cluster.store.changes if change.kind is POD and change.type == "DELETED"]
        assert len(deleted) == 1, f"after a death at write {number}"
        marked = [pod for pod in cluster.store.list(POD, NAMESPACE) if "annotations" in pod["metadata"]]
        assert not [pod for pod in marked if "kvarn.dev/draining" in pod["metadata"]["annotations"]]
        if not died:
            break
    assert number > 2


async def test_a_rest_is_a_rest_and_a_restart_writes_nothing() -> None:
    cluster = cluster_with_kubelet()
    async with served_cluster(cluster) as url:
        add_service(cluster, prefill=QUICK_DRAIN, decode=QUICK_DRAIN)
        await start_and_converge(url, cluster)
        async with operator(url, replace(SETTINGS, loops=replace(SETTINGS.loops, resync_s=0.1))) as again:
            sample = again.app.registry.get_sample_value
            name, labels = "kvarn_operator_reconciles_total", {"outcome": "settled"}
            await eventually(lambda: (sample(name, labels) or 0) >= 1, "a first look")
            before, writes = sample(name, labels) or 0, cluster.writes
            await eventually(lambda: (sample(name, labels) or 0) >= before + 5, "five more looks")
            assert cluster.writes == writes
        assert pools(cluster) == ["chat-decode", "chat-prefill"]
