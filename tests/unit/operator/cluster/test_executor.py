"""Each action against an API server on loopback: what it writes, what repeats and refusals mean, who may act."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from kvarn_operator.cluster.api import Api
from kvarn_operator.cluster.election import Leadership
from kvarn_operator.cluster.errors import Conflict, NotLeading, Refused, Unavailable
from kvarn_operator.cluster.event_ledger import EventLedger, EventLimits
from kvarn_operator.cluster.event_recorder import EventRecorder, Reporter
from kvarn_operator.cluster.executor import Executor
from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL
from kvarn_operator.cluster.lease import Candidate, LeaseTimes
from kvarn_operator.cluster.mirror import Mirror, ServiceKey, Source
from kvarn_operator.cluster.transport import CallTimeouts, Transport
from kvarn_operator.reconcile.actions import (
    Apply,
    Cordon,
    CreatePod,
    DeletePod,
    EmitEvent,
    Plan,
    SetReplicas,
    Uncordon,
    WriteStatus,
)
from kvarn_operator.scaling.spec import PodName, PoolName

from tests.support import kubernetes_api as api_server
from tests.support.kubernetes_api import Cluster, Fault, configuration_for, served_cluster
from tests.support.kubernetes_store import Answer, Served

NS = "models"
KEY = ServiceKey(NS, "chat")
POOL_NAME = PoolName("chat-decode")


@dataclass
class Meter:
    actions: list[tuple[str, bool]] = field(default_factory=list)
    lost: int = 0
    asked: list[str] = field(default_factory=list)

    def acted(self, action: str, succeeded: bool) -> None:
        self.actions.append((action, succeeded))

    def event_asked(self, reason: str) -> None:
        self.asked.append(reason)

    def event_lost(self) -> None:
        self.lost += 1


@dataclass
class Bench:
    cluster: Cluster
    mirror: Mirror
    executor: Executor
    meter: Meter
    uid: str
    """Of the pool."""

    async def do(self, *actions: Any) -> bool:
        return await self.executor.carry_out(KEY, Plan(actions))

    def pod(self, name: str) -> Any:
        return self.cluster.store.get(api_server.POD, NS, name)

    def seen(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.mirror.of(KEY, POD)]

    def body(self, name: str, pool: str = POOL_NAME) -> dict[str, Any]:
        labels = {"kvarn.dev/model-service": "chat", "kvarn.dev/pool": pool}
        owner = {"kind": "WorkerPool", "name": POOL_NAME, "uid": self.uid, "controller": True}
        metadata = {"namespace": NS, "name": name, "labels": labels, "ownerReferences": [owner]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}


@asynccontextmanager
async def bench(leadership: Leadership | None = None) -> AsyncIterator[Bench]:
    cluster, meter = Cluster(), Meter()
    pool_body = {"metadata": {"name": POOL_NAME}, "spec": {"role": "decode", "modelService": "chat", "replicas": 1}}
    async with served_cluster(cluster) as url:
        api = Api(Transport(configuration_for(url), CallTimeouts(5.0, 5.0), lambda _call, _code: None), 2, "test")
        mirror = Mirror(lambda: 0.0, lambda _key: None)
        service = cluster.store.create(api_server.SERVICE, NS, {"metadata": {"name": "chat"}, "spec": {}})
        pool = cluster.store.create(api_server.POOL, NS, pool_body)
        mirror.put(MODEL_SERVICE, service, Source.LIST)
        mirror.put(WORKER_POOL, pool, Source.LIST)
        recorder = EventRecorder(api, EventLedger(EventLimits()), Reporter("test"), meter)
        executor = Executor(api, mirror, recorder, leadership or Leadership(None), meter)
        try:
            yield Bench(cluster, mirror, executor, meter, pool["metadata"]["uid"])
        finally:
            api.close()


async def test_a_created_pod_is_seen_at_once_and_a_repeat_is_done_already() -> None:
    async with bench() as at:
        assert await at.do(CreatePod(at.body("p-0")))
        assert at.seen() == ["p-0"]
        assert not await at.do(CreatePod(at.body("p-0")))
        assert at.meter.actions == [("CreatePod", True)] * 2


async def test_a_name_that_is_a_strangers_is_told_as_a_refusal() -> None:
    async with bench() as at:
        at.cluster.store.create(api_server.POD, NS, {"metadata": {"name": "p-0"}, "spec": {}})
        with pytest.raises(Refused, match="none of the operator's"):
            await at.do(CreatePod(at.body("p-0")))
        assert "p-0 exists" in at.executor.refused(KEY)[POOL_NAME]


async def test_a_pod_that_was_taken_out_of_its_pool_is_seen_so_that_its_name_counts_as_taken() -> None:
    async with bench() as at:
        taken_out = at.body("p-0", pool="debug")
        at.cluster.store.create(api_server.POD, NS, taken_out)
        with pytest.raises(Conflict, match="no pod of its pool"):
            await at.do(CreatePod(at.body("p-0")))
        assert at.seen() == ["p-0"]
        assert at.executor.refused(KEY) == {}


async def test_cordon_and_uncordon() -> None:
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")))
        uid = at.pod("p-0")["metadata"]["uid"]
        await at.do(Cordon(PodName("p-0"), uid, "2026-12-01T04:00:00Z", "ScaleDown"))
        marks = {"kvarn.dev/draining": "2026-12-01T04:00:00Z", "kvarn.dev/drain-reason": "ScaleDown"}
        assert at.pod("p-0")["metadata"]["annotations"] == marks
        assert at.mirror.of(KEY, POD)[0]["metadata"]["annotations"] == marks
        await at.do(Uncordon(PodName("p-0"), uid))
        assert at.pod("p-0")["metadata"]["annotations"] == {}


async def test_another_pod_of_the_same_name_is_neither_marked_nor_deleted() -> None:
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")))
        with pytest.raises(Conflict):
            await at.do(Cordon(PodName("p-0"), "an-older-uid", "now", "ScaleDown"))
        await at.do(DeletePod(PodName("p-0"), "an-older-uid"))
        assert "annotations" not in at.pod("p-0")["metadata"]


async def test_what_is_gone_counts_as_done() -> None:
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")))
        uid = at.pod("p-0")["metadata"]["uid"]
        at.cluster.store.delete(api_server.POD, NS, "p-0")
        assert at.seen() == ["p-0"]
        await at.do(Cordon(PodName("p-0"), uid, "now", "ScaleDown"))
        assert at.seen() == []
        await at.do(Uncordon(PodName("p-0"), uid), DeletePod(PodName("p-0"), uid))
        await at.do(WriteStatus("ModelService", "no-longer-there", {"model": "x"}))
        assert all(succeeded for _, succeeded in at.meter.actions)


async def test_a_deleted_pod_is_seen_terminating_or_gone_at_once() -> None:
    async with bench() as at:
        at.cluster.store.pods_linger = True
        await at.do(CreatePod(at.body("p-0")), CreatePod(at.body("p-1")))
        await at.do(DeletePod(PodName("p-0"), at.pod("p-0")["metadata"]["uid"]))
        assert ["deletionTimestamp" in each["metadata"] for each in at.mirror.of(KEY, POD)] == [True, False]


async def test_replicas_are_written_alone_with_the_seed_and_the_managers_name() -> None:
    async with bench() as at:
        await at.do(SetReplicas(POOL_NAME, 4, "kvarn-operator-seed", seeded=4))
        pool = at.cluster.store.get(api_server.POOL, NS, POOL_NAME)
        assert pool["spec"] == {"role": "decode", "modelService": "chat", "replicas": 4}
        marks = {"kvarn.dev/seeded-replicas": "4", "kvarn.dev/written-replicas": "4"}
        assert pool["metadata"]["annotations"] == marks
        owners = [each["manager"] for each in pool["metadata"]["managedFields"] if "f:replicas" in str(each)]
        assert owners == ["kvarn-operator-seed"]


async def test_replicas_of_a_pool_that_is_gone_do_not_bring_it_back() -> None:
    async with bench() as at:
        at.cluster.store.delete(api_server.POOL, NS, POOL_NAME)
        with pytest.raises(Conflict):
            await at.do(SetReplicas(POOL_NAME, 4, "kvarn-operator-scaling"))
        assert at.cluster.store.list(api_server.POOL, NS) == []


async def test_an_apply_leaves_out_what_it_does_not_own() -> None:
    async with bench() as at:
        metadata = {"namespace": NS, "name": POOL_NAME, "labels": {"kvarn.dev/model-service": "chat"}}
        spec = {"role": "decode", "modelService": "chat", "template": {"image": "example/worker:2"}}
        await at.do(
            Apply({"apiVersion": "kvarn.dev/v1alpha1", "kind": "WorkerPool", "metadata": metadata, "spec": spec})
        )
        pool = at.cluster.store.get(api_server.POOL, NS, POOL_NAME)
        assert pool["spec"] == {**spec, "replicas": 1}
        assert at.mirror.find(KEY, WORKER_POOL, POOL_NAME) == pool


async def test_only_the_status_is_written_as_status() -> None:
    async with bench() as at:
        await at.do(WriteStatus("WorkerPool", POOL_NAME, {"replicas": 1}))
        pool = at.cluster.store.get(api_server.POOL, NS, POOL_NAME)
        assert (pool["status"], pool["spec"]["replicas"]) == ({"replicas": 1}, 1)
        assert at.mirror.find(KEY, WORKER_POOL, POOL_NAME) == pool


async def test_what_changes_nothing_is_no_reason_to_look_again() -> None:
    """Such as a status of which an older CRD drops the half, every time."""
    async with bench() as at:
        told = WriteStatus("WorkerPool", POOL_NAME, {"replicas": 1})
        assert await at.do(told)
        assert not await at.do(told)


async def test_the_first_failure_stops_acting_but_not_telling() -> None:
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")))
        uid = at.pod("p-0")["metadata"]["uid"]
        with pytest.raises(Conflict):
            await at.do(
                Cordon(PodName("p-0"), "an-older-uid", "now", "ScaleDown"),
                DeletePod(PodName("p-0"), uid),
                WriteStatus("ModelService", "chat", {"model": "told"}),
                EmitEvent("ModelService", "chat", "Told", "all the same"),
            )
        assert at.pod("p-0")["metadata"]["uid"] == uid
        assert at.cluster.store.get(api_server.SERVICE, NS, "chat")["status"] == {"model": "told"}
        assert [each["reason"] for each in at.cluster.store.list(api_server.EVENT, NS)] == ["Told"]


async def test_an_outage_stops_telling_too() -> None:
    async with bench() as at:
        at.cluster.faults.append(Fault("create", "pods", 503))
        with pytest.raises(Unavailable):
            await at.do(CreatePod(at.body("p-0")), WriteStatus("ModelService", "chat", {"model": "told"}))
        assert "status" not in at.cluster.store.get(api_server.SERVICE, NS, "chat")


async def test_one_refused_pool_does_not_starve_the_other_and_the_reason_is_kept_until_it_is_over() -> None:
    async with bench() as at:

        def over_quota(kind: Served, body: Any) -> None:
            if kind is api_server.POD and body["metadata"]["labels"]["kvarn.dev/pool"] == POOL_NAME:
                raise Answer(403, "Forbidden", "exceeded quota")

        at.cluster.store.on_create = over_quota
        refused = [CreatePod(at.body("p-0")), CreatePod(at.body("p-1"))]
        other = CreatePod(at.body("q-0", pool="chat-prefill"))
        with pytest.raises(Refused):
            await at.do(*refused, other)
        assert at.cluster.calls["create", "pods"] == 2
        assert at.seen() == ["q-0"]
        assert "exceeded quota" in at.executor.refused(KEY)[POOL_NAME]
        at.cluster.store.on_create = None
        assert await at.do(*refused)
        assert at.executor.refused(KEY) == {}


async def test_a_refused_pod_holds_no_drain_back() -> None:
    """Or else a quota that is used up would never be freed."""
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")), CreatePod(at.body("p-1")))
        at.cluster.faults.append(Fault("create", "pods", 403))
        uids = {name: at.pod(name)["metadata"]["uid"] for name in ("p-0", "p-1")}
        with pytest.raises(Refused):
            await at.do(
                CreatePod(at.body("p-2")),
                DeletePod(PodName("p-0"), uids["p-0"]),
                Cordon(PodName("p-1"), uids["p-1"], "2026-12-01T04:00:00Z", "Rollout"),
            )
        assert at.seen() == ["p-1"]
        assert "kvarn.dev/draining" in at.pod("p-1")["metadata"]["annotations"]


async def test_a_refused_pool_is_remembered_and_holds_nothing_else_back() -> None:
    async with bench() as at:
        at.cluster.faults.append(Fault("apply", "workerpools", 422))
        metadata = {"namespace": NS, "name": POOL_NAME}
        body = {"apiVersion": "kvarn.dev/v1alpha1", "kind": "WorkerPool", "metadata": metadata, "spec": {"neu": 1}}
        with pytest.raises(Refused):
            await at.do(Apply(body), CreatePod(at.body("p-0")))
        assert "422" in at.executor.refused_object(KEY)
        assert at.seen() == ["p-0"]
        await at.do(DeletePod(PodName("p-0"), at.pod("p-0")["metadata"]["uid"]))
        assert at.executor.refused_object(KEY) == ""


async def test_a_refused_number_of_replicas_makes_no_pods() -> None:
    async with bench() as at:
        at.cluster.faults.append(Fault("apply", "workerpools", 403))
        with pytest.raises(Refused):
            await at.do(SetReplicas(POOL_NAME, 4, "kvarn-operator-scaling"), CreatePod(at.body("p-0")))
        assert at.seen() == []
        assert "403" in at.executor.refused(KEY)[POOL_NAME]


async def test_after_a_refusal_a_conflict_still_stops_acting() -> None:
    async with bench() as at:
        await at.do(CreatePod(at.body("p-0")))
        at.cluster.faults.append(Fault("create", "pods", 403))
        with pytest.raises(Refused):
            await at.do(
                CreatePod(at.body("p-1")),
                Cordon(PodName("p-0"), "an-older-uid", "now", "ScaleDown"),
                DeletePod(PodName("p-0"), at.pod("p-0")["metadata"]["uid"]),
            )
        assert at.seen() == ["p-0"]


async def test_an_event_that_cannot_be_written_fails_nothing() -> None:
    async with bench() as at:
        at.cluster.faults.append(Fault("create", "events", 500))
        assert not await at.do(EmitEvent("WorkerPool", POOL_NAME, "Told", "lost"))
        assert at.meter.lost == 1
        await at.do(EmitEvent("WorkerPool", POOL_NAME, "Told", "lost"), EmitEvent("WorkerPool", "unknown", "X", "x"))
        (event,) = at.cluster.store.list(api_server.EVENT, NS)
        assert event["note"] == "lost"
        assert at.meter.asked == ["Told", "Told"]


async def test_who_does_not_lead_writes_nothing() -> None:
    clock = 0.0
    candidate = Candidate("me", LeaseTimes())
    async with bench(Leadership(candidate, lambda: clock)) as at:
        with pytest.raises(NotLeading):
            await at.do(CreatePod(at.body("p-0")), WriteStatus("ModelService", "chat", {"model": "x"}))
        assert at.cluster.writes == 0
