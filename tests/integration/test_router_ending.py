"""How a router process ends: what comes in during the delay is answered, what runs is finished, and nothing is lost."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.client import TIMEOUT, Body, ask, completion_body, streaming
from tests.support.polling import until
from tests.support.process import StackProcess, wait_until
from tests.support.simulated import MODEL, short_prompt, simulated_spec
from tests.support.stack import Stack, running_stack

LONG_DELAY = ("--shutdown-delay-s", "600")


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = simulated_spec(tmp_path_factory.mktemp("model"))
    with running_stack(spec, tmp_path_factory.mktemp("logs")) as running:
        yield running


@asynccontextmanager
async def router(stack: Stack, folder: Path, *flags: str, name: str = "second") -> AsyncIterator[StackProcess]:
    """Another router of the same workers."""
    workers = ",".join(worker.process.address for worker in stack.workers)
    known = ["--model", stack.spec.model, "--served-model-name", MODEL, "--workers", workers]
    process = StackProcess(name, "kvarn_router", [*known, *flags], folder / f"{name}.log")
    process.start()
    try:
        await asyncio.to_thread(process.wait_serving)
        await until(lambda: is_ready(process), f"{name} is ready")
        yield process
    finally:
        process.close()


def is_ready(process: StackProcess) -> bool:
    return httpx.get(f"http://{process.address}/ready").status_code == 200


def connect(process: StackProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{process.address}", timeout=TIMEOUT)


async def stopping(process: StackProcess) -> None:
    process.send(signal.SIGTERM)
    await until(lambda: "stopping" in process.log_text(), "SIGTERM is seen")


async def test_requests_are_taken_during_the_delay_and_clients_told_to_go(stack: Stack, tmp_path: Path) -> None:
    body = completion_body(MODEL, short_prompt(1), 4, ignore_eos=True)
    async with router(stack, tmp_path, *LONG_DELAY) as leaving, connect(leaving) as client:
        assert "connection" not in (await client.post("/v1/completions", json=body)).headers
        await stopping(leaving)
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        answer = await client.post("/v1/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["connection"] == "close"
        async with streaming(client, body) as growing:
            assert [answer async for answer in growing][-1].completion_tokens == 4
        assert await asyncio.to_thread(leaving.terminate) == 0  # the second signal ends the delay


async def test_a_stream_outlives_delay_and_port(stack: Stack, tmp_path: Path) -> None:
    body = completion_body(MODEL, short_prompt(2), 400, ignore_eos=True)
    async with router(stack, tmp_path, "--shutdown-delay-s", "0.2") as leaving, connect(leaving) as client:
        async with streaming(client, body) as growing:
            await anext(growing)
            await stopping(leaving)
            await until(lambda: refuses_connections(leaving), "the port is closed")
            answer = [answer async for answer in growing][-1]
        assert answer.completion_tokens == 400
        await ended(leaving)


def refuses_connections(process: StackProcess) -> bool:
    try:
        httpx.get(f"http://{process.address}/health")
    except httpx.ConnectError:
        return True
    except (httpx.ReadError, httpx.RemoteProtocolError):
        pass  # The kernel took the connection just before the port was closed.
    return False


@contextmanager
def frozen(stack: Stack) -> Iterator[None]:
    """The decode worker says nothing, so no answer can end before it is cut off."""
    stack.decode[0].process.freeze()
    try:
        yield
    finally:
        stack.decode[0].process.thaw()


PATIENT = ("--sse-ping-s", "0.05", "--watch-silence-s", "600", "--stream-idle-timeout-s", "600")
"""A ping commits the status of a stream that has no token yet."""


@asynccontextmanager
async def pinged(client: httpx.AsyncClient, body: Body) -> AsyncIterator[AsyncIterator[str]]:
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == ": ping"
        yield lines


async def told_at_the_end(lines: AsyncIterator[str]) -> str:
    """Code of the error event that is the last thing a stream says."""
    last = [line async for line in lines if line][-1]
    return str(json.loads(last.removeprefix("data: "))["error"]["code"])


async def ended(process: StackProcess) -> None:
    await asyncio.to_thread(wait_until, lambda: not process.is_alive, "the router ends")
    assert process.wait() == 0
    assert "Traceback" not in process.log_text()


async def test_what_the_time_limit_cuts_off_is_told_so(stack: Stack, tmp_path: Path) -> None:
    body = completion_body(MODEL, short_prompt(3), 4, ignore_eos=True)
    flags = (*PATIENT, "--shutdown-timeout-s", "1")
    async with router(stack, tmp_path, *flags) as leaving, connect(leaving) as client:
        with frozen(stack):
            async with pinged(client, body) as lines:
                whole = asyncio.create_task(client.post("/v1/completions", json=body))
                await until(lambda: in_flight(leaving) == 2, "both run")
                await stopping(leaving)
                assert await told_at_the_end(lines) == "no_worker"
            assert (await whole).status_code == 503
            await ended(leaving)


async def test_a_second_signal_cuts_off_at_once(stack: Stack, tmp_path: Path) -> None:
    body = completion_body(MODEL, short_prompt(4), 4, ignore_eos=True)
    async with router(stack, tmp_path, *PATIENT, *LONG_DELAY) as leaving, connect(leaving) as client:
        with frozen(stack):
            async with pinged(client, body) as lines:
                await stopping(leaving)
                leaving.send(signal.SIGTERM)
                assert await told_at_the_end(lines) == "no_worker"
            await ended(leaving)


def in_flight(process: StackProcess) -> int:
    page = httpx.get(f"http://{process.address}/metrics").text
    line = next(line for line in page.splitlines() if line.startswith("kvarn_router_requests_in_flight "))
    return round(float(line.split()[1]))


async def test_clients_that_follow_readiness_lose_nothing(stack: Stack, tmp_path: Path) -> None:
    """Two routers, one of which goes: each request is sent to one that was ready when it was last asked."""
    async with (
        router(stack, tmp_path, *LONG_DELAY, name="a") as leaving,
        router(stack, tmp_path, name="b") as staying,
        connect(leaving) as to_leaving,
        connect(staying) as to_staying,
    ):
        served = {"a": 0, "b": 0}
        gone = asyncio.Event()

        async def use(number: int) -> None:
            while served["b"] < 40:
                name, client = ("b", to_staying) if gone.is_set() else ("a", to_leaving)
                answer = await ask(client, completion_body(MODEL, short_prompt(number), 8, ignore_eos=True))
                assert answer.completion_tokens == 8
                served[name] += 1

        users = [asyncio.create_task(use(number)) for number in range(4)]
        await until(lambda: served["a"] >= 8, "requests run")
        await stopping(leaving)
        assert not await asyncio.to_thread(is_ready, leaving)
        gone.set()
        await asyncio.gather(*users)
        assert in_flight(leaving) == 0
        assert await asyncio.to_thread(leaving.terminate) == 0
