"""The `kvarn` command over real processes: `up` to the ready file, the README's example, restart, and a clean end."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.process import wait_until

README = Path(__file__).parents[2] / "README.md"
DEADLINE_S = 90.0

pytestmark = pytest.mark.model  # the router needs the embedded model's tokenizer


@dataclass
class Stack:
    process: "subprocess.Popen[bytes]"
    ready_file: Path
    log: Path

    @property
    def url(self) -> str:
        return str(self.content["base_url"])

    @property
    def content(self) -> dict[str, object]:
        return dict(json.loads(self.ready_file.read_text()))

    @property
    def pids(self) -> dict[str, int]:
        workers = self.content["workers"]
        assert isinstance(workers, list)
        return {"router": int(str(self.content["router_pid"])), **{w["worker_id"]: int(w["pid"]) for w in workers}}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def running(folder: Path, *flags: str) -> Iterator[Stack]:
    ready, log = folder / "ready.json", folder / "up.log"
    command = [sys.executable, "-m", "kvarn_cli", "up", "--engine", "simulated", "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--ready-file", str(ready), *flags], stdout=output, stderr=output)
    try:
        wait_until(lambda: ready.exists() or process.poll() is not None, "the stack serves", DEADLINE_S)
        assert ready.exists(), log.read_text()
        yield Stack(process, ready, log)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("up"), "--no-chat") as stack:
        yield stack


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=DEADLINE_S, env=environment)


def test_doctor_finds_nothing_wrong(stack: Stack) -> None:
    done = run(sys.executable, "-m", "kvarn_cli", "doctor", "--url", stack.url)
    assert done.returncode == 0, done.stdout
    assert "1 prefill worker(s) registered" in done.stdout
    assert "one layout fingerprint" in done.stdout


def test_chat_streams_and_measures(stack: Stack) -> None:
    done = run(sys.executable, "-m", "kvarn_cli", "chat", "--url", stack.url, "--max-tokens", "8", "Say hello.")
    assert done.returncode == 0, done.stdout
    assert re.search(r"TTFT \d+ ms · ITL [\d.]+ ms · 8 tokens · \d+ of \d+ prompt tokens cached", done.stdout)


def test_the_example_of_the_readme_runs(stack: Stack) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert "http://127.0.0.1:8000" in example
    done = run(sys.executable, "-c", example.replace("http://127.0.0.1:8000", stack.url))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_a_killed_worker_comes_back_at_its_address(stack: Stack) -> None:
    before = stack.pids
    os.kill(before["decode-0"], signal.SIGKILL)

    def is_back() -> bool:
        pids = stack.pids
        if pids["decode-0"] in (0, before["decode-0"]):
            return False
        return httpx.get(f"{stack.url}/ready").status_code == httpx.codes.OK

    wait_until(is_back, "the worker is back", DEADLINE_S)
    assert stack.pids["router"] == before["router"]
    done = run(sys.executable, "-m", "kvarn_cli", "chat", "--url", stack.url, "--max-tokens", "4", "Again.")
    assert done.returncode == 0, done.stdout


def test_sigterm_ends_everything(tmp_path: Path) -> None:
    with running(tmp_path) as stack:
        pids = stack.pids.values()
        wait_until(lambda: "serving until Ctrl-C" in stack.log.read_text(), "the sample answer", DEADLINE_S)
        assert "TTFT" in stack.log.read_text()
        stack.process.send_signal(signal.SIGTERM)
        assert stack.process.wait(timeout=DEADLINE_S) == 0
        assert not any(is_alive(pid) for pid in pids)


def test_a_killed_command_takes_its_processes_along(tmp_path: Path) -> None:
    with running(tmp_path, "--no-chat") as stack:
        pids = list(stack.pids.values())
        stack.process.kill()
        wait_until(lambda: not any(is_alive(pid) for pid in pids), "all processes are gone", DEADLINE_S)


def test_a_stack_that_cannot_start_ends_with_1(tmp_path: Path) -> None:
    done = run(sys.executable, "-m", "kvarn_cli", "up", "--port", "0", "--worker-args", "--no-such-flag")
    assert done.returncode == 1
    assert "unknown flag --no-such-flag" in done.stdout
    assert "ended with status 2 before it was ready" in done.stdout
