"""Worker processes as their supervisor sees them: the ready line, signals, exit statuses."""

import asyncio
import signal
from pathlib import Path

import grpc.aio
import pytest
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.wire.status import error_from_call

from tests.integration.worker_pair import AnyCall, decode_stub, generate, local_answer, request
from tests.support.file_server import file_server
from tests.support.stack import free_port
from tests.support.worker_child import SIMULATED, address_of, probe, probe_until, read_until, worker

PROMPT = list(range(100, 200))


async def read_to_end(call: AnyCall) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


async def test_two_processes_answer_and_end_when_asked() -> None:
    async with worker("kvarn_prefill", *SIMULATED) as prefill, worker("kvarn_decode", *SIMULATED) as decode:
        message = request(PROMPT, [await address_of(prefill)])
        answer = await generate(await address_of(decode), message)
        assert answer.tokens == (await local_answer(message)).tokens
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"
        for process in (prefill, decode):
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0


async def metric(port: int, name: str) -> float:
    _, text = await probe(port, "/metrics")
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} "))


async def test_first_signal_waits_for_requests_and_the_second_does_not() -> None:
    endless = SamplingParams(max_tokens=5000, seed=1, ignore_eos=True)
    port = free_port()
    flags = ("--simulated-step-s", "0.05", "--shutdown-timeout-s", "600", "--metrics-port", str(port))
    async with worker("kvarn_decode", *SIMULATED, *flags) as decode:  # noqa: SIM117  the inner one needs the address
        async with decode_stub(await address_of(decode)) as stub:
            await probe_until(port, "/ready", (200, "ok\n"))
            call = stub.Generate(request(PROMPT, sampling=endless))
            await call.read()
            assert (await metric(port, "kvarn_requests_in_flight"), await metric(port, "kvarn_draining")) == (1, 0)
            decode.send_signal(signal.SIGTERM)
            assert "in_flight=1" in await read_until(decode, "draining")
            await probe_until(port, "/ready", (503, "draining\n"))
            assert await probe(port, "/live") == (200, "ok\n")
            assert (await metric(port, "kvarn_requests_in_flight"), await metric(port, "kvarn_draining")) == (1, 1)
            for _ in range(3):
                assert await call.read() is not grpc.aio.EOF
            decode.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(decode.wait(), 20) == 0
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await read_to_end(call)
            assert error_from_call(raised.value).retryable


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--port", "x"], ["--handoff-idle-timeout-s", "0"]])
async def test_wrong_settings_end_the_process_with_status_two(flags: list[str]) -> None:
    async with worker("kvarn_decode", *SIMULATED, *flags) as process:
        assert await asyncio.wait_for(process.wait(), 60) == 2


async def test_taken_port_ends_the_process_with_status_one() -> None:
    async with worker("kvarn_prefill", *SIMULATED) as first:
        port = (await address_of(first)).rpartition(":")[2]
        async with worker("kvarn_prefill", *SIMULATED, "--port", port) as second:
            assert await asyncio.wait_for(second.wait(), 60) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_loads_is_alive_not_ready_and_ends_at_once_when_asked(
    number: signal.Signals, tmp_path: Path
) -> None:
    port = free_port()
    with file_server() as server:
        server.held.add("/model.zip")
        reference = f"{server.url}/model.zip#sha256={'0' * 64}"
        flags = ("--model", reference, "--metrics-port", str(port))
        async with worker("kvarn_prefill", *flags, environment={"KVARN_CACHE": str(tmp_path)}) as process:
            await read_until(process, "downloading model")
            assert await probe(port, "/ready") == (503, "loading\n")
            assert await probe(port, "/live") == (200, "ok\n")
            assert (await probe(port, "/metrics"))[0] == 200
            process.send_signal(number)
            assert await asyncio.wait_for(process.wait(), 20) == 0


async def test_a_model_that_cannot_be_had_ends_the_process_with_status_one(tmp_path: Path) -> None:
    async with worker("kvarn_decode", "--model", str(tmp_path)) as process:
        line = await read_until(process, "worker cannot run")
        assert await asyncio.wait_for(process.wait(), 60) == 1
    assert "has no config.json" in line


async def test_a_broken_model_ends_the_process_with_status_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    async with worker("kvarn_decode", "--model", str(tmp_path)) as process:
        await read_until(process, "worker cannot run")
        assert await asyncio.wait_for(process.wait(), 60) == 1
