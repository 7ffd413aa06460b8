"""Several operators: one acts, another takes over, and who lost the lease stops at once."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from kvarn_operator.reconcile.actions import Plan
from kvarn_operator.reconcile.observed import Observed

from tests.support.kubernetes_api import LEASE, POD, POOL, Cluster, Fault, served_cluster
from tests.support.operator_cluster import add_service, cluster_with_kubelet, plain_reconcile, pods
from tests.support.operator_run import NAMESPACE, QUICK_ELECTION, SETTINGS, Running, eventually, operator

ELECTED = replace(SETTINGS, election=replace(QUICK_ELECTION, lease_duration_s=4.0, lease_renew_deadline_s=3.5))
"""Long enough that a busy machine does not lose the lease by itself."""

LOSES_SOON = replace(SETTINGS, election=QUICK_ELECTION)


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Cluster, str]]:
    served = cluster_with_kubelet()
    async with served_cluster(served) as url:
        yield served, url


def holder(served: Cluster) -> str:
    leases = served.store.list(LEASE, NAMESPACE)
    return leases[0]["spec"]["holderIdentity"] if leases else ""


def leads(running: Running) -> bool:
    return running.app.leadership.leads()


class Counted:
    """A reconcile that knows how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, observed: Observed, now: float) -> Plan:
        self.calls += 1
        return plain_reconcile(observed, now)


async def test_one_of_two_acts_and_a_death_hands_over(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    add_service(served)
    async with AsyncExitStack() as stack:
        first_asked, second_asked = Counted(), Counted()
        first = await stack.enter_async_context(operator(url, ELECTED, first_asked))
        await eventually(lambda: leads(first) and pods(served) == ["chat-decode-0"], "the first acts")
        second = await stack.enter_async_context(operator(url, ELECTED, second_asked))
        await eventually(lambda: not second.app.health.waits_for, "the second stands by, ready")
        reads = served.calls["get", "leases"]
        await eventually(lambda: served.calls["get", "leases"] >= reads + 5, "the second looks at the lease")
        assert leads(first)
        assert not leads(second)
        assert second_asked.calls == 0
        await first.kill()
        served.store.scale(POOL, NAMESPACE, "chat-decode", 2)
        await eventually(lambda: leads(second) and len(pods(served)) == 2, "the second took over")
        assert holder(served) == second.app.candidate.identity
        assert served.store.list(LEASE, NAMESPACE)[0]["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_ends_in_order_releases_the_lease(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    slow = replace(QUICK_ELECTION, lease_duration_s=600.0, lease_renew_deadline_s=500.0)
    settings = replace(SETTINGS, election=slow)
    async with operator(url, settings, plain_reconcile) as first:
        await eventually(lambda: leads(first), "the first leads")
    assert holder(served) == ""
    async with operator(url, settings, plain_reconcile) as second:
        await eventually(lambda: leads(second), "the second leads without waiting for 10 minutes")


async def test_who_cannot_renew_stops_acting_and_comes_back(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    add_service(served)
    async with operator(url, LOSES_SOON, plain_reconcile) as running:
        await eventually(lambda: pods(served) == ["chat-decode-0"], "it acts")
        outage = Fault("update", "leases", 500, times=10**6)
        served.faults.append(outage)
        await eventually(lambda: not leads(running), "the lease is lost by the clock")
        served.store.scale(POOL, NAMESPACE, "chat-decode", 3)
        lists = served.calls["list", "pods"]
        tries = served.calls["update", "leases"]
        await eventually(lambda: served.calls["update", "leases"] >= tries + 3, "it goes on trying")
        assert len(pods(served)) == 1
        assert served.calls["list", "pods"] >= lists
        assert not running.app.failed.is_set()
        outage.times = 0
        await eventually(lambda: len(pods(served)) == 3, "it acts again")


async def test_a_lease_stolen_by_another_is_obeyed(cluster: tuple[Cluster, str]) -> None:
    served, url = cluster
    add_service(served)
    async with operator(url, ELECTED, plain_reconcile) as running:
        await eventually(lambda: leads(running) and pods(served) == ["chat-decode-0"], "it acts")
        lease = served.store.list(LEASE, NAMESPACE)[0]
        served.store.merge(LEASE, NAMESPACE, lease["metadata"]["name"], {"spec": {"holderIdentity": "another"}})
        await eventually(lambda: not leads(running), "it stands by")
        served.store.delete(LEASE, NAMESPACE, lease["metadata"]["name"])
        await eventually(lambda: leads(running), "it leads again when the lease is gone")
        served.store.delete(POD, NAMESPACE, "chat-decode-0")
        await eventually(lambda: pods(served) == ["chat-decode-0"], "and acts")
