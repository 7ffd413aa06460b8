"""`python -m kvarn_operator` as a process: how it starts, answers its probes, and ends."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from kvarn_operator.app import App, serve
from kvarn_operator.settings import EndpointSettings, OperatorSettings
from prometheus_client.parser import text_string_to_metric_families

from tests.support.kubernetes_api import LEASE, Cluster, served_cluster
from tests.support.operator_cluster import add_service, cluster_with_kubelet, is_ready, pods
from tests.support.operator_run import NAMESPACE, eventually


def kubeconfig(folder: Path, url: str) -> Path:
    entry = {"cluster": "test", "user": "test"}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "test", "context": entry}],
        "current-context": "test",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


@asynccontextmanager
async def process(config: Path, log: Path, *flags: str) -> AsyncIterator[asyncio.subprocess.Process]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("KVARN_")}
    env |= {"KUBECONFIG": str(config), "NO_PROXY": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as sink:
        command = [sys.executable, "-m", "kvarn_operator", "--host", "127.0.0.1", *flags]
        child = await asyncio.create_subprocess_exec(*command, env=env, stdout=sink, stderr=sink)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def until_ended(child: asyncio.subprocess.Process) -> int:
    async with asyncio.timeout(60):
        return await child.wait()


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[Cluster, str]]:
    served = cluster_with_kubelet()
    async with served_cluster(served) as url:
        yield served, url


async def test_a_whole_life(cluster: tuple[Cluster, str], tmp_path: Path) -> None:
    served, url = cluster
    health, metrics = free_ports()
    log = tmp_path / "log"
    flags = [
        "--namespaces",
        NAMESPACE,
        "--lease-namespace",
        NAMESPACE,
        "--worker-image",
        "example/worker:1",
        "--log-json",
    ]
    ports = ["--health-port", str(health), "--metrics-port", str(metrics)]
    add_service(served)
    async with process(kubeconfig(tmp_path, url), log, *flags, *ports) as child:
        await eventually(lambda: is_ready(served), "the model is ready", 60.0)
        assert len(pods(served)) == 2
        async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
            assert (await client.get(f"http://127.0.0.1:{health}/live")).status_code == 200
            assert (await client.get(f"http://127.0.0.1:{health}/ready")).status_code == 200
            page = (await client.get(f"http://127.0.0.1:{metrics}/metrics")).text
        samples = {each.name: each.value for family in text_string_to_metric_families(page) for each in family.samples}
        assert samples["kvarn_operator_is_leader"] == 1.0
        assert samples["kvarn_operator_queue_depth"] in (0.0, 1.0)
        assert {"kvarn_operator_reconciles_total", "kvarn_operator_api_calls_total"} <= set(samples)
        child.send_signal(signal.SIGTERM)
        assert await until_ended(child) == 0
    (lease,) = served.store.list(LEASE, NAMESPACE)
    assert lease["spec"]["holderIdentity"] == ""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["message"] for line in lines if line["logger"] == "kvarn.operator"] == ["ready", "stopping", "stopped"]
    assert "secret-token" not in log.read_text(encoding="utf-8")


async def test_wrong_settings_end_with_status_2(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with process(tmp_path / "none", log, "--resync-s", "0") as child:
        assert await until_ended(child) == 2
    assert "resync_s" in log.read_text(encoding="utf-8")


async def test_no_credentials_end_with_status_1(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with process(tmp_path / "none", log) as child:
        assert await until_ended(child) == 1
    assert "cannot start" in log.read_text(encoding="utf-8")


async def test_it_ends_at_once_while_it_waits_for_a_cluster(tmp_path: Path) -> None:
    nowhere, health = free_ports()
    log = tmp_path / "log"
    ports = ["--health-port", str(health), "--metrics-port", "0"]
    async with process(kubeconfig(tmp_path, f"http://127.0.0.1:{nowhere}"), log, *ports) as child:
        await eventually(lambda: "does not answer" in log.read_text(encoding="utf-8"), "the complaint", 60.0)
        child.send_signal(signal.SIGTERM)
        assert await until_ended(child) == 0


async def test_a_part_that_fails_ends_the_process_with_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(app: App) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, "http://127.0.0.1:1")))
    monkeypatch.setattr("kvarn_operator.app.run", broken)
    settings = OperatorSettings(endpoints=EndpointSettings("127.0.0.1", health_port=0, metrics_port=0))
    async with asyncio.timeout(60):
        assert await serve(settings) == 1
