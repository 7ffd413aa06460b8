"""Processes and clients that die, freeze, crawl or change their mind: nothing leaks and every answer ends once.

Real processes over the simulated engine, which notices a misplaced block. Later answers are compared with the ones the
same stack gave before the trouble. Nothing here measures time: conditions are polled, counters are compared.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from tests.support.client import TIMEOUT, Answer, Body, ask, completion_body, streaming
from tests.support.polling import until
from tests.support.simulated import CHUNK, MODEL, long_prompt, short_prompt, simulated_spec
from tests.support.stack import COMPUTED_TOKENS, SENT_TOKENS, Stack, Worker, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = simulated_spec(tmp_path_factory.mktemp("model"), prefill=2, decode=2)
    with running_stack(spec, tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT, limits=limits) as opened:
        yield opened
    stack.wait_idle()


def is_prefilling(stack: Stack) -> Worker | None:
    """The prefill worker in the middle of a long prompt."""
    for worker in stack.prefill:
        if worker.process.is_alive and worker.load().queued_prefill_tokens > 2 * CHUNK:
            return worker
    return None


def is_transferring(stack: Stack) -> bool:
    """Blocks are held on both sides of the hand-off."""
    return any(w.load().blocks_in_use for w in stack.prefill) and any(w.load().blocks_in_use for w in stack.decode)


def is_decoding(stack: Stack) -> Worker | None:
    for worker in stack.decode:
        if worker.process.is_alive and worker.load().running:
            return worker
    return None


async def after(growing: AsyncIterator[Answer], events: int) -> None:
    """Read a stream up to its `events`th event."""
    for _ in range(events):
        await anext(growing)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("phase", [is_prefilling, is_transferring], ids=["prefilling", "transferring"])
async def test_a_client_that_leaves_during_prefill_stops_it(
    stack: Stack, client: httpx.AsyncClient, phase: Callable[[Stack], object], stream: bool
) -> None:
    before = stack.total(COMPUTED_TOKENS)
    prompt = long_prompt(f"leaves-{phase.__name__}-{stream}")
    task = asyncio.create_task(ask(client, completion_body(MODEL, prompt, 8), stream), name="leaving-client")
    await until(lambda: phase(stack), "the prefill is under way")
    task.cancel()
    await asyncio.wait([task])
    await asyncio.to_thread(stack.wait_idle)
    assert stack.total(COMPUTED_TOKENS) - before < len(prompt)


async def test_a_streaming_client_that_leaves_while_decoding_stops_it(stack: Stack, client: httpx.AsyncClient) -> None:
    before = stack.total(SENT_TOKENS)
    async with streaming(client, completion_body(MODEL, short_prompt(1), 1500, ignore_eos=True)) as growing:
        await after(growing, 5)
    await asyncio.to_thread(stack.wait_idle)
    assert stack.total(SENT_TOKENS) - before < 1500


async def test_a_whole_answer_client_that_leaves_while_decoding_stops_it(
    stack: Stack, client: httpx.AsyncClient
) -> None:
    before = stack.total(SENT_TOKENS)
    body = completion_body(MODEL, short_prompt(2), 1500, ignore_eos=True)
    task = asyncio.create_task(ask(client, body), name="leaving-client")
    await until(lambda: is_decoding(stack), "the answer is being decoded")
    task.cancel()
    await asyncio.wait([task])
    await asyncio.to_thread(stack.wait_idle)
    assert stack.total(SENT_TOKENS) - before < 1500


async def test_queued_clients_that_leave_are_never_computed(stack: Stack, client: httpx.AsyncClient) -> None:
    """Ten long prefills are given up; the short request behind them is answered without computing them."""
    prompts = [long_prompt(f"queued-{index}") for index in range(10)]
    tasks = [
        asyncio.create_task(ask(client, completion_body(MODEL, prompt, 2)), name=f"queued-{index}")
        for index, prompt in enumerate(prompts)
    ]
    await until(lambda: is_prefilling(stack), "the first of them is under way")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    at_cancel = stack.total(COMPUTED_TOKENS)
    short = short_prompt(3)
    answer = await ask(client, completion_body(MODEL, short, 2))
    assert answer.completion_tokens == 2
    await asyncio.to_thread(stack.wait_idle)
    chunks_in_flight = 2 * len(stack.prefill) * CHUNK
    assert stack.total(COMPUTED_TOKENS) - at_cancel <= len(short) + chunks_in_flight


async def test_a_killed_prefill_worker_costs_no_answer(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, long_prompt("killed-prefill"), 12)
    expected = await ask(client, {**body, "cache_salt": "quiet"})
    task = asyncio.create_task(ask(client, body), name="answer")
    victim = await until(lambda: is_prefilling(stack), "the prefill is under way")
    victim.process.kill()
    answer = await task
    assert (answer.text, answer.finish_reason) == (expected.text, expected.finish_reason)
    await asyncio.to_thread(stack.restart, victim)


async def test_with_every_prefill_worker_gone_the_decode_worker_goes_on_alone(
    stack: Stack, client: httpx.AsyncClient
) -> None:
    body = completion_body(MODEL, long_prompt("no-prefill"), 12)
    expected = await ask(client, {**body, "cache_salt": "quiet"})
    task = asyncio.create_task(ask(client, body), name="answer")
    await until(lambda: is_prefilling(stack), "the prefill is under way")
    for worker in stack.prefill:
        worker.process.kill()
    assert (await task).text == expected.text
    for worker in stack.prefill:
        await asyncio.to_thread(stack.restart, worker)


async def test_a_killed_decode_worker_leaves_one_unbroken_stream(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, short_prompt(4), 200, ignore_eos=True)
    expected = await ask(client, body)
    victim: Worker | None = None
    answer = Answer()
    async with streaming(client, body) as growing:
        async for answer in growing:
            if victim is None and answer.text:
                victim = await asyncio.to_thread(is_decoding, stack)
                assert victim is not None
                victim.process.kill()
    assert answer.text == expected.text
    assert answer.completion_tokens == 200
    assert victim is not None
    await asyncio.to_thread(stack.restart, victim)


async def test_a_frozen_prefill_worker_is_given_up(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, long_prompt("frozen-prefill"), 12)
    expected = await ask(client, {**body, "cache_salt": "quiet"})
    task = asyncio.create_task(ask(client, body), name="answer")
    victim = await until(lambda: is_prefilling(stack), "the prefill is under way")
    victim.process.freeze()
    try:
        assert (await task).text == expected.text
    finally:
        victim.process.thaw()
    await asyncio.to_thread(stack.wait_known, victim)


async def test_a_stream_moves_off_a_frozen_decode_worker(stack: Stack, client: httpx.AsyncClient) -> None:
    body = completion_body(MODEL, short_prompt(10), 300, ignore_eos=True)
    expected = await ask(client, body)
    async with streaming(client, body) as growing:
        await after(growing, 5)
        victim = await asyncio.to_thread(is_decoding, stack)
        assert victim is not None
        victim.process.freeze()
        try:
            answer = [answer async for answer in growing][-1]
        finally:
            victim.process.thaw()
    assert (answer.text, answer.completion_tokens) == (expected.text, 300)
    await asyncio.to_thread(stack.wait_known, victim)


async def test_a_client_that_leaves_a_frozen_decode_worker_leaks_nothing(
    stack: Stack, client: httpx.AsyncClient
) -> None:
    async with streaming(client, completion_body(MODEL, short_prompt(5), 1500, ignore_eos=True)) as growing:
        await after(growing, 3)
        victim = await asyncio.to_thread(is_decoding, stack)
        assert victim is not None
        victim.process.freeze()
    victim.process.thaw()
    await asyncio.to_thread(stack.wait_idle)
    await asyncio.to_thread(stack.wait_ready)


async def test_a_slow_client_holds_up_nobody_and_gets_everything(stack: Stack, client: httpx.AsyncClient) -> None:
    """Its receive buffer is small and it does not read, so the router has to wait for it, and nobody else."""
    slow_body = completion_body(MODEL, short_prompt(6), 1500, ignore_eos=True)
    quick_body = completion_body(MODEL, short_prompt(7), 8)
    small_buffer = httpx.AsyncHTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    async with (
        httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT, transport=small_buffer) as slow,
        streaming(slow, slow_body) as growing,
    ):
        await after(growing, 1)
        for index in range(5):
            quick = await ask(client, {**quick_body, "cache_salt": str(index)})
            assert quick.completion_tokens == 8
        answer = [answer async for answer in growing][-1]
    assert answer.completion_tokens == 1500
    assert answer.finish_reason == "length"


async def test_a_slow_client_that_leaves_frees_everything(stack: Stack, client: httpx.AsyncClient) -> None:
    slow_body = completion_body(MODEL, short_prompt(8), 1500, ignore_eos=True)
    small_buffer = httpx.AsyncHTTPTransport(socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)])
    async with (
        httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT, transport=small_buffer) as slow,
        streaming(slow, slow_body) as growing,
    ):
        await after(growing, 1)
        assert (await ask(client, completion_body(MODEL, short_prompt(9), 8))).completion_tokens == 8
    await asyncio.to_thread(stack.wait_idle)


async def test_two_hundred_requests_aborted_at_random_moments(stack: Stack, client: httpx.AsyncClient) -> None:
    probes = [completion_body(MODEL, short_prompt(20 + index), 24) for index in range(4)]
    expected = [(await ask(client, probe)).text for probe in probes]
    dice = random.Random(20261201)
    plans = [(_random_body(dice, index), dice.random() < 0.5, dice.expovariate(1.0)) for index in range(200)]
    gate = asyncio.Semaphore(24)

    async def one(body: Body, stream: bool, patience_s: float) -> str:
        async with gate:
            task = asyncio.create_task(_outcome(client, body, stream), name="aborted-request")
            done, _ = await asyncio.wait([task], timeout=patience_s)
            if not done:
                task.cancel()
                await asyncio.wait([task])
            return "aborted" if task.cancelled() else task.result()

    outcomes = await asyncio.gather(*(one(*plan) for plan in plans))
    assert set(outcomes) <= {"aborted", "answered", "refused"}
    assert outcomes.count("aborted") >= 20
    assert outcomes.count("answered") >= 20
    await asyncio.to_thread(stack.wait_idle)
    assert [(await ask(client, probe)).text for probe in probes] == expected


def _random_body(dice: random.Random, index: int) -> Body:
    prompt = [dice.randrange(40, 300) for _ in range(dice.choice((3, 20, 150, 700)))]
    return completion_body(
        MODEL, prompt, dice.randrange(1, 80), n=dice.choice((1, 1, 1, 3)), temperature=1, seed=index, ignore_eos=True
    )


async def _outcome(client: httpx.AsyncClient, body: Body, stream: bool) -> str:
    """`answered` after exactly one finish for each choice, `refused` by a status that says try again."""
    path = "/v1/completions"
    if not stream:
        response = await client.post(path, json=body)
        if response.status_code in (429, 503):
            assert "retry-after" in response.headers
            return "refused"
        assert response.status_code == 200, response.text
        finished = [choice["finish_reason"] for choice in response.json()["choices"]]
    else:
        finished = []
        async with client.stream("POST", path, json={**body, "stream": True}) as response:
            if response.status_code in (429, 503):
                return "refused"
            assert response.status_code == 200
            lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert not any('"error"' in line for line in lines)
        finished = [line for line in lines if '"finish_reason":"' in line.replace(" ", "")]
    assert len(finished) == body["n"]
    return "answered"
