"""The operator as a process on this machine, against a cluster where pods are fake or there is no image of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.cluster.support.cluster import Cluster
from tests.support.process import wait_until
from tests.support.stack import free_port


class OperatorProcess:
    """Owns one child and its log file. Each life takes new ports; the flags stay."""

    def __init__(self, cluster: Cluster, log: Path, flags: Sequence[str] = ()) -> None:
        self.log = log
        self._environment = cluster.client.environment()
        self._flags = ("--worker-image", cluster.images.name("worker"), *flags)
        self._child: subprocess.Popen[bytes] | None = None
        self._health_port = self._metrics_port = 0

    @property
    def is_alive(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self._metrics_port}/metrics"

    def start(self) -> None:
        assert not self.is_alive
        self._health_port, self._metrics_port = free_port(), free_port()
        ports = ("--health-port", str(self._health_port), "--metrics-port", str(self._metrics_port))
        command = [sys.executable, "-m", "kvarn_operator", *ports, *self._flags]
        environment = {key: value for key, value in self._environment.items() if not key.startswith("KVARN_")}
        with self.log.open("ab") as sink:
            self._child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
            )

    def wait_ready(self, deadline_s: float = 60) -> None:
        def ready() -> bool:
            assert self.is_alive, f"the operator ended:\n{self.log_tail()}"
            return self.probe("ready") == 200

        wait_until(ready, f"the operator is ready\n{self.log_tail()}", deadline_s, 0.1)

    def probe(self, name: str) -> int:
        """Status of /live or /ready; 0 where nobody answers."""
        try:
            return httpx.get(f"http://127.0.0.1:{self._health_port}/{name}", timeout=5).status_code
        except httpx.TransportError:
            return 0

    def kill(self) -> None:
        """SIGKILL: no chance to say goodbye, nor to give up a lease."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, then the exit status."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._child is not None
        os.kill(self._child.pid, signal.SIGCONT)

    def close(self) -> None:
        if self.is_alive:
            self.kill()

    def log_tail(self, lines: int = 40) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _end(self, number: signal.Signals) -> int:
        assert self._child is not None
        self._child.send_signal(number)
        return self._child.wait(timeout=60)


@contextmanager
def running_operator(cluster: Cluster, log: Path, *flags: str) -> Iterator[OperatorProcess]:
    """Ready when handed out, killed at the end."""
    operator = OperatorProcess(cluster, log, flags)
    try:
        operator.start()
        operator.wait_ready()
        yield operator
    finally:
        operator.close()
