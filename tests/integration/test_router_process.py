"""The router as a process: what it shows people, how it explains itself, and how it ends."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tokenizers import Tokenizer

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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--no-such-flag", "1"], "--no-such-flag"),
        (["--port", "many"], "--port"),
        (["--worker-wait-s", "soon"], "--worker-wait-s"),
        (["--max-attempts", "0"], "max_attempts"),
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
