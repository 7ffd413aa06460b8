"""Child processes of a benchmark: started, waited for until they announce an address, always ended.

Works for every Kvarn process, because each logs one line with `ready` and `address=host:port`.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_ADDRESS = re.compile(r"\bready\b.*\baddress=(\S+:\d+)")
_POLL_S = 0.05
_STOP_S = 5.0


class ChildFailed(Exception):
    """A child exited before it served, or did not serve in time; the message ends with its last lines."""


@asynccontextmanager
async def running(module: str, flags: Sequence[str], deadline_s: float) -> AsyncIterator[str]:
    """The address that `python -m module` serves on. Logs go to a file, so that a full pipe never stalls the child."""
    with tempfile.TemporaryDirectory(prefix="kvarn-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *flags,
                stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, env=_environment(),
            )  # fmt: skip
        try:
            yield await _address(child, module, log, deadline_s)
        finally:
            await _end(child)


async def _address(child: asyncio.subprocess.Process, module: str, log: Path, deadline_s: float) -> str:
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                text = await asyncio.to_thread(_read, log)
                if match := _ADDRESS.search(text):
                    return match.group(1)
                if child.returncode is not None:
                    raise ChildFailed(f"{module} exited with status {child.returncode}:\n{_tail(text)}")
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        tail = _tail(await asyncio.to_thread(_read, log))
        raise ChildFailed(f"{module} was not ready within {deadline_s:g} s:\n{tail}") from None


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.returncode is None:
        child.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()


def _read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.splitlines()[-lines:])


def _environment() -> dict[str, str]:
    """Settings come from flags only: a KVARN_* variable of the caller would change what is measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("KVARN_") or name == "KVARN_CACHE"}
