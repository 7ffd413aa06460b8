"""One worker as a child of an async test: its lines on standard error, its address, its probes."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx

SIMULATED = ("--engine", "simulated")


@asynccontextmanager
async def worker(module: str, *flags: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *flags, stderr=PIPE, env={**os.environ, **(environment or {})}
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_until(process: Process, word: str, deadline_s: float = 60.0) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(deadline_s):
        while word not in (line := (await process.stderr.readline()).decode()):
            assert line, f"process ended before it said {word}"
    return line


async def address_of(process: Process) -> str:
    found = re.search(r"address=(\S+)", await read_until(process, "ready"))
    assert found is not None
    return found[1]


async def probe(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"http://127.0.0.1:{port}{path}", timeout=10.0)
    return answer.status_code, answer.text


async def probe_until(port: int, path: str, expected: tuple[int, str]) -> None:
    """Of a process that may not listen yet, or is about to change its answer."""
    async with asyncio.timeout(60):
        while True:
            try:
                if await probe(port, path) == expected:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
