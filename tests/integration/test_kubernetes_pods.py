"""The pod source with the real Kubernetes client against an API server on loopback that misbehaves as real ones do."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from kubernetes import client
from kvarn_engine.process.settings import SettingsError
from kvarn_router.discovery.backoff import Backoff
from kvarn_router.discovery.choice import choose_source
from kvarn_router.discovery.endpoint import Endpoint
from kvarn_router.discovery.kubernetes_pods import KubernetesPods
from kvarn_router.discovery.pod_api import PodApi
from kvarn_router.discovery.pod_set import DRAINING_ANNOTATION
from kvarn_router.discovery.pod_watcher import Timing
from kvarn_router.settings import DiscoverySettings, WorkerSettings
from kvarn_router.workers import Role

from tests.support.fake_pods import SELECTOR, FakePods, make_pod, served_pods
from tests.support.routing_stack import eventually, registered, routing_stack
from tests.support.scripted_worker import ScriptedWorker, served


@dataclass
class Seen:
    history: list[tuple[Endpoint, ...]] = field(default_factory=list)

    @property
    def now(self) -> dict[str, tuple[str, bool]]:
        return {each.key: (each.address, each.draining) for each in self.history[-1]} if self.history else {}

    async def becomes(self, expected: dict[str, tuple[str, bool]]) -> None:
        await eventually(lambda: bool(self.history) and self.now == expected, f"{expected}, but {self.now}")


def make_source(url: str, relist_s: float = 60.0) -> KubernetesPods:
    configuration = client.Configuration(host=url)
    timing = Timing(relist_s, Backoff(0.01, 0.05, lambda: 0.5), time.monotonic)
    return KubernetesPods(lambda: PodApi(configuration, "here", SELECTOR, timeout_s=5.0), "grpc", timing)


@asynccontextmanager
async def following(pods: FakePods, relist_s: float = 60.0) -> AsyncIterator[Seen]:
    """The source's thread is gone when the block ends."""
    seen = Seen()

    async def collect(source: KubernetesPods) -> None:
        async with aclosing(source.snapshots()) as snapshots:
            async for endpoints in snapshots:
                seen.history.append(endpoints)

    async with served_pods(pods) as url:
        task = asyncio.create_task(collect(make_source(url, relist_s)), name="collect")
        try:
            yield seen
        finally:
            task.cancel()
            await asyncio.wait({task})
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("kvarn-pods")] == []


async def watching(pods: FakePods, times: int = 1) -> None:
    await eventually(lambda: pods.requests["watch"] >= times and bool(pods.watchers), f"watch number {times}")


async def test_add_change_and_delete_arrive_over_one_watch() -> None:
    pods = FakePods()
    pods.put(make_pod("a", 7001))
    async with following(pods) as seen:
        await seen.becomes({"a": ("127.0.0.1:7001", False)})
        await watching(pods)
        pods.put(make_pod("b", 7002, ready=False))
        await seen.becomes({"a": ("127.0.0.1:7001", False), "b": ("127.0.0.1:7002", True)})
        pods.put(make_pod("b", 7002))
        pods.put(make_pod("a", 7001, deletionTimestamp="2030-01-01T00:00:00Z"))
        await seen.becomes({"a": ("127.0.0.1:7001", True), "b": ("127.0.0.1:7002", False)})
        pods.delete("a")
        await seen.becomes({"b": ("127.0.0.1:7002", False)})
        assert pods.requests == {"list": 1, "watch": 1}
        assert pods.selectors == {SELECTOR}


async def test_a_pod_marked_as_draining_gets_no_work_until_the_mark_is_gone() -> None:
    """By the operator, a moment before it is drained, or by a person who changes their mind."""
    worker = ScriptedWorker("w")
    pods = FakePods()
    async with served(worker), served_pods(pods) as url:
        port = int(worker.address.rpartition(":")[2])
        pods.put(make_pod("a", port))
        async with routing_stack(source=make_source(url)) as stack:
            await registered(stack, worker)
            await watching(pods)
            marked = make_pod("a", port)
            marked["metadata"]["annotations"] = {DRAINING_ANNOTATION: "2030-01-01T00:00:00Z"}  # type: ignore[index]
            pods.put(marked)
            await eventually(lambda: stack.table.candidates(Role.DECODE) == (), "the mark is seen")
            pods.put(make_pod("a", port))
            await eventually(lambda: len(stack.table.candidates(Role.DECODE)) == 1, "the mark is gone")
            assert worker.watchers == 1


async def test_no_pods_is_an_answer() -> None:
    async with following(FakePods()) as seen:
        await seen.becomes({})


async def test_reused_address_is_another_endpoint() -> None:
    pods = FakePods()
    pods.put(make_pod("old", 7001))
    async with following(pods) as seen:
        await watching(pods)
        pods.delete("old")
        pods.put(make_pod("new", 7001))
        await seen.becomes({"new": ("127.0.0.1:7001", False)})


async def test_dropped_connection_goes_on_from_the_last_version() -> None:
    pods = FakePods()
    async with following(pods) as seen:
        await watching(pods)
        pods.put(make_pod("a", 7001))
        await seen.becomes({"a": ("127.0.0.1:7001", False)})
        pods.bookmark()
        pods.drop()
        await watching(pods, 2)
        pods.put(make_pod("b", 7002))
        await seen.becomes({"a": ("127.0.0.1:7001", False), "b": ("127.0.0.1:7002", False)})
        assert pods.requests["list"] == 1
        assert pods.watched_from[:2] == ["100", "102"]


async def test_expired_version_leads_to_a_new_list() -> None:
    pods = FakePods()
    pods.put(make_pod("a", 7001))
    async with following(pods) as seen:
        await watching(pods)
        pods.delete("a", silently=True)
        pods.put(make_pod("b", 7002), silently=True)
        pods.expire()
        await seen.becomes({"b": ("127.0.0.1:7002", False)})
        assert pods.requests["list"] == 2


async def test_watch_refused_with_410_leads_to_a_new_list() -> None:
    pods = FakePods()
    pods.put(make_pod("a", 7001))
    async with following(pods) as seen:
        await watching(pods)
        pods.expired = True
        pods.delete("a", silently=True)
        pods.drop()
        await seen.becomes({})
        assert pods.requests["list"] == 2


async def test_missed_delete_heals_with_the_next_list() -> None:
    pods = FakePods()
    pods.put(make_pod("a", 7001))
    async with following(pods, relist_s=0.1) as seen:
        await watching(pods)
        pods.delete("a", silently=True)
        await seen.becomes({})
        assert pods.requests["list"] >= 2


async def test_server_errors_keep_the_last_set_and_are_tried_again() -> None:
    pods = FakePods()
    pods.put(make_pod("a", 7001))
    async with following(pods) as seen:
        await watching(pods)
        pods.fail_next = 3
        pods.drop()
        await eventually(lambda: pods.fail_next == 0, "three tries")
        assert seen.now == {"a": ("127.0.0.1:7001", False)}
        pods.put(make_pod("b", 7002))
        await seen.becomes({"a": ("127.0.0.1:7001", False), "b": ("127.0.0.1:7002", False)})
        assert len(seen.history) == 2


async def test_errors_at_the_start_end_in_a_list() -> None:
    pods = FakePods(fail_next=3)
    pods.put(make_pod("a", 7001))
    async with following(pods) as seen:
        await seen.becomes({"a": ("127.0.0.1:7001", False)})
        assert pods.requests["list"] == 4


async def test_defect_in_the_thread_reaches_the_reader() -> None:
    """The registrar's task fails, and with it the process: a router that follows nothing must not look well."""
    pods = FakePods()
    async with served_pods(pods) as url:
        configuration = client.Configuration(host=url)
        timing = Timing(60.0, Backoff(0.01, 0.05, lambda: 1 / 0), time.monotonic)
        pods.fail_next = 1
        source = KubernetesPods(lambda: PodApi(configuration, "here", SELECTOR, 5.0), "grpc", timing)
        async with aclosing(source.snapshots()) as snapshots:
            try:
                await anext(snapshots)
            except ZeroDivisionError:
                return
    raise AssertionError("the defect was swallowed")


def write_kubeconfig(path: Path, url: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(content))


async def test_settings_and_kubeconfig_lead_to_the_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the flags to a registered worker whose pod is then replaced at the same address."""
    worker = ScriptedWorker("w", incarnation="boot-1")
    pods = FakePods()
    async with served(worker), served_pods(pods) as url:
        port = int(worker.address.rpartition(":")[2])
        pods.put(make_pod("uid-1", port))
        write_kubeconfig(tmp_path / "config", url)
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        settings = DiscoverySettings(workers_selector=SELECTOR, workers_namespace="here")
        async with routing_stack(source=choose_source(WorkerSettings(), settings)) as stack:
            await registered(stack, worker)
            pods.delete("uid-1")
            pods.put(make_pod("uid-2", port))
            await eventually(lambda: worker.watchers == 2 and len(stack.table.all()) == 1, "a new registration")


def test_no_cluster_is_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="--workers-selector"):
        choose_source(WorkerSettings(), DiscoverySettings(workers_selector=SELECTOR))
