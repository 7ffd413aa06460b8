"""A worker as Kubernetes may run it: a user id that no passwd file knows, no home, nothing writable but the cache.

Needs root and the command `setpriv`. The user may read every file, so that the interpreter is found wherever it lies,
and owns nothing but the cache.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kvarn_engine.runtime.backends.kernel_folder import kernel_folder

from tests.integration.worker_pair import generate, request
from tests.support.tiny import write_tiny_model
from tests.support.worker_child import read_until

USER = 54321
READS_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to become another user"
)


@asynccontextmanager
async def stranger(cache: Path, *flags: str) -> AsyncIterator[Process]:
    become = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *READS_ALL)
    environment = {"PATH": os.environ["PATH"], "HOME": "/", "KVARN_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    compiled_before = kernel_folder()  # by other tests, perhaps
    if compiled_before is not None:
        environment["NUMBA_CACHE_DIR"] = str(compiled_before)
    process = await asyncio.create_subprocess_exec(
        *become, sys.executable, "-m", "kvarn_decode", *flags, stderr=PIPE, env=environment, cwd="/"
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_an_unknown_user_serves_from_read_only_folders(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chown(cache, USER, USER)
    before = {path: path.stat().st_mtime_ns for path in model.iterdir()}
    async with stranger(cache, "--model", str(model), "--num-blocks", "64", "--dtype", "float32") as process:
        found = re.search(r"address=(\S+)", await read_until(process, " ready ", 240))
        assert found is not None
        answer = await generate(found[1], request(list(range(40, 60))))
        assert len(answer.tokens[0]) == 8
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    assert {path: path.stat().st_mtime_ns for path in model.iterdir()} == before
    assert [path.name for path in cache.iterdir()] == ["kernels"]


async def test_a_cache_that_cannot_be_written_is_told_when_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    reference = "http://127.0.0.1:1/model.tar.gz#sha256=" + "0" * 64
    async with stranger(tmp_path / "cache", "--model", reference) as process:
        line = await read_until(process, "ModelNotFound")
        assert await asyncio.wait_for(process.wait(), 30) == 1
    assert "cannot be written (Permission denied): set KVARN_CACHE" in line
