"""A whole stack that speaks mutual TLS: answers come through every hop; a router without a certificate finds nobody."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.certificates import Authority, make_authority
from tests.support.process import StackProcess, wait_until
from tests.support.simulated import MODEL, long_prompt, simulated_spec
from tests.support.stack import Stack, StackSpec


def flags_of(folder: Path) -> tuple[str, ...]:
    names = {"cert": "tls.crt", "key": "tls.key", "ca": "ca.crt"}
    return tuple(word for kind, name in names.items() for word in (f"--tls-{kind}-file", str(folder / name)))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return make_authority(tmp_path_factory.mktemp("authority"), "root")


@pytest.fixture(scope="module")
def stack(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("logs")
    for name in ("worker", "router"):
        authority.issue(folder / name)
    plain = simulated_spec(tmp_path_factory.mktemp("model"))
    spec = StackSpec(
        plain.model,
        worker_flags=(*plain.worker_flags, *flags_of(folder / "worker")),
        decode_flags=plain.decode_flags,
        router_flags=(*plain.router_flags, *flags_of(folder / "router")),
    )
    running = Stack(spec, folder)
    try:
        running.start()
        yield running
        running.check_quiet()
    finally:
        running.close()


def test_an_answer_comes_through_every_hop(stack: Stack) -> None:
    body = {"model": MODEL, "prompt": long_prompt("tls")[:200], "max_tokens": 4, "ignore_eos": True}
    with httpx.Client(base_url=stack.url, timeout=60, trust_env=False) as client:
        answer = client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 4
        assert stack.decode[0].metric("kvarn_handoff_bytes_total") > 0
        assert "kvarn_tls_certificate_expiry_seconds " in client.get("/metrics").text


def test_a_router_without_a_certificate_finds_no_worker(stack: Stack, tmp_path: Path) -> None:
    addresses = ",".join(worker.process.address for worker in stack.workers)
    flags = ["--model", stack.spec.model, "--workers", addresses, "--hold-s", "0"]
    router = StackProcess("plain", "kvarn_router", flags, tmp_path / "plain.log")
    router.start()
    try:
        router.wait_serving()
        tried = {worker.process.address for worker in stack.workers}
        wait_until(lambda: all(f"address={each}" in router.log_text() for each in tried), "both have been tried")
        url = f"http://{router.address}"
        assert httpx.get(f"{url}/debug/workers").json()["workers"] == []
        assert httpx.get(f"{url}/ready").status_code == 503
        assert router.terminate() == 0
    finally:
        router.close()


def test_files_that_cannot_work_end_the_router_with_status_1(stack: Stack, tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_text("no certificate")
    flags = ["--model", stack.spec.model, "--workers", "127.0.0.1:9", *flags_of(tmp_path)]
    router = StackProcess("broken", "kvarn_router", flags, tmp_path / "broken.log")
    router.start()
    try:
        wait_until(lambda: not router.is_alive, "the router ends")
        assert router.wait() == 1
        assert "tls.crt" in router.log_text()
        assert "Traceback" not in router.log_text()
    finally:
        router.close()
