"""A whole Kvarn stack as real processes on loopback: one router, N prefill and M decode workers.

Test modules make one `StackSpec`, open it with `running_stack` in a module-scoped fixture (a model is loaded once per
module), and look at the workers from outside only: `Worker.Describe`, `/metrics`, HTTP, signals.
"""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
from kvarn_proto.v1 import worker_pb2, worker_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from tests.support.process import StackProcess, wait_until

_TRACEBACK = re.compile(r"^Traceback \(most recent call last\)", re.MULTILINE)

COMPUTED_TOKENS = "kvarn_batch_tokens_sum"
"""Tokens that went through the model: prefill and decode alike."""

SENT_TOKENS = "kvarn_output_tokens_total"
PREEMPTIONS = "kvarn_preemptions_total"


@dataclass(frozen=True)
class StackSpec:
    """What to start. Flags given for a role come after the ones for every worker."""

    model: str
    prefill: int = 1
    decode: int = 1
    worker_flags: tuple[str, ...] = ()
    prefill_flags: tuple[str, ...] = ()
    decode_flags: tuple[str, ...] = ()
    router_flags: tuple[str, ...] = ()
    served_name: str = "test-model"


class Worker:
    """One worker process and what it says of itself."""

    def __init__(self, process: StackProcess, metrics_port: int) -> None:
        self.process = process
        self._metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"

    def describe(self, timeout_s: float = 5.0) -> worker_pb2.DescribeResponse:
        with grpc.insecure_channel(self.process.address) as channel:
            return worker_pb2_grpc.WorkerStub(channel).Describe(worker_pb2.DescribeRequest(), timeout=timeout_s)

    def load(self) -> worker_pb2.Load:
        return self.describe().load

    def is_idle(self) -> bool:
        load = self.load()
        return load.blocks_in_use == 0 and load.running == 0 and load.waiting == 0 and load.queued_prefill_tokens == 0

    def metric(self, name: str) -> float:
        """The sum over all label sets of one sample name."""
        samples = [
            sample.value
            for family in text_string_to_metric_families(httpx.get(self._metrics_url, timeout=5.0).text)
            for sample in family.samples
            if sample.name == name
        ]
        assert samples, f"{self.process.name} has no metric {name}"
        return sum(samples)


class Stack:
    """Owns every process of one stack. `start` returns when the router says it is ready."""

    def __init__(self, spec: StackSpec, folder: Path) -> None:
        self.spec = spec
        self._folder = folder
        self.prefill = [self._worker("prefill", index) for index in range(spec.prefill)]
        self.decode = [self._worker("decode", index) for index in range(spec.decode)]
        self.router: StackProcess | None = None

    @property
    def workers(self) -> list[Worker]:
        return [*self.prefill, *self.decode]

    @property
    def url(self) -> str:
        assert self.router is not None
        return f"http://{self.router.address}"

    def start(self) -> None:
        for worker in self.workers:
            worker.process.start()
        for worker in self.workers:
            worker.process.wait_serving()
        addresses = ",".join(worker.process.address for worker in self.workers)
        flags = ["--model", self.spec.model, "--served-model-name", self.spec.served_name, "--workers", addresses]
        self.router = StackProcess(
            "router", "kvarn_router", [*flags, *self.spec.router_flags], self._folder / "router.log"
        )
        self.router.start()
        self.router.wait_serving()
        self.wait_ready()

    def wait_ready(self) -> None:
        wait_until(self._router_ready, f"router is ready\n{self.logs()}", 60)

    def wait_idle(self, deadline_s: float = 10.0) -> None:
        """Every live worker holds nothing for anybody: the proof that no block leaked."""
        for worker in self.workers:
            if worker.process.is_alive:
                wait_until(worker.is_idle, f"{worker.process.name} is idle", deadline_s)

    def restart(self, worker: Worker) -> None:
        """A new incarnation at the old address, known to the router again."""
        worker.process.start()
        worker.process.wait_serving()
        self.wait_known(worker)

    def wait_known(self, worker: Worker) -> None:
        """Until the last that the router said of this incarnation is that it registered."""
        incarnation = worker.describe().incarnation
        assert self.router is not None
        router = self.router

        def registered() -> bool:
            about = [line for line in router.log_text().splitlines() if incarnation in line]
            return bool(about) and "registered" in about[-1]

        wait_until(registered, f"router knows {worker.process.name}\n{router.log_tail()}", 30)

    def total(self, metric: str) -> float:
        """One counter over all live workers."""
        return sum(worker.metric(metric) for worker in self.workers if worker.process.is_alive)

    def logs(self) -> str:
        processes = [worker.process for worker in self.workers]
        if self.router is not None:
            processes.append(self.router)
        return "\n".join(f"---- {process.name}\n{process.log_tail()}" for process in processes)

    def check_quiet(self) -> None:
        """Nobody logged a traceback: failures that Kvarn expects are told in one line."""
        loud = [path.name for path in sorted(self._folder.glob("*.log")) if _TRACEBACK.search(path.read_text())]
        assert not loud, f"tracebacks in {loud}\n{self.logs()}"

    def close(self) -> None:
        if self.router is not None:
            self.router.close()
        for worker in self.workers:
            worker.process.close()

    def _router_ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False

    def _worker(self, role: str, index: int) -> Worker:
        name = f"{role}-{index}"
        metrics_port = free_port()
        own = self.spec.prefill_flags if role == "prefill" else self.spec.decode_flags
        flags = ["--worker-id", name, "--model", self.spec.model, "--threads", "1", "--metrics-port", str(metrics_port)]
        process = StackProcess(
            name, f"kvarn_{role}", [*flags, *self.spec.worker_flags, *own], self._folder / f"{name}.log"
        )
        return Worker(process, metrics_port)


@contextmanager
def running_stack(spec: StackSpec, folder: Path) -> Iterator[Stack]:
    """Start, hand out, check that nothing is held any more, end every process."""
    stack = Stack(spec, folder)
    try:
        stack.start()
        yield stack
        stack.wait_idle()
        stack.check_quiet()
    finally:
        stack.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
