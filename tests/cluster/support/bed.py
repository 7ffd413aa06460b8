"""One bed: a control plane of its own on loopback, with fake GPU nodes or with one real node.

Starts and stops the scripts of tests/cluster/bed; all beds share one build. A machine can run one real node at a time,
so that one is behind a lock, and its images stay on disk between runs.
"""

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.support.machine import BED, bed_folder
from tests.support.process import wait_until

ROOT = Path(__file__).parents[3]
NODE_LOCK = Path(tempfile.gettempdir()) / "kvarn-bed-node.lock"
PORTS_OF_A_BED = 5


class BedFailure(AssertionError):
    """A script of the bed failed; the message is what it printed."""


class Bed:
    """Owns one state folder and the processes that the pid files in it name."""

    def __init__(self, run: Path, port: int) -> None:
        self.run = run
        self.start_s = 0.0
        """How long the last start took, the build included."""

        self._restarted: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **{key: value for key, value in os.environ.items() if key not in ("KUBECONFIG", "KUBECACHEDIR")},
            "KVARN_BED": str(bed_folder()),
            "KVARN_BED_RUN": str(run),
            "KVARN_BED_PORT": str(port),
            "KVARN_BED_PYTHON": sys.executable,
        }

    @property
    def kubeconfig(self) -> Path:
        return self.run / "kubeconfig"

    @property
    def network(self) -> str:
        """The namespace file of the real node's network, for nsenter and fwd.py."""
        return f"/proc/{(self.run / 'node.pid').read_text().strip()}/ns/net"

    def start_fake_nodes(self, count: int, environment: Mapping[str, str]) -> None:
        self._environment.update(environment)
        self._start("--fake-nodes", str(count))

    def start_node(self) -> None:
        self._script("down.sh", "--forget")
        self._start("--node")

    def load_images(self, tag: str) -> None:
        """Build the images of this checkout and hand the node the layers that it lacks."""
        known = subprocess.run([*self._ctr(), "content", "ls", "-q"], capture_output=True, check=True)
        with tempfile.NamedTemporaryFile() as omitted:
            omitted.write(known.stdout)
            omitted.flush()
            builder = [sys.executable, str(ROOT / "deploy/docker/build_local.py"), "-", "--tag", tag]
            command = [*builder, "--omit", omitted.name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sys.stderr) as build:
                subprocess.run(
                    [BED / "load_image.sh", "-"], stdin=build.stdout, env=self._environment, check=True, text=True
                )
        if build.returncode != 0:
            raise BedFailure("build_local.py failed")

    def tag_images(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Second names of images that the node has."""
        for name, other in pairs:
            command = ("images", "tag", "--force", name, other)
            subprocess.run([*self._ctr(), *command], check=True, capture_output=True)

    def load_archive(self, archive: Path) -> None:
        self._script("load_image.sh", str(archive))

    def stop(self) -> None:
        """A fake bed leaves nothing; a real node leaves its images for the next run."""
        self._script("down.sh", "--forget" if (self.run / "containerd").exists() else "--wipe")
        for child in self._restarted:
            child.wait(timeout=10)

    def pid(self, part: str) -> int:
        """Of apiserver, etcd, controller-manager, scheduler, fake_node, fwd or node."""
        return int((self.run / f"{part}.pid").read_text())

    def restart(self, part: str) -> None:
        """End a part of the control plane without warning and start it as it was. Not for a real node's."""
        old = Path("/proc", str(self.pid(part)))
        command, environment = _strings(old / "cmdline"), _strings(old / "environ")
        os.kill(self.pid(part), signal.SIGKILL)
        wait_until(lambda: _is_over(old), f"end of {part}")
        with (self.run / "log" / f"{part}.log").open("ab") as log:
            new = subprocess.Popen(
                command,
                env=dict(line.split("=", 1) for line in environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._restarted.append(new)
        (self.run / f"{part}.pid").write_text(f"{new.pid}\n")

    @contextmanager
    def frozen(self, part: str) -> Iterator[None]:
        """A part that is there and does nothing: connections stay open, nothing is answered."""
        os.kill(self.pid(part), signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid(part), signal.SIGCONT)

    def _start(self, *args: str) -> None:
        """The same build serves both kinds of nodes: it happens once."""
        began = time.monotonic()
        self._script("build.sh", "--node")
        self._script("up.sh", *args)
        self.start_s = time.monotonic() - began

    def _ctr(self) -> list[str]:
        return [str(bed_folder() / "node/usr/bin/ctr"), "-a", str(self.run / "containerd.sock"), "-n", "k8s.io"]

    def _script(self, name: str, *args: str) -> None:
        done = subprocess.run(
            [BED / name, *args], env=self._environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise BedFailure(f"{name} {' '.join(args)}: status {done.returncode}\n{done.stderr}")


@contextmanager
def fake_bed(nodes: int, environment: Mapping[str, str] | None = None) -> Iterator[Bed]:
    """A control plane with so many fake nodes of 8 GPUs, gone without a trace afterwards."""
    _remove_orphans()
    bed = Bed(bed_folder() / "runs" / f"fake-{os.getpid()}-{random.randrange(10**6)}", free_ports(PORTS_OF_A_BED))
    try:
        bed.start_fake_nodes(nodes, environment or {})
        yield bed
    finally:
        bed.stop()


@contextmanager
def node_bed() -> Iterator[Bed]:
    """The machine's real node. Waits for whoever has it."""
    with NODE_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        bed = Bed(bed_folder() / "runs" / "node", free_ports(PORTS_OF_A_BED))
        try:
            bed.start_node()
            yield bed
        finally:
            bed.stop()


def _remove_orphans() -> None:
    """Beds of test runs that were killed: their folders carry the pid of a process that is no more."""
    for run in (bed_folder() / "runs").glob("fake-*"):
        if not Path("/proc", run.name.split("-")[1]).exists():
            Bed(run, 0).stop()
            shutil.rmtree(run, ignore_errors=True)


def _is_over(process: Path) -> bool:
    """Ended with every thread, reaped or not: only then are its ports free."""
    try:
        threads = [
            (thread / "stat").read_text().rpartition(")")[2].split()[0] for thread in (process / "task").iterdir()
        ]
    except OSError:  # one of them ended meanwhile
        return not process.exists()
    return threads == ["Z"]


def _strings(path: Path) -> list[str]:
    """Of a file of /proc that holds strings; none of an ended process, reaped or not."""
    return path.read_text(errors="replace").split("\0")[:-1] if path.exists() else []


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, below the range that the kernel hands out itself."""
    while True:
        first = random.randrange(15000, 30000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
