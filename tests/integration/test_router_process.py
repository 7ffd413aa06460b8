"""The router as a process: what it shows people, how it explains itself, and how it ends."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

from tests.support.file_server import file_server
from tests.support.process import StackProcess, wait_until
from tests.support.scripted_api import write_tiny_tokenizer
from tests.support.stack import Stack, StackSpec, running_stack

ASK = {"model": "test-model", "messages": [{"role": "user", "content": "the quick brown fox " * 4}], "max_tokens": 5}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny_tokenizer(tmp_path_factory.mktemp("model"))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def stack(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    vocabulary = Tokenizer.from_file(str(model / "tokenizer.json")).get_vocab_size()
    flags = ("--engine", "simulated", "--simulated-vocab-size", str(vocabulary))
    with running_stack(StackSpec(str(model), worker_flags=flags), tmp_path_factory.mktemp("logs")) as running:
        yield running


def test_debug_pages_and_explanation_agree(stack: Stack) -> None:
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        answer = client.post("/v1/chat/completions", json=ASK, headers={"x-kvarn-explain": "1", "x-request-id": "why"})
        assert answer.status_code == 200, answer.text
        newest = client.get("/debug/decisions").json()["decisions"][0]
        assert newest["request_id"] == "why"
        assert answer.headers["x-kvarn-explain"] == newest["explain"]
        workers = client.get("/debug/workers").json()
        assert [worker["worker_id"] for worker in workers["workers"]] == ["decode-0", "prefill-0"]
        assert workers["refused"] == []
        assert (workers["requests_held"], workers["uncached_tokens_in_flight"]) == (0, 0)
        layout = stack.decode[0].describe().layout_fingerprint
        assert workers["layouts"] == [{"layout_fingerprint": layout, "prefill": 1, "decode": 1}]
        assert newest["layout_fingerprint"] == layout
        for worker in workers["workers"]:
            assert worker["layout_fingerprint"] == layout
            assert worker["last_event_age_s"] >= 0
            assert 0 <= worker["kv_usage"] <= 1
            assert worker["in_flight"] == 0
        assert 'kvarn_router_workers{role="decode"} 1.0' in client.get("/metrics").text


def test_plain_answer_carries_no_explanation(stack: Stack) -> None:
    answer = httpx.post(f"{stack.url}/v1/chat/completions", json=ASK, timeout=30)
    assert answer.status_code == 200
    assert "x-kvarn-explain" not in answer.headers


def test_worker_of_another_model_is_refused_and_shown(stack: Stack, tmp_path: Path) -> None:
    other = write_tiny_tokenizer(tmp_path / "other", template="{{ messages[0].content }}")
    (other / "config.json").write_text("{}")
    worker = stack.decode[0].process.address
    router = StackProcess("other", "kvarn_router", ["--model", str(other), "--workers", worker], tmp_path / "log")
    router.start()
    try:
        router.wait_serving()
        url = f"http://{router.address}"
        wait_until(lambda: bool(httpx.get(f"{url}/debug/workers").json()["refused"]), "the refusal")
        refused = httpx.get(f"{url}/debug/workers").json()["refused"][0]
        assert refused["address"] == worker
        assert stack.decode[0].describe().render_fingerprint in refused["reason"]
        assert httpx.get(f"{url}/ready").status_code == 503
        assert router.terminate() == 0
    finally:
        router.close()


def test_a_request_waits_for_the_first_worker(stack: Stack, tmp_path: Path) -> None:
    """Scaling from zero as a client sees it: one request, one answer, no error in between."""
    known = tmp_path / "workers.toml"
    known.write_text("workers = []")
    flags = ["--model", stack.spec.model, "--served-model-name", "test-model", "--ready-without-workers"]
    from_file = ["--workers-file", str(known), "--workers-file-poll-s", "0.05"]
    router = StackProcess("empty", "kvarn_router", [*flags, *from_file], tmp_path / "log")
    router.start()
    try:
        router.wait_serving()
        url = f"http://{router.address}"
        assert httpx.get(f"{url}/ready").status_code == 200
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(httpx.post, f"{url}/v1/chat/completions", json=ASK, timeout=60)
            wait_until(lambda: "kvarn_router_requests_held 1.0" in httpx.get(f"{url}/metrics").text, "it is held")
            waiting = httpx.get(f"{url}/debug/workers").json()
            assert (waiting["requests_held"], waiting["layouts"]) == (1, [])
            assert waiting["uncached_tokens_in_flight"] > 20
            known.with_suffix(".new").write_text(f'workers = ["{stack.decode[0].process.address}"]')
            known.with_suffix(".new").rename(known)
            answer = asked.result()
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 5
        assert "kvarn_router_requests_held 0.0" in httpx.get(f"{url}/metrics").text
        assert router.terminate() == 0
    finally:
        router.close()


def test_a_request_held_in_vain_is_told_when_to_come_back(stack: Stack, tmp_path: Path) -> None:
    flags = ["--model", stack.spec.model, "--served-model-name", "test-model", "--workers", "127.0.0.1:9"]
    router = StackProcess("vain", "kvarn_router", [*flags, "--hold-s", "0.1"], tmp_path / "log")
    router.start()
    try:
        router.wait_serving()
        for stream in (False, True):
            url = f"http://{router.address}/v1/chat/completions"
            answer = httpx.post(url, json={**ASK, "stream": stream}, timeout=60)
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "5"
            assert answer.json()["error"]["code"] == "no_worker"
    finally:
        router.close()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-such-flag", "1"], "--no-such-flag"),
        (["--port", "many"], "--port"),
        (["--worker-wait-s", "soon"], "--worker-wait-s"),
        (["--max-attempts", "0"], "max_attempts"),
        (["--hold-s", "-1"], "hold_s"),
        (["--max-held", "-1"], "max_held"),
        (["--shutdown-delay-s", "-1"], "shutdown_delay_s"),
        (["--tls-cert-file", "tls.crt"], "tls_key_file"),
    ],
)
def test_wrong_settings_end_with_status_2(flags: list[str], words: str) -> None:
    ended = subprocess.run([sys.executable, "-m", "kvarn_router", *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("flags", [[], ["--workers", "a:1", "--workers-file", "f"]])
def test_none_or_several_worker_sources_end_with_status_2(model: Path, flags: list[str]) -> None:
    command = [sys.executable, "-m", "kvarn_router", "--port", "0", "--model", str(model), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--workers-file" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_unknown_model_ends_with_status_1(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    flags = ["--port", "0", "--model", str(tmp_path / "empty")]
    ended = subprocess.run([sys.executable, "-m", "kvarn_router", *flags], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "config.json" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_sigterm_ends_a_router_that_still_fetches_its_tokenizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    with file_server() as files:
        files.held.add("/model.tar.gz")
        reference = f"{files.url}/model.tar.gz#sha256={'0' * 64}"
        command = [sys.executable, "-m", "kvarn_router", "--port=0", "--workers=127.0.0.1:1", f"--model={reference}"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: files.requests == ["/model.tar.gz"], "the archive is asked for")
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped while loading" in log
