"""One child process of a test stack: start, wait until it serves, kill, freeze, thaw, restart.

Used by `tests.support.stack` only. Knows nothing of models or of the wire, only of log lines and signals.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_ADDRESS = re.compile(r"\baddress[=\"':\s]+([\w.\-]+:\d+)")


def wait_until(condition: Callable[[], bool], what: str, deadline_s: float = 30.0, pause_s: float = 0.05) -> None:
    """Poll a condition; the deadline only bounds a failing test, it measures nothing."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(pause_s)


class StackProcess:
    """Owns one child and its log file. The child leads a process group of its own, so nothing it starts survives it."""

    def __init__(self, name: str, module: str, flags: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.address = ""
        self._module = module
        self._flags = tuple(flags)
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Take a free port the first time and the same one ever after, so that peers find it again."""
        assert not self.is_alive
        port = self.address.rpartition(":")[2] or "0"
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", self._module, "--host", "127.0.0.1", "--port", port, *self._flags]
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=_environment(), start_new_session=True
            )

    def wait_serving(self, deadline_s: float = 120.0) -> None:
        def serving() -> bool:
            if not self.is_alive:
                raise AssertionError(f"{self.name} exited early:\n{self.log_tail()}")
            return self._announced_address() != ""

        wait_until(serving, f"{self.name} announces its address\n{self.log_tail()}", deadline_s)
        self.address = self._announced_address()

    def kill(self) -> None:
        """SIGKILL: no chance to say goodbye."""
        self.send(signal.SIGKILL)
        self.wait()

    def freeze(self) -> None:
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        self.send(signal.SIGCONT)

    def terminate(self, deadline_s: float = 30.0) -> int:
        """SIGTERM, then the exit status."""
        self.send(signal.SIGTERM)
        wait_until(lambda: not self.is_alive, f"{self.name} exits after SIGTERM\n{self.log_tail()}", deadline_s)
        return self.wait()

    def close(self) -> None:
        if self._child is not None:
            self.send(signal.SIGKILL)
            self.wait()

    def log_text(self) -> str:
        """What this life of the process has written."""
        if not self.log.exists():
            return ""
        return self.log.read_bytes()[self._log_start :].decode(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_text().splitlines()[-lines:])

    def _announced_address(self) -> str:
        for line in self.log_text().splitlines():
            if "ready" in line and (match := _ADDRESS.search(line)):
                return match.group(1)
        return ""

    def send(self, number: signal.Signals) -> None:
        assert self._child is not None
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def wait(self) -> int:
        """The exit status, once it has ended."""
        assert self._child is not None
        return self._child.wait(timeout=30)


def _environment() -> dict[str, str]:
    """Settings come from flags only; one thread each, since tests share few cores."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("KVARN_") or key == "KVARN_CACHE"}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}
