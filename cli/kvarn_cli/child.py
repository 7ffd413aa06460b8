"""One child process: started so that it dies with its parent, its output read line by line, ended in two stages."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

LineHandler = Callable[[str], None]

PR_SET_PDEATHSIG = 1
CHUNK_BYTES = 65536
OUTPUT_GRACE_S = 1.0
"""A grandchild may keep the pipe open; the output after the child's own end is waited for only this long."""


class Child:
    """Owned by whoever called `start`, who must await `wait`."""

    def __init__(self, process: asyncio.subprocess.Process, on_line: LineHandler) -> None:
        self._process = process
        self._on_line = on_line

    @classmethod
    async def start(cls, command: Sequence[str], environment: Mapping[str, str], on_line: LineHandler) -> "Child":
        """A session of its own keeps the terminal's Ctrl-C away from the child: its parent decides when it stops."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_bind_to_parent(os.getpid()) if sys.platform == "linux" else None,
        )
        return cls(process, on_line)

    @property
    def pid(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self) -> int:
        """The exit status, after its output was read. When cancelled, the child is killed first."""
        reader = asyncio.create_task(self._read_lines(), name=f"child-{self.pid}/output")
        try:
            status = await self._process.wait()
            await asyncio.wait({reader}, timeout=OUTPUT_GRACE_S)
            return status
        finally:
            self.kill()
            reader.cancel()

    async def _read_lines(self) -> None:
        stream = self._process.stdout
        assert stream is not None, "stdout is a pipe"
        rest = b""
        while chunk := await stream.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._on_line(_as_shown(line))
        if rest:
            self._on_line(_as_shown(rest))


def _as_shown(line: bytes) -> str:
    """What a terminal would show at the end: a progress bar writes over itself after each carriage return."""
    return line.decode("utf-8", "replace").rstrip("\r").rpartition("\r")[2]


def _bind_to_parent(parent: int) -> Callable[[], None]:
    """To run in the child before its program: the kernel kills it when the parent is gone, however that ended."""
    libc = ctypes.CDLL(None, use_errno=True)  # loaded here: the child must not load anything between fork and exec

    def bind() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before prctl
            os._exit(1)

    return bind
