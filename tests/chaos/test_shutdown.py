"""SIGTERM in the middle of answers: what runs is finished, what is new goes elsewhere, the exit status is 0."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.client import TIMEOUT, ask, completion_body, streaming
from tests.support.polling import until
from tests.support.simulated import MODEL, long_prompt, short_prompt, simulated_spec
from tests.support.stack import Stack, Worker, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = simulated_spec(tmp_path_factory.mktemp("model"), prefill=2, decode=2)
    with running_stack(spec, tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Stack]:
    """Two decode workers that wait for nobody when they are asked to end."""
    spec = simulated_spec(tmp_path / "model", prefill=1, decode=2)
    hurried = dataclasses.replace(spec, decode_flags=(*spec.decode_flags, "--shutdown-timeout-s", "0.1"))
    with running_stack(hurried, tmp_path) as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT) as opened:
        yield opened
    stack.wait_idle()


def busy(workers: list[Worker]) -> Worker | None:
    return next((worker for worker in workers if worker.load().blocks_in_use), None)


async def test_a_decode_worker_finishes_its_streams_before_it_exits(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, short_prompt(1), 400, ignore_eos=True)
    expected = await ask(client, body)
    async with streaming(client, body) as growing:
        await anext(growing)
        leaving = await until(lambda: busy(stack.decode), "a decode worker is busy")
        exited = asyncio.create_task(asyncio.to_thread(leaving.process.terminate), name="terminate")
        await until(lambda: "draining" in leaving.process.log_text(), "the worker drains")
        other = await ask(client, completion_body(MODEL, short_prompt(2), 4, ignore_eos=True))
        answer = [answer async for answer in growing][-1]
    assert (answer.text, answer.completion_tokens) == (expected.text, 400)
    assert other.completion_tokens == 4
    assert await exited == 0
    await asyncio.to_thread(stack.restart, leaving)


async def test_streams_that_outlast_the_shutdown_move_to_another_worker(impatient: Stack) -> None:
    """The stream is far longer than the time that the leaving worker has."""
    async with httpx.AsyncClient(base_url=impatient.url, timeout=TIMEOUT) as client:
        body = completion_body(MODEL, short_prompt(4), 8000, ignore_eos=True)
        expected = (await ask(client, {**body, "max_tokens": 1000})).text
        async with streaming(client, body) as growing:
            await anext(growing)
            leaving = await until(lambda: busy(impatient.decode), "a decode worker is busy")
            assert await asyncio.to_thread(leaving.process.terminate) == 0
            assert "drained=False" in leaving.process.log_text()
            other = next(worker for worker in impatient.decode if worker is not leaving)
            await until(lambda: other.load().blocks_in_use, "the other decode worker took the stream")
            async for answer in growing:
                assert not answer.error
                if len(answer.text) >= len(expected):
                    break
            assert answer.text.startswith(expected)


async def test_a_prefill_worker_finishes_its_hand_off_before_it_exits(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, long_prompt("leaving-prefill"), 8, ignore_eos=True)
    task = asyncio.create_task(ask(client, body), name="answer")
    leaving = await until(lambda: busy(stack.prefill), "a prefill worker is busy")
    assert await asyncio.to_thread(leaving.process.terminate) == 0
    assert (await task).completion_tokens == 8
    _, _, while_draining = leaving.process.log_text().partition("draining")
    assert "outcome=ok" in while_draining
    await asyncio.to_thread(stack.restart, leaving)


async def test_the_router_finishes_its_streams_before_it_exits(stack: Stack, client: httpx.AsyncClient) -> None:
    router = stack.router
    assert router is not None
    body = completion_body(MODEL, short_prompt(3), 400, ignore_eos=True)
    async with streaming(client, body) as growing:
        await anext(growing)
        exited = asyncio.create_task(asyncio.to_thread(router.terminate), name="terminate")
        answer = [answer async for answer in growing][-1]
    assert answer.completion_tokens == 400
    assert await exited == 0
    await asyncio.to_thread(router.start)
    await asyncio.to_thread(router.wait_serving)
    await asyncio.to_thread(stack.wait_ready)
