"""Worker processes as their supervisor sees them: the ready line, signals, exit statuses."""

import asyncio
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.wire.status import error_from_call

from tests.integration.worker_pair import AnyCall, decode_stub, generate, local_answer, request

PROMPT = list(range(100, 200))


@asynccontextmanager
async def worker(module: str, *flags: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, "--engine", "simulated", *flags, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_until(process: Process, word: str) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while word not in (line := (await process.stderr.readline()).decode()):
            assert line, f"process ended before it said {word}"
    return line


async def address_of(process: Process) -> str:
    found = re.search(r"address=(\S+)", await read_until(process, "ready"))
    assert found is not None
    return found[1]


async def read_to_end(call: AnyCall) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_two_processes_answer_and_end_when_asked() -> None:
    async with worker("kvarn_prefill") as prefill, worker("kvarn_decode") as decode:
        message = request(PROMPT, [await address_of(prefill)])
        answer = await generate(await address_of(decode), message)
        assert answer.tokens == (await local_answer(message)).tokens
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"
        for process in (prefill, decode):
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_first_signal_waits_for_requests_and_the_second_does_not() -> None:
    endless = SamplingParams(max_tokens=5000, seed=1, ignore_eos=True)
    flags = ("--simulated-step-s", "0.05", "--shutdown-timeout-s", "600")
    async with worker("kvarn_decode", *flags) as decode:  # noqa: SIM117  the inner one needs the address
        async with decode_stub(await address_of(decode)) as stub:
            call = stub.Generate(request(PROMPT, sampling=endless))
            await call.read()
            decode.send_signal(signal.SIGTERM)
            assert "in_flight=1" in await read_until(decode, "draining")
            for _ in range(3):
                assert await call.read() is not grpc.aio.EOF
            decode.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(decode.wait(), 20) == 0
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await read_to_end(call)
            assert error_from_call(raised.value).retryable


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--port", "x"], ["--handoff-idle-timeout-s", "0"]])
async def test_wrong_settings_end_the_process_with_status_two(flags: list[str]) -> None:
    async with worker("kvarn_decode", *flags) as process:
        assert await asyncio.wait_for(process.wait(), 60) == 2


async def test_taken_port_ends_the_process_with_status_one() -> None:
    async with worker("kvarn_prefill") as first:
        port = (await address_of(first)).rpartition(":")[2]
        async with worker("kvarn_prefill", "--port", port) as second:
            assert await asyncio.wait_for(second.wait(), 60) == 1
